// SPDX-License-Identifier: Apache-2.0
#pragma once
// The compile settings that passes read, as plain data. tools/ampc fills them from flags and recipe
// (cli.md names in the comments); the defaults stand in the flag table (runtime/config/flags.cc),
// the ones here only make a struct usable in tests.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ops/op_def.h"
#include "runtime/base/dtype.h"

namespace ampc {

/// LossSpec::axis when none is given.
inline constexpr int64_t kNoAxis = std::numeric_limits<int64_t>::min();

/// --loss
struct LossSpec {
  enum class Kind : uint8_t {
    kCrossEntropy,
    kNll,
    kMse,
    kL1,
    kSmoothL1,
    kHuber,
    kBceLogits,
    kKlDiv,
    kOutput,
  };
  Kind kind = Kind::kCrossEntropy;
  std::string input;  ///< model output; "" = the only one
  std::string target = "target";
  int64_t axis = kNoAxis;  ///< class axis; negative counts from the end
  bool mean = true;        ///< reduction=mean, else sum
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  double label_smoothing = 0;
  std::vector<double> weight;      ///< class weights
  std::vector<double> pos_weight;  ///< bce-logits
  double beta = 1, delta = 1;      ///< smooth-l1, huber: where the parabola ends
  double factor = 1;
};

/// --metric
struct MetricSpec {
  enum class Kind : uint8_t { kAccuracy, kMae, kPerplexity };
  Kind kind = Kind::kAccuracy;
  int64_t k = 1;
};

/// Overrides for the parameters that a glob names: --param-group, --no-decay.
struct ParamGroup {
  std::string glob;
  bool has_lr = false, has_weight_decay = false;
  double lr = 0, weight_decay = 0;
};

/// --optimizer, --lr
struct OptimizerSpec {
  enum class Kind : uint8_t { kSgd, kAdam, kAdamW };
  Kind kind = Kind::kSgd;
  double lr = 0.01;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  // Adam as ONNX Runtime's artifacts may want it.
  bool correct_bias = true;
  bool decay_last = false;  ///< epsilon beside the uncorrected root; the new weight decays
  double weight_decay = 0;
  std::vector<std::string> no_decay;  ///< globs, or "1d": parameters of rank <= 1
  std::vector<ParamGroup> groups;     ///< first match wins
};

/// --lr-schedule; indexed by applied steps
struct ScheduleSpec {
  enum class Kind : uint8_t { kConstant, kLinear, kCosine, kStep };
  Kind kind = Kind::kConstant;
  int64_t warmup = 0;
  int64_t total = -1;     ///< -1: filled in by amprun with the run's steps
  int64_t step_size = 1;  ///< step: every step_size applied steps
  double gamma = 0.1;     ///< step: lr *= gamma
  double end_factor = 0;  ///< linear, cosine: lr at the end / lr
};

/// --loss-scale
struct ScalerSpec {
  enum class Mode : uint8_t { kOff, kStatic, kDynamic };
  Mode mode = Mode::kOff;
  double init_scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 1, max_scale = std::numeric_limits<float>::max();
  int64_t hysteresis = 1, max_skips = 50;
};

/// One rule of a policy file; first match wins.
struct PolicyRule {
  std::string node, op;  ///< globs on the node's label and op type; "" = any
  std::string from, to;  ///< between: every node on a path between two values
  CastClass cls = CastClass::kFp32;
};

/// --policy
struct Policy {
  enum class Base : uint8_t { kTorchCuda, kTorchCpu, kFp32 };
  std::string name = "torch-cuda";
  Base base = Base::kTorchCuda;
  std::vector<PolicyRule> rules = {};
  double init_abs_max =
      65504;  ///< a constant with a larger finite value keeps its node in fp32; 0 = off
  int64_t reduction_depth = 0;  ///< 0 = off
};

/// --precision
enum class Precision : uint8_t { kFp32, kBf16, kFp16, kFp64 };
/// The low dtype of a precision; kFloat32 / kFloat64 when nothing is lowered.
constexpr DType LowType(Precision p) {
  switch (p) {
    case Precision::kBf16:
      return DType::kBFloat16;
    case Precision::kFp16:
      return DType::kFloat16;
    case Precision::kFp64:
      return DType::kFloat64;
    case Precision::kFp32:
      return DType::kFloat32;
  }
  return DType::kFloat32;
}

struct CompileOptions {
  std::vector<LossSpec> losses;
  std::vector<MetricSpec> metrics;
  std::vector<std::string> trainable, freeze;  ///< globs on source initializer names
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  Precision precision = Precision::kBf16;
  Policy policy;
  ScalerSpec scaler;
  double clip_norm = 0, clip_value = 0;  ///< 0 = off
  int64_t accumulate = 1;
  std::vector<std::pair<std::string, int64_t>> dims, eval_dims;  ///< --dim NAME=N, eval:NAME=N
  enum class TrainMode : uint8_t { kTrain, kPreserve, kFrozenEval } train_mode = TrainMode::kTrain;
  bool bn_unbiased = false;  ///< --bn-var unbiased
  bool wgrad_fp32 = false;   ///< --wgrad fp32
  bool eval_same = false;    ///< --eval-precision same
  bool forward_only = false;
  bool own_update = false;  ///< an optimizer was asked for: --optimizer and what goes with it
  bool own_lr = false;      ///< --lr was given
  std::string artifacts, init_from;  ///< --artifacts DIR, weights for it
  std::string untie = "auto";        ///< auto | none | GLOB
  std::vector<std::string> keep;     ///< --keep NAME: values that fusion leaves alone
};

}  // namespace ampc
