// SPDX-License-Identifier: Apache-2.0
// Module -> Plan: states with their initial bytes, feeds of all graphs, one program per graph.
#include <algorithm>
#include <cstring>

#include "compiler/lower/lower.h"
#include "runtime/base/float16.h"

namespace ampc {
namespace {

constexpr int64_t kAlign = 64;

// Element-wise widening from the stored dtype to the state's, through HostTensor's conversions.
void Convert(DType from, const std::byte* source, DType to, std::byte* target, int64_t count) {
  if (from == DType::kFloat32 && to == DType::kFloat64) {
    for (int64_t i = 0; i < count; ++i) {
      float f;
      std::memcpy(&f, source + i * 4, 4);
      const double d = f;
      std::memcpy(target + i * 8, &d, 8);
    }
    return;
  }
  const HostTensor view{
      from, {count}, std::vector<std::byte>(source, source + count * SizeOf(from))};
  for (int64_t i = 0; i < count; ++i) {
    const HostTensor one = HostTensor::Scalar(to, view.GetDouble(i));
    std::memcpy(target + i * SizeOf(to), one.data.data(), one.data.size());
  }
}

// The bytes of all states, one after another at multiples of 64, read from the source's files when
// asked.
class SourceWeights final : public plan::WeightSection {
 public:
  struct Piece {
    int64_t offset = 0, length = 0;  // in the section, in the state's dtype
    ir::ByteRef bytes;
    DType stored = DType::kNone, type = DType::kNone;
  };
  void Add(Piece piece) {
    size_ = piece.offset + piece.length;
    pieces_.push_back(std::move(piece));
  }
  int64_t size() const override { return size_; }

  Status Read(int64_t offset, std::span<std::byte> out) const override {
    std::memset(out.data(), 0, out.size());
    auto it = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                               [](int64_t o, const Piece& p) { return o < p.offset + p.length; });
    const int64_t end = offset + static_cast<int64_t>(out.size());
    for (; it != pieces_.end() && it->offset < end; ++it) {
      const int64_t from = std::max(offset, it->offset),
                    to = std::min(end, it->offset + it->length);
      AMPC_TRY(ReadPiece(
          *it, from - it->offset,
          out.subspan(static_cast<size_t>(from - offset), static_cast<size_t>(to - from))));
    }
    return {};
  }

 private:
  static Status ReadPiece(const Piece& p, int64_t offset, std::span<std::byte> out) {
    if (p.stored == p.type) return p.bytes.source->Read(p.bytes.offset + offset, out);
    // Whole elements around the range, converted.
    const int64_t to_size = SizeOf(p.type), from_size = SizeOf(p.stored);
    const int64_t first = offset / to_size,
                  last = (offset + static_cast<int64_t>(out.size()) + to_size - 1) / to_size;
    std::vector<std::byte> raw(static_cast<size_t>((last - first) * from_size)),
        wide(static_cast<size_t>((last - first) * to_size));
    AMPC_TRY(p.bytes.source->Read(p.bytes.offset + first * from_size, raw));
    Convert(p.stored, raw.data(), p.type, wide.data(), last - first);
    std::memcpy(out.data(), wide.data() + (offset - first * to_size), out.size());
    return {};
  }

  std::vector<Piece> pieces_;
  int64_t size_ = 0;
};

void AddStates(const ir::Module& module, plan::Plan& plan) {
  auto weights = std::make_shared<SourceWeights>();
  int64_t at = 0;
  for (const ir::StateVar& s : module.states) {
    const ir::TensorType& type = module.types.Get(s.type);
    plan::State& state = plan.states.emplace_back();
    state.name = s.name;
    state.role = s.role;
    state.desc = {type.dtype, type.dims, Layout::kRowMajor};
    state.source = s.source;
    state.initial.kind = s.initial.kind;
    state.initial.fill = s.initial.fill;
    state.initial.derived_from = s.initial.derived_from;
    if (s.initial.kind == plan::Initial::Kind::kBytes) {
      at = (at + kAlign - 1) / kAlign * kAlign;
      state.initial.offset = at;
      state.initial.length = type.bytes();
      weights->Add({at, type.bytes(), s.initial.bytes,
                    s.initial.stored == DType::kNone ? type.dtype : s.initial.stored, type.dtype});
      at += type.bytes();
    }
    if (!s.setting.empty())
      plan.settings.push_back({s.setting, static_cast<int32_t>(plan.states.size() - 1)});
  }
  plan.weights = std::move(weights);
}

// The plan's feed for one feed of a graph: shared between programs when name and form agree.
int32_t AddFeed(plan::Plan& plan, const ir::Graph& graph, const ir::FeedInfo& feed,
                const std::string& program) {
  const ir::TensorType& type = graph.type(feed.value);
  const TensorDesc desc{type.dtype, type.dims};
  for (size_t i = 0; i < plan.feeds.size(); ++i) {
    plan::Feed& known = plan.feeds[i];
    if (known.name != feed.name) continue;
    if (known.desc == desc) {
      known.program.clear();  // both programs read it
      return static_cast<int32_t>(i);
    }
  }
  plan.feeds.push_back({.name = feed.name,
                        .kind = feed.kind,
                        .desc = desc,
                        .program = program,
                        .limit = feed.limit,
                        .from_end = feed.from_end,
                        .has_ignore = feed.has_ignore,
                        .ignore = feed.ignore});
  return static_cast<int32_t>(plan.feeds.size() - 1);
}

}  // namespace

Result<plan::Plan> LowerModule(const ir::Module& module) {
  plan::Plan plan;
  AddStates(module, plan);
  for (const ir::Graph* graph : module.graphs()) {
    // With K = 1 train and apply are one program, the step.
    const bool step = graph == module.train.get() && module.apply == nullptr;
    const std::string name = step ? "step" : graph->name();
    const std::string scope = graph == module.eval.get() ? "eval" : "train";
    std::vector<int32_t> feeds;
    for (const ir::FeedInfo& feed : graph->feeds())
      feeds.push_back(AddFeed(plan, *graph, feed, scope));
    AMPC_ASSIGN(plan::Program program, LowerGraph(*graph, feeds, plan.constants));
    program.name = name;
    plan.programs.push_back(std::move(program));
  }
  return plan;
}

}  // namespace ampc
