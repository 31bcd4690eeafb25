// SPDX-License-Identifier: Apache-2.0
//
// P0: the plan around its programs. States have initial values that fit them, exports can be made
// from their states, names are unique. Whatever passes can be loaded without a further check.

#include "runtime/plan/verify.h"

#include <optional>
#include <string>
#include <unordered_set>

#include "runtime/base/wire.h"

namespace ampc::plan {

Status CheckDesc(std::string_view label, std::string_view name, const TensorDesc& desc) {
  if (!desc.present() || SizeOf(desc.dtype) == 0)
    return Violation(label, "'{}' has no data type", name);
  if (!CheckedNumElements(desc.dims, SizeOf(desc.dtype))) {
    return Violation(label, "the dims {} of '{}' are negative or too large", ToString(desc.dims),
                     name);
  }
  if (desc.layout == Layout::kChannelsLast && desc.dims.size() < 3) {
    return Violation(label, "'{}' with dims {} is channels-last, which wants rank 3 or more", name,
                     ToString(desc.dims));
  }
  return {};
}

namespace {

/// No plan wants more memory than this; below it, sums of sizes and offsets cannot overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 56;
/// Of gradient accumulation, as ampc's --accumulate.
constexpr int64_t kMaxAccumulate = 1'000'000;

Status AddBytes(std::string_view what, std::string_view name, int64_t bytes, int64_t* total) {
  if (bytes > kMaxBytes - *total) {
    return Violation("P0", "{} '{}' of {} bytes: {} of more than {} bytes in all are not run", what,
                     name, bytes, what, kMaxBytes);
  }
  *total += bytes + 64;  // each is aligned
  return {};
}

Status CheckInitial(const Plan& plan, const State& s, int64_t section) {
  const Initial& in = s.initial;
  switch (in.kind) {
    case Initial::Kind::kAuto:
      if (!IsFloat(s.desc.dtype))
        return Violation("P0", "state '{}' is filled later, but is not a float", s.name);
      return {};
    case Initial::Kind::kFill:
      // Conversion to an integer is undefined beyond its range; the fills that plans hold are
      // small.
      if (!IsFloat(s.desc.dtype) &&
          !(in.fill >= -128 && in.fill <= 127 && (in.fill >= 0 || s.desc.dtype != DType::kBool))) {
        return Violation("P0", "state '{}' of {} cannot be filled with {}", s.name,
                         Name(s.desc.dtype), in.fill);
      }
      return {};
    case Initial::Kind::kBytes:
      if (in.length != s.desc.bytes() || in.offset < 0 || in.offset > section ||
          in.length > section - in.offset) {
        return Violation("P0",
                         "state '{}' of {} bytes has its initial value at {}+{} of {} weight bytes",
                         s.name, s.desc.bytes(), in.offset, in.length, section);
      }
      return {};
    case Initial::Kind::kDerived: {
      const bool known = InRange(in.derived_from, plan.states.size());
      const State* from = known ? &plan.states[static_cast<size_t>(in.derived_from)] : nullptr;
      if (from == nullptr || from->initial.kind == Initial::Kind::kDerived ||
          from->desc.elements() != s.desc.elements()) {
        return Violation("P0", "state '{}' cannot be derived from state {}", s.name,
                         in.derived_from);
      }
      return {};
    }
  }
  return Violation("P0", "state '{}' has no initial value", s.name);
}

Status CheckStates(const Plan& plan) {
  const int64_t section = plan.weights ? plan.weights->size() : 0;
  int64_t total = 0;
  std::unordered_set<std::string_view> names;
  for (const State& s : plan.states) {
    AMPC_TRY(CheckDesc("P0", s.name, s.desc));
    AMPC_TRY(AddBytes("states", s.name, s.desc.bytes(), &total));
    if (!names.insert(s.name).second) return Violation("P0", "two states are named '{}'", s.name);
    if (s.desc.layout != Layout::kRowMajor)
      return Violation("P0", "state '{}' is not row-major", s.name);
    AMPC_TRY(CheckInitial(plan, s, section));
  }
  return {};
}

Status CheckFeeds(const Plan& plan) {
  int64_t total = 0;
  std::unordered_set<std::string> names;
  for (const Feed& f : plan.feeds) {
    AMPC_TRY(CheckDesc("P0", f.name, f.desc));
    AMPC_TRY(AddBytes("feeds", f.name, f.desc.bytes(), &total));
    if (!names.insert(f.program + ":" + f.name).second)
      return Violation("P0", "two feeds are named '{}'", f.name);
    if (f.desc.layout != Layout::kRowMajor)
      return Violation("P0", "feed '{}' is not row-major", f.name);
    if (f.limit < 0 || (f.from_end && f.limit == 0))
      return Violation("P0", "feed '{}' has limit {}", f.name, f.limit);
  }
  for (const HostTensor& t : plan.constants) {
    AMPC_TRY(CheckDesc("P0", "a constant", {t.dtype, t.dims}));
    if (t.elements() * SizeOf(t.dtype) != static_cast<int64_t>(t.data.size())) {
      return Violation("P0", "a constant of {} {} has {} bytes", Name(t.dtype), ToString(t.dims),
                       t.data.size());
    }
  }
  return {};
}

Status CheckExports(const Plan& plan) {
  const int64_t section = plan.weights ? plan.weights->size() : 0;
  std::unordered_set<std::string_view> names;
  for (const Export& e : plan.exports) {
    const TensorDesc desc{e.dtype, e.dims};
    AMPC_TRY(CheckDesc("P0", e.initializer, desc));
    if (!names.insert(e.initializer).second)
      return Violation("P0", "'{}' is exported twice", e.initializer);
    if (e.state == -1) {
      if (e.length != desc.bytes() || e.offset < 0 || e.offset > section ||
          e.length > section - e.offset) {
        return Violation("P0", "export '{}' of {} bytes lies at {}+{} of {} weight bytes",
                         e.initializer, desc.bytes(), e.offset, e.length, section);
      }
      continue;
    }
    if (!InRange(e.state, plan.states.size()))
      return Violation("P0", "export '{}' has state {}", e.initializer, e.state);
    const State& s = plan.states[static_cast<size_t>(e.state)];
    const bool same = s.desc.dtype == e.dtype;
    const bool rounds = IsFloat(s.desc.dtype) && IsFloat(e.dtype);
    if (s.desc.elements() != desc.elements() ||
        !(same || (e.inverse == Export::Inverse::kRound && rounds))) {
      return Violation("P0", "export '{}' ({} {}) cannot be made from state '{}' ({} {})",
                       e.initializer, Name(e.dtype), ToString(e.dims), s.name, Name(s.desc.dtype),
                       ToString(s.desc.dims));
    }
  }
  for (const Setting& s : plan.settings) {
    if (!InRange(s.state, plan.states.size()) ||
        plan.states[static_cast<size_t>(s.state)].desc.elements() != 1) {
      return Violation("P0", "setting '{}' names state {}, which is no scalar", s.name, s.state);
    }
  }
  return {};
}

/// Takes whole fields off the front until so many bytes are left. False: there is no such place.
bool TakeFields(std::string_view* message, int64_t left, bool* graph = nullptr) {
  constexpr uint64_t kGraph = 7;  // of ModelProto
  while (static_cast<int64_t>(message->size()) > left) {
    const std::optional<WireField> field = TakeField(message);
    if (!field) return false;
    if (graph != nullptr && field->number == kGraph && field->delimited()) *graph = true;
  }
  return static_cast<int64_t>(message->size()) == left;
}

/// The trained model is the source model's bytes with initializers between them, so they must be
/// whole fields of a message that has a graph. A plan may do without a model.
Status CheckSourceModel(const Plan& plan) {
  std::string_view bytes = plan.source_model;
  bool graph = bytes.empty();
  for (const Export& e : plan.exports) {
    std::string_view notes = e.notes;
    if (!TakeFields(&bytes, e.rest, &graph) || !TakeFields(&notes, 0))
      return Violation("P0",
                       "the source model in the plan is damaged, or '{}' does not fit into it",
                       e.initializer);
  }
  if (TakeFields(&bytes, 0, &graph) && graph) return {};
  return Violation("P0", "the source model in the plan is damaged");
}

}  // namespace

Status VerifyPlan(const Plan& plan) {
  AMPC_TRY(CheckStates(plan));
  AMPC_TRY(CheckFeeds(plan));
  AMPC_TRY(CheckExports(plan));
  AMPC_TRY(CheckSourceModel(plan));
  if (plan.accumulate < 1 || plan.accumulate > kMaxAccumulate) {
    return Violation("P0", "{} micro-batches per update; expected 1 to {}", plan.accumulate,
                     kMaxAccumulate);
  }
  std::unordered_set<std::string_view> names;
  for (const Program& p : plan.programs) {
    if (!names.insert(p.name).second) return Violation("P0", "two programs are named '{}'", p.name);
    if (p.block_bytes < 0 || p.block_bytes > kMaxBytes)
      return Violation("P0", "program '{}' wants a block of {} bytes", p.name, p.block_bytes);
    AMPC_TRY(VerifyProgram(plan, p));
  }
  return {};
}

}  // namespace ampc::plan
