// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_diagnose.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/trainer_settings.h"

namespace ampc {
namespace {

/// An exponent of all ones is inf when the fraction is zero, else NaN.
template <typename Bits>
std::string_view Scan(std::span<const std::byte> data, Bits exponent, Bits fraction) {
  std::string_view found;
  for (size_t i = 0; i + sizeof(Bits) <= data.size(); i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, data.data() + i, sizeof bits);
    if ((bits & exponent) != exponent) continue;
    if ((bits & fraction) == 0) return "inf";  // NaN often follows from an inf beside it
    found = "nan";
  }
  return found;
}

template <typename Bits>
int64_t Count(std::span<const std::byte> data, Bits exponent) {
  int64_t count = 0;
  for (size_t i = 0; i + sizeof(Bits) <= data.size(); i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, data.data() + i, sizeof bits);
    count += (bits & exponent) == exponent;
  }
  return count;
}

int64_t CountNonFinite(DType dtype, std::span<const std::byte> data) {
  switch (dtype) {
    case DType::kFloat32:
      return Count<uint32_t>(data, 0x7f800000u);
    case DType::kFloat64:
      return Count<uint64_t>(data, 0x7ff0000000000000u);
    case DType::kFloat16:
      return Count<uint16_t>(data, 0x7c00u);
    case DType::kBFloat16:
      return Count<uint16_t>(data, 0x7f80u);
    default:
      return 0;
  }
}

class FirstNonFinite {
 public:
  FirstNonFinite(const plan::Plan& plan, Executor& executor, int program)
      : plan_(plan),
        program_(plan.programs[static_cast<size_t>(program)]),
        index_(program),
        executor_(executor) {
    int64_t largest = 0;
    for (const plan::Tensor& t : program_.tensors) largest = std::max(largest, t.desc.bytes());
    scratch_.resize(static_cast<size_t>(largest));
    kinds_.resize(program_.tensors.size());
  }

  Result<std::string> Find() {
    std::vector<bool> defined(program_.tensors.size());
    for (const plan::Call& call : program_.calls) {
      for (int32_t t : call.outputs) {
        if (t >= 0) defined[static_cast<size_t>(t)] = true;
      }
    }
    for (size_t t = 0; t < defined.size(); ++t) {
      if (defined[t]) continue;
      AMPC_ASSIGN(const std::string_view kind, Kind(static_cast<int>(t)));
      kinds_[t] = kind;
      plan::Space space = program_.buffers[static_cast<size_t>(program_.tensors[t].buffer)].space;
      // A constant may be infinite on purpose (masks), a setting too (a limit); data and weights
      // are not.
      if (!kind.empty() && space == plan::Space::kFeed)
        return fmt::format("feed '{}' has {}", program_.tensors[t].name, How(t, kind));
      if (!kind.empty() && space == plan::Space::kState && found_.empty() && IsTrained(t))
        found_ = fmt::format("state '{}' has {}", program_.tensors[t].name, How(t, kind));
    }
    if (!found_.empty()) return found_;
    std::vector<int64_t> times(program_.calls.size());
    CallHook hook;
    hook.after = [this](int, int call) {
      if (status_.ok() && found_.empty()) status_ = Look(call);
    };
    AMPC_TRY(executor_.RunInstrumented(index_, times, &hook));
    AMPC_TRY(std::move(status_));
    return found_.empty() ? suspect_ : found_;
  }

 private:
  Result<std::string_view> Kind(int tensor) {
    const plan::Tensor& t = program_.tensors[static_cast<size_t>(tensor)];
    if (!IsFloat(t.desc.dtype)) return std::string_view();
    std::span<std::byte> data = std::span(scratch_).first(static_cast<size_t>(t.desc.bytes()));
    AMPC_TRY(executor_.ReadTensor(index_, tensor, data));
    return NonFiniteKind(t.desc.dtype, data);
  }

  /// "inf in 3 of 8 elements", of the tensor that Kind() read last.
  std::string How(size_t tensor, std::string_view kind) const {
    const auto& desc = program_.tensors[tensor].desc;
    const auto data = std::span(scratch_).first(static_cast<size_t>(desc.bytes()));
    return fmt::format("{} in {} of {} elements", kind, CountNonFinite(desc.dtype, data),
                       NumElements(desc.dims));
  }

  bool IsTrained(size_t tensor) const {
    const plan::Buffer& buffer =
        program_.buffers[static_cast<size_t>(program_.tensors[tensor].buffer)];
    const plan::Role role = plan_.states[static_cast<size_t>(buffer.index)].role;
    return role != plan::Role::kHyper && role != plan::Role::kScaler &&
           role != plan::Role::kCounter && role != plan::Role::kRng;
  }

  Status Look(int c) {
    const plan::Call& call = program_.calls[static_cast<size_t>(c)];
    bool finite = true, nan_free = true;
    for (const int32_t t : call.inputs) {
      if (t < 0) continue;
      const std::string_view kind = kinds_[static_cast<size_t>(t)];
      finite = finite && kind.empty();
      nan_free = nan_free && kind != "nan";
    }
    for (const int32_t t : call.outputs) {
      if (t < 0) continue;
      AMPC_ASSIGN(const std::string_view kind, Kind(t));
      kinds_[static_cast<size_t>(t)] = kind;
      if (!found_.empty()) continue;
      // A row that a mask of -inf hides as a whole: its Softmax makes the first NaN.
      const bool suspect = kind == "nan" && nan_free && suspect_.empty();
      if (kind.empty() || !(finite || suspect)) continue;
      (finite ? found_ : suspect_) =
          fmt::format("'{}' of node '{}' (kernel {}/{}) has {}",
                      program_.tensors[static_cast<size_t>(t)].name, call.loc, call.kernel,
                      executor_.implementation(index_, c), How(static_cast<size_t>(t), kind));
    }
    return {};
  }

  const plan::Plan& plan_;
  const plan::Program& program_;
  int index_;
  Executor& executor_;
  std::vector<std::byte> scratch_;
  std::vector<std::string_view> kinds_;  ///< per tensor, as NonFiniteKind() calls them
  std::string found_;                    ///< made of finite operands
  std::string suspect_;  ///< where there is no such: the first NaN that is made of infinities
  Status status_;
};

/// Puts back what a skipped window moves on: its loss scale and the count of micro-batches that
/// keys the random numbers.
Status Rewind(const plan::Plan& plan, Executor& executor, std::optional<double> scale) {
  if (const plan::Setting* setting = FindSetting(plan, kScaleSetting);
      setting != nullptr && scale) {
    const plan::State& state = plan.states[static_cast<size_t>(setting->state)];
    AMPC_TRY(
        executor.WriteState(setting->state, HostTensor::Scalar(state.desc.dtype, *scale).data));
  }
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const plan::State& state = plan.states[i];
    int64_t key[2];  // seed, index of the micro-batch: see dropout in kernels/kernels.def
    if (state.role != plan::Role::kRng || state.desc.dtype != DType::kInt64 ||
        state.desc.bytes() != sizeof key)
      continue;
    AMPC_TRY(executor.ReadState(static_cast<int>(i), std::as_writable_bytes(std::span(key))));
    key[1] -= plan.accumulate;
    AMPC_TRY(executor.WriteState(static_cast<int>(i), std::as_bytes(std::span(key))));
  }
  return {};
}

}  // namespace

Result<std::string> FindCauseOfSkip(const plan::Plan& plan, Executor& executor,
                                    const Programs& programs, Dataset& data, const FeedSet& feeds,
                                    const SkippedWindow& window) {
  AMPC_TRY(Rewind(plan, executor, window.scale));
  for (int64_t k = 0; k < plan.accumulate; ++k) {
    int64_t valid = 0;
    AMPC_TRY(data.Fill(window.first_batch + k, window.epoch, feeds.buffers, &valid));
    AMPC_ASSIGN(std::string found, FindFirstNonFinite(plan, executor, programs.micro()));
    if (found.empty()) continue;
    if (plan.accumulate > 1)
      found += fmt::format(", in micro-batch {} of {}", k + 1, plan.accumulate);
    return found;
  }
  if (programs.update() == programs.micro()) return std::string();
  return FindFirstNonFinite(plan, executor, programs.update());
}

std::string_view NonFiniteKind(DType dtype, std::span<const std::byte> data) {
  switch (dtype) {
    case DType::kFloat32:
      return Scan<uint32_t>(data, 0x7f800000u, 0x007fffffu);
    case DType::kFloat64:
      return Scan<uint64_t>(data, 0x7ff0000000000000u, 0x000fffffffffffffu);
    case DType::kFloat16:
      return Scan<uint16_t>(data, 0x7c00u, 0x03ffu);
    case DType::kBFloat16:
      return Scan<uint16_t>(data, 0x7f80u, 0x007fu);
    default:
      return "";
  }
}

Result<std::string> FindFirstNonFinite(const plan::Plan& plan, Executor& executor, int program) {
  return FirstNonFinite(plan, executor, program).Find();
}

}  // namespace ampc
