// SPDX-License-Identifier: Apache-2.0
// What each initializer becomes, and why.
//
// Default: every float initializer trains, except running statistics, rank-0 tensors, one-element
// operands of arithmetic (exporters write Python scalars as shape [1]), tensors that hold ±inf or
// |v| >= 1e30 (masks), and those that are read only where no gradient goes. --trainable selects: a
// glob among the default set; a name without wildcards any float tensor that a gradient can reach,
// also the value of a Constant node. --freeze subtracts.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "compiler/onnx/source.h"
#include "compiler/onnx/training.h"
#include "compiler/ops/op_def.h"
#include "runtime/config/value.h"

namespace ampc {
namespace {

std::string FirstUse(const SourceTensor& tensor, bool SourceUse::*which) {
  for (const SourceUse& use : tensor.uses) {
    if (use.*which) return use.where;
  }
  return tensor.uses.empty() ? "" : tensor.uses.front().where;
}

bool Any(const SourceTensor& tensor, bool SourceUse::*which) {
  return std::any_of(tensor.uses.begin(), tensor.uses.end(),
                     [&](const SourceUse& u) { return u.*which; });
}

// Inputs of nodes, as {node, slot}, at which an initializer stands; Identity nodes are looked
// through.
using Reads = std::set<std::pair<int, int>>;

Reads ReadsOf(const SourceModel& source) {
  Reads reads;
  for (const SourceTensor& tensor : source.tensors()) {
    for (const SourceUse& use : tensor.uses) reads.emplace(use.node, use.slot);
  }
  return reads;
}

// Why no step updates a statistic, with a comma in front, or "". BatchNormalization updates all of
// its statistics or none, and those that are computed have no place to be kept in.
std::string WhyNotUpdated(const SourceModel& source, const Reads& reads,
                          const SourceTensor& tensor) {
  std::string why;
  for (const SourceUse& use : tensor.uses) {
    if (!use.statistic) continue;
    if (use.node < 0 || use.slot < 0) return "";  // a body reads it
    const onnx::NodeProto& node = source.graph().node(use.node);
    if (source.FindFunction(node) != nullptr) return "";
    const OpDef* row = FindOp(DomainOf(node.domain()), node.op_type());
    if (row == nullptr || !HasSlot(row->statistic_slots, static_cast<size_t>(use.slot))) {
      why = fmt::format(", not updated: read through {}", DescribeNode(node, source.opsets()));
      continue;
    }
    std::string computed;
    for (int i = 0; i < node.input_size() && computed.empty(); ++i) {
      if (HasSlot(row->statistic_slots, static_cast<size_t>(i)) && !reads.contains({use.node, i}))
        computed = node.input(i);
    }
    if (computed.empty()) return "";
    why = fmt::format(", not updated: '{}' beside it is no initializer", computed);
  }
  return why;
}

// Why a tensor does not train by default; "" when it does.
struct Standing {
  std::string why_not;
  bool can_train = true;  // a name without wildcards can select it
};

Result<Standing> StandingOf(const SourceModel& source, const Reads& reads, SourceTensor& tensor) {
  if (!tensor.is_float())
    return Standing{fmt::format("its type is {}", Name(tensor.data.form.dtype)), false};
  if (tensor.uses.empty()) return Standing{"nothing reads it", false};
  if (Any(tensor, &SourceUse::statistic)) {
    return Standing{
        fmt::format("a running statistic ({}){}", FirstUse(tensor, &SourceUse::statistic),
                    WhyNotUpdated(source, reads, tensor)),
        false};
  }
  if (!Any(tensor, &SourceUse::differentiable)) {
    return Standing{fmt::format("read only where no gradient goes ({})", tensor.uses.front().where),
                    false};
  }
  if (!Any(tensor, &SourceUse::parameter)) {
    return Standing{fmt::format("no parameter by its nature: a state, a bound or a table ({})",
                                FirstUse(tensor, &SourceUse::differentiable))};
  }
  if (tensor.data.form.dims.empty()) return Standing{"rank 0, a scalar"};
  const bool scalar = std::all_of(tensor.uses.begin(), tensor.uses.end(),
                                  [](const SourceUse& u) { return u.scalar; });
  if (tensor.one_element() && scalar) {
    return Standing{fmt::format("one element, used in arithmetic ({})",
                                FirstUse(tensor, &SourceUse::differentiable))};
  }
  if (tensor.from_constant) return Standing{"the value of a Constant node"};
  AMPC_ASSIGN(const ValueScan scan, ScanOf(tensor));
  if (scan.is_mask()) {
    return Standing{scan.has_inf ? "holds infinities, a mask"
                                 : "holds values of 1e30 and more, a mask"};
  }
  return Standing{};
}

bool Matches(std::string_view glob, const SourceTensor& tensor) {
  return GlobMatches(glob, tensor.name) || GlobMatches(glob, tensor.original);
}

Status NoMatch(std::string_view flag, const std::string& glob, const SourceModel& source) {
  std::vector<std::string_view> names;
  for (const SourceTensor& t : source.tensors()) names.push_back(t.name);
  return UsageError("E0113", "{} '{}' matches no initializer{}", flag, glob, Suggest(glob, names));
}

// Marks what one --trainable pattern selects.
Status Select(const std::string& glob, const SourceModel& source,
              const std::vector<Standing>& standing, std::vector<bool>& selected) {
  const bool pattern = IsGlob(glob);
  bool found = false;
  std::string refused;
  for (size_t i = 0; i < selected.size(); ++i) {
    const SourceTensor& tensor = source.tensors()[i];
    if (!Matches(glob, tensor)) continue;
    if (standing[i].why_not.empty() || (!pattern && standing[i].can_train)) {
      selected[i] = found = true;
    } else if (refused.empty()) {
      refused =
          fmt::format("'{}' ({}{})", tensor.name, standing[i].why_not,
                      standing[i].can_train ? "; give its name without wildcards to train it" : "");
    }
  }
  if (found) return {};
  if (refused.empty()) return NoMatch("--trainable", glob, source);
  return UsageError("E0113", "--trainable '{}' matches nothing that can train: {}", glob, refused);
}

void Settle(SourceTensor& tensor, const Standing& standing, bool trainable,
            std::string why_frozen) {
  tensor.trainable = trainable;
  const bool candidate = standing.why_not.empty();
  const bool statistic = Any(tensor, &SourceUse::statistic);
  tensor.reason = trainable ? "trains" : candidate ? std::move(why_frozen) : standing.why_not;
  if (trainable || (candidate && tensor.is_float())) {
    tensor.role = plan::Role::kWeight;
    tensor.is_state = true;
  } else if (statistic && tensor.is_float()) {
    tensor.role = plan::Role::kStatistic;
    tensor.is_state = true;
  } else {
    tensor.role = plan::Role::kConstant;
    tensor.is_state = tensor.data.form.elements > kMaxConstantElements;
  }
}

// Parameters that train apart although an exporter may have written one parameter twice. Equal
// elements are no sign of that: biases start at zero.
Status ReportEqual(std::vector<SourceTensor>& tensors, Diagnostics& diagnostics) {
  using Key = std::tuple<DType, Dims, uint64_t, double>;
  std::map<Key, std::vector<std::vector<const SourceTensor*>>> classes;
  for (SourceTensor& tensor : tensors) {
    if (!tensor.trainable || tensor.original != tensor.name) continue;  // untied on purpose
    AMPC_ASSIGN(const ValueScan scan, ScanOf(tensor));
    if (scan.all_equal) continue;
    auto& found =
        classes[Key{tensor.data.form.dtype, tensor.data.form.dims, scan.sum, scan.max_finite}];
    bool placed = false;
    for (auto& equal : found) {
      AMPC_ASSIGN(placed, EqualBytes(equal.front()->data, tensor.data));
      if (placed) equal.push_back(&tensor);
      if (placed) break;
    }
    if (!placed) found.push_back({&tensor});
  }
  std::vector<std::string> groups;
  for (const auto& [key, found] : classes) {
    for (const auto& equal : found) {
      if (equal.size() < 2) continue;
      std::string& text = groups.emplace_back();
      for (size_t i = 0; i < equal.size(); ++i)
        text += fmt::format("{}'{}'", i == 0 ? "" : " = ", equal[i]->name);
    }
  }
  if (!groups.empty())
    diagnostics.Note(fmt::format("equal values, but parameters of their own: {}", Listed(groups)));
  return {};
}

// A model that brings its training along says itself what trains and what a step replaces.
Status ClassifyGiven(SourceModel& source, const TrainingPart& training, Diagnostics& diagnostics) {
  std::vector<std::string> unused;
  for (SourceTensor& tensor : source.tensors()) {
    const bool trains = training.trained.contains(tensor.name);
    if (trains && tensor.uses.empty()) {
      return BadInput("E0119",
                      "the model has a gradient of '{}', but no node in front of the loss "
                      "reads it",
                      tensor.name);
    }
    if (trains && !tensor.is_float()) {
      return BadInput("E0119", "the model has a gradient of '{}', which is {}", tensor.name,
                      Name(tensor.data.form.dtype));
    }
    const Standing standing{trains ? "" : "the model has no gradient of it", trains};
    Settle(tensor, standing, trains, "");
    if (!trains && !tensor.is_float())
      tensor.reason = fmt::format("its type is {}", Name(tensor.data.form.dtype));
    if (training.updated.contains(tensor.name)) {
      tensor.is_state = true;
      if (!trains) tensor.reason = "the model updates it";
      if (!trains && tensor.role == plan::Role::kConstant)
        tensor.role = tensor.is_float() ? plan::Role::kMoment : plan::Role::kCounter;
    }
    if (tensor.uses.empty() && tensor.one_element() && training.rates.contains(tensor.name)) {
      tensor.is_state = true;
      tensor.role = plan::Role::kHyper;
      tensor.reason = "a learning rate";
    }
    if (tensor.uses.empty() && !tensor.in_update)
      unused.push_back(fmt::format("'{}'", tensor.name));
    if (tensor.is_float()) diagnostics.Explain(tensor.name, "trainable", tensor.reason);
  }
  if (!unused.empty())
    diagnostics.Note(fmt::format("initializers that nothing reads: {}", Listed(unused)));
  return {};
}

}  // namespace

Result<ValueScan> ScanOf(SourceTensor& tensor) {
  if (!tensor.scan) {
    AMPC_ASSIGN(tensor.scan, ScanValues(tensor.data));
  }
  return *tensor.scan;
}

Status Classify(SourceModel& source, const CompileOptions& options, Diagnostics& diagnostics) {
  if (source.training() != nullptr) return ClassifyGiven(source, *source.training(), diagnostics);
  std::vector<SourceTensor>& tensors = source.tensors();
  const Reads reads = ReadsOf(source);
  std::vector<Standing> standing;
  for (SourceTensor& tensor : tensors) {
    AMPC_ASSIGN(Standing s, StandingOf(source, reads, tensor));
    standing.push_back(std::move(s));
  }
  std::vector<bool> selected(tensors.size(), false), frozen(tensors.size(), false);
  for (const std::string& glob : options.trainable)
    AMPC_TRY(Select(glob, source, standing, selected));
  for (const std::string& glob : options.freeze) {
    bool found = false;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!Matches(glob, tensors[i])) continue;
      frozen[i] = found = true;
    }
    if (!found) return NoMatch("--freeze", glob, source);
  }
  std::vector<std::string> unused;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool wanted = options.trainable.empty() ? standing[i].why_not.empty() : selected[i];
    Settle(tensors[i], standing[i], wanted && !frozen[i],
           frozen[i] ? "frozen by --freeze" : "not selected by --trainable");
    if (tensors[i].uses.empty()) unused.push_back(fmt::format("'{}'", tensors[i].name));
    if (tensors[i].is_float()) diagnostics.Explain(tensors[i].name, "trainable", tensors[i].reason);
  }
  if (!unused.empty())
    diagnostics.Note(fmt::format("initializers that nothing reads: {}", Listed(unused)));
  return ReportEqual(tensors, diagnostics);
}

}  // namespace ampc
