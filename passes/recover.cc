// SPDX-License-Identifier: Apache-2.0
// recover: ops that an exporter took apart become whole again.
//
//   e = Erf(x / sqrt(2)); y = 0.5 * x * (1 + e)                        ->  y = Gelu(x)
//   y = MatMul(Softmax(MatMul(q, k^T) * scale + mask), v)              ->  y = Attention(q, k, v,
//   mask)
//
// PyTorch's autocast sees whole ops, so the policy wants them; and their kernels keep less for the
// backward pass. The patterns stand in recover_*.cc. This is the one pass that knows ops by name: a
// pattern is made of names. Constants, axes and dims are compared exactly (up to the rounding of a
// constant to fp32), and a pattern of which something inside is read elsewhere, is an output, or
// has a name in --keep or in the policy, stays. The new op stands where the last node stood, under
// its location and name. Test: test/passes/recover.onnxtext
#include "passes/recover_match.h"

namespace ampc {
namespace {

struct Pattern {
  std::string_view anchor;
  Status (*recover)(Match&);
};

constexpr Pattern kPatterns[] = {
    {"Softmax", RecoverAttention},
    {"Log", RecoverLogSoftmax},
    {"Erf", RecoverGelu},
    {"Tanh", RecoverTanhGelu},
    {"Sigmoid", RecoverSwish},
    {"ReduceMean", RecoverNorm},
    {"InstanceNormalization", RecoverGroupNorm},
    {"Concat", RecoverRnn},
};

}  // namespace

Status RecoverOps(ir::Module& module, PassContext& context) {
  std::vector<const OpDef*> anchors;
  for (const Pattern& pattern : kPatterns) anchors.push_back(FindOp("", pattern.anchor));
  for (ir::Graph* graph : module.graphs()) {
    for (const ir::NodeId n : graph->Order()) {
      const OpDef* op = graph->node(n).op;
      if (op == nullptr) continue;  // went with a pattern before it
      for (size_t i = 0; i < anchors.size(); ++i) {
        if (anchors[i] != op) continue;
        Match match(*graph, context, n);
        AMPC_TRY(kPatterns[i].recover(match));
      }
    }
  }
  return {};
}

}  // namespace ampc
