// SPDX-License-Identifier: Apache-2.0
#pragma once
// The passes: one verb, one function, one file each. passes.def is the registry;
// compiler/compiler.cc is the pipeline that says in which order they run and why.
//
// A pass analyses first into local data and then edits through Graph and Builder. It holds no op
// names: what it needs to know about an op stands in the op's row (`recover` alone has patterns,
// which are made of names). It sees the module and the
// settings, never another pass.

#include <initializer_list>
#include <memory>
#include <string_view>

#include "compiler/diagnostics.h"
#include "compiler/ir/builder.h"
#include "compiler/ir/graph.h"
#include "compiler/ops/op_def.h"
#include "passes/options.h"

namespace ampc {

struct PassContext {
  const CompileOptions& options;
  Diagnostics& diagnostics;
  /// Computes a node whose inputs are constants (compiler/lower/evaluate.h); null: nothing folds.
  Result<std::vector<HostTensor>> (*evaluate)(const ir::Graph&, ir::NodeId) = nullptr;
};

/// A usage error unless the graph, called `name`, exists and has these outputs. A pass whose
/// forerunner may have been left out (--disable-pass, ampc-opt --passes) asks this first.
Status Needs(const std::unique_ptr<ir::Graph>& graph, std::string_view name,
             std::initializer_list<std::string_view> outputs = {});

using PassFn = Status (*)(ir::Module&, PassContext&);

#define PASS(name, function, summary) Status function(ir::Module& module, PassContext& context);
#include "passes/passes.def"
#undef PASS

struct PassInfo {
  std::string_view name, summary;
  PassFn run;
};
/// All passes, in the order of passes.def.
std::span<const PassInfo> AllPasses();
const PassInfo* FindPass(std::string_view name);

}  // namespace ampc
