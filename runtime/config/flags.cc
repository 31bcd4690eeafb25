// SPDX-License-Identifier: Apache-2.0
#include "runtime/config/flags.h"

namespace ampc {
namespace {

// clang-format off
constexpr uint8_t kC = static_cast<uint8_t>(Tool::kAmpc);
constexpr uint8_t kR = static_cast<uint8_t>(Tool::kAmprun);
constexpr uint8_t kO = static_cast<uint8_t>(Tool::kAmpcOpt);
constexpr bool kNotBuilt = false;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kSmallest = 0x1p-126;  // of normal fp32: "more than 0" for a scale

constexpr Choice kLosses[] = {{"cross-entropy"}, {"nll"}, {"mse"}, {"l1"}, {"smooth-l1"},
                              {"huber"}, {"bce-logits"}, {"kl-div"}, {"output"}};
constexpr KeySpec kLossKeys[] = {
    {.name = "input", .help = "model output that the loss reads (default: the only one)"},
    {.name = "target", .fallback = "target", .heads = "cross-entropy|nll|mse|l1|smooth-l1|huber|bce-logits|kl-div", .help = "name of the new feed"},
    {.name = "axis", .kind = KeyKind::kInt, .heads = "cross-entropy|nll", .help = "class axis: 1 for rank 2, else it must be given"},
    {.name = "reduction", .kind = KeyKind::kChoice, .fallback = "mean", .heads = "cross-entropy|nll|mse|l1|smooth-l1|huber|bce-logits|kl-div|output", .choices = "mean|sum"},
    {.name = "ignore_index", .kind = KeyKind::kInt, .heads = "cross-entropy|nll", .help = "label that counts for nothing"},
    {.name = "label_smoothing", .kind = KeyKind::kNumber, .fallback = "0", .heads = "cross-entropy", .min = 0, .max = 1},
    {.name = "weight", .kind = KeyKind::kNumbersOrPath, .heads = "cross-entropy|nll", .help = "class weights: [..] or .npy"},
    {.name = "pos_weight", .kind = KeyKind::kNumbersOrPath, .heads = "bce-logits"},
    {.name = "beta", .kind = KeyKind::kNumber, .fallback = "1", .heads = "smooth-l1", .help = "where the parabola ends; 0: l1", .min = 0},
    {.name = "delta", .kind = KeyKind::kNumber, .fallback = "1", .heads = "huber", .help = "where the parabola ends", .min = kSmallest},
    {.name = "factor", .kind = KeyKind::kNumber, .fallback = "1", .help = "weight of this loss when several are given"},
};
constexpr Choice kMetrics[] = {{"accuracy"}, {"mae"}, {"perplexity"}};
constexpr KeySpec kMetricKeys[] = {
    {.name = "k", .kind = KeyKind::kInt, .fallback = "1", .heads = "accuracy", .help = "right when the label is among the k best", .min = 1},
};

constexpr Choice kOptimizers[] = {{"sgd"}, {"adam"}, {"adamw"}, {"adagrad", kNotBuilt}, {"rmsprop", kNotBuilt}, {"lamb", kNotBuilt}};
constexpr KeySpec kOptimizerKeys[] = {
    {.name = "momentum", .kind = KeyKind::kNumber, .fallback = "0", .heads = "sgd", .min = 0},
    {.name = "dampening", .kind = KeyKind::kNumber, .fallback = "0", .heads = "sgd"},
    {.name = "nesterov", .kind = KeyKind::kBool, .fallback = "false", .heads = "sgd"},
    {.name = "betas", .kind = KeyKind::kNumbers, .fallback = "[0.9,0.999]", .heads = "adam|adamw", .min = 0, .max = 1},
    {.name = "eps", .kind = KeyKind::kNumber, .fallback = "1e-8", .heads = "adam|adamw", .min = 0},
    {.name = "weight_decay", .kind = KeyKind::kNumber, .fallback = "0", .heads = "sgd|adam", .min = 0},
    {.name = "weight_decay", .kind = KeyKind::kNumber, .fallback = "0.01", .heads = "adamw", .min = 0},
};
constexpr Choice kSchedules[] = {{"constant"}, {"linear"}, {"cosine"}, {"step"}, {"onecycle", kNotBuilt}};
constexpr KeySpec kScheduleKeys[] = {
    {.name = "warmup", .kind = KeyKind::kInt, .fallback = "0", .help = "steps of linear warm-up", .min = 0},
    {.name = "total", .kind = KeyKind::kInt, .heads = "linear|cosine", .help = "steps until the end (default: the run's)", .min = 1},
    {.name = "end_factor", .kind = KeyKind::kNumber, .fallback = "0", .heads = "linear|cosine", .help = "lr at the end / lr", .min = 0},
    {.name = "step_size", .kind = KeyKind::kInt, .fallback = "1000", .heads = "step", .help = "steps between two drops", .min = 1},
    {.name = "gamma", .kind = KeyKind::kNumber, .fallback = "0.1", .heads = "step", .help = "factor of a drop", .min = 0},
};
constexpr KeySpec kGroupKeys[] = {
    {.name = "lr", .kind = KeyKind::kNumber, .min = 0},
    {.name = "weight_decay", .kind = KeyKind::kNumber, .min = 0},
};

constexpr Choice kPrecisions[] = {{"fp32"}, {"bf16"}, {"fp16"}, {"fp64"}};
constexpr Choice kPolicies[] = {{"torch-cuda"}, {"torch-cpu"}, {"fp32"}, {"O1", kNotBuilt}, {"O2", kNotBuilt}, {"O3", kNotBuilt}};
constexpr Choice kScales[] = {{"auto"}, {"dynamic"}, {"off"}};
constexpr KeySpec kScaleKeys[] = {
    {.name = "init_scale", .kind = KeyKind::kNumber, .fallback = "65536", .heads = "auto|dynamic", .min = kSmallest},
    {.name = "growth_factor", .kind = KeyKind::kNumber, .fallback = "2", .heads = "auto|dynamic", .min = 1},
    {.name = "backoff_factor", .kind = KeyKind::kNumber, .fallback = "0.5", .heads = "auto|dynamic", .min = 0, .max = 1},
    {.name = "growth_interval", .kind = KeyKind::kInt, .fallback = "2000", .heads = "auto|dynamic", .min = 1},
    {.name = "min_scale", .kind = KeyKind::kNumber, .fallback = "1", .heads = "auto|dynamic", .min = 0},
    {.name = "max_scale", .kind = KeyKind::kNumber, .fallback = "inf", .heads = "auto|dynamic", .help = "inf = largest finite fp32", .min = kSmallest, .max = kInf},
    {.name = "hysteresis", .kind = KeyKind::kInt, .fallback = "1", .heads = "auto|dynamic", .help = "skips before the scale backs off", .min = 1},
    {.name = "max_skips", .kind = KeyKind::kInt, .fallback = "50", .help = "consecutive skips that stop the run; 0 = never", .min = 0},
};
constexpr Choice kUntie[] = {{"auto"}, {"none"}};
constexpr Choice kTrainModes[] = {{"train"}, {"preserve"}, {"frozen-eval"}};
constexpr Choice kBnVars[] = {{"population"}, {"unbiased"}};
constexpr Choice kWgrads[] = {{"low"}, {"fp32"}};
constexpr Choice kEvalPrecisions[] = {{"fp32"}, {"same"}};
constexpr Choice kEmits[] = {{"plan"}, {"step"}, {"text"}, {"schedule"}};
constexpr KeySpec kEmitKeys[] = {
    {.name = "native", .kind = KeyKind::kBool, .fallback = "false", .heads = "step", .help = "keep low-precision types"},
};
constexpr Choice kPlacements[] = {{"policy"}, {"min-bytes"}};

constexpr Choice kMadeUp[] = {{"random"}, {"const"}};
constexpr KeySpec kDataKeys[] = {
    {.name = "member", .help = "array of a .npz file"},
    {.name = "layout", .kind = KeyKind::kChoice, .fallback = "samples", .choices = "samples|steps", .help = "meaning of the leading axis of a .npz file"},
    {.name = "scale", .kind = KeyKind::kNumber, .fallback = "1", .help = "value = (x * scale - mean) / std"},
    {.name = "mean", .kind = KeyKind::kNumbers, .fallback = "0", .help = "one, or one per channel (the feed's axis 1)"},
    {.name = "std", .kind = KeyKind::kNumbers, .fallback = "1", .help = "likewise"},
    {.name = "permute", .kind = KeyKind::kInts, .help = "order of the axes, applied first"},
    {.name = "axis", .kind = KeyKind::kInt, .fallback = "0", .help = "sample axis", .min = 0},
    {.name = "value", .kind = KeyKind::kNumber, .fallback = "0", .heads = "const", .help = "of a constant feed", .min = -kInf, .max = kInf},
    {.name = "below", .kind = KeyKind::kInt, .fallback = "0", .heads = "random", .help = "random integers lie in [0, below); 0 = as far as the model allows", .min = 0},
    // No defaults here: --print-config would write them to files that are no token streams.
    {.name = "dtype", .kind = KeyKind::kChoice, .choices = "u8|u16|u32|i32|i64", .help = "of raw tokens (.bin; u16 when left out)"},
    {.name = "header", .kind = KeyKind::kInt, .help = "bytes to skip before them", .min = 0},
    {.name = "tokens", .kind = KeyKind::kChoice, .choices = "char", .help = "text: each character is a token, its id the rank among the text's characters"},
    {.name = "vocab", .kind = KeyKind::kPath, .help = "text whose characters count (--eval-data: those of --data)"},
    {.name = "stride", .kind = KeyKind::kInt, .help = "tokens from window to window (the feed's length)", .min = 1},
    {.name = "shift", .kind = KeyKind::kInt, .help = "tokens before the first window; 1 for the target of a language model", .min = 0},
};
constexpr KeySpec kInitKeys[] = {
    {.name = "strict", .kind = KeyKind::kBool, .fallback = "true", .help = "every trainable initializer must be found"},
};
constexpr KeySpec kFetchKeys[] = {
    {.name = "layout", .kind = KeyKind::kChoice, .fallback = "samples", .choices = "samples|steps", .help = "of eval values: joined by sample, or stacked by step"},
};

using enum ValueKind;
constexpr FlagSpec kFlags[] = {
    // Model
    {.name = "dim", .tools = kC | kO, .group = Group::kModel, .kind = kInt, .meta = "NAME=N", .help = "binds a symbolic dim; eval:NAME=N for evaluation", .repeatable = true, .naming = Naming::kRequired, .head_key = "size", .min = 1},
    {.name = "trainable", .tools = kC | kO, .group = Group::kModel, .meta = "GLOB", .help = "initializers to train", .repeatable = true, .head_key = "glob"},
    {.name = "freeze", .tools = kC | kO, .group = Group::kModel, .meta = "GLOB", .help = "initializers not to train", .repeatable = true, .head_key = "glob"},
    {.name = "untie", .tools = kC | kO, .group = Group::kModel, .kind = kChoiceOrText, .meta = "auto|none|GLOB", .help = "shared initializers that become one parameter per use; auto: those whose elements are all equal", .fallback = "auto", .choices = kUntie},
    {.name = "train-mode", .tools = kC | kO, .group = Group::kModel, .kind = kChoice, .meta = "train|preserve|frozen-eval", .help = "how BatchNormalization and Dropout run in training", .fallback = "train", .choices = kTrainModes},
    {.name = "bn-var", .tools = kC | kO, .group = Group::kModel, .kind = kChoice, .meta = "population|unbiased", .help = "running variance: ONNX's or PyTorch's", .fallback = "population", .choices = kBnVars},
    {.name = "forward-only", .tools = kC | kO, .group = Group::kModel, .kind = kSwitch, .help = "plan with just the eval graph"},
    {.name = "pad-to", .tools = kC | kO, .group = Group::kModel, .meta = "8|report", .help = "pad vocabulary, channels, linear dims", .built = kNotBuilt},
    {.name = "artifacts", .tools = kC, .group = Group::kModel, .kind = kPath, .meta = "DIR", .help = "ONNX Runtime training artifacts instead of a model; they come with loss and optimizer"},
    {.name = "init-from", .tools = kC, .group = Group::kModel, .kind = kPath, .meta = "FILE.onnx", .help = "weights for --artifacts, by initializer name; the plan holds them", .recipe = false},

    // Loss
    {.name = "loss", .tools = kC | kO, .group = Group::kLoss, .kind = kChoice, .meta = "KIND", .help = "what is minimised", .choices = kLosses, .keys = kLossKeys, .repeatable = true},
    {.name = "metric", .tools = kC | kO, .group = Group::kLoss, .kind = kChoice, .meta = "KIND", .help = "in train and eval logs", .choices = kMetrics, .keys = kMetricKeys, .repeatable = true},

    // Optimizer
    {.name = "optimizer", .tools = kC | kR | kO, .group = Group::kOptimizer, .kind = kChoice, .meta = "KIND", .help = "PyTorch's formulas, keys and defaults", .fallback = "sgd", .choices = kOptimizers, .keys = kOptimizerKeys},
    {.name = "lr", .tools = kC | kR | kO, .group = Group::kOptimizer, .kind = kNumber, .meta = "X", .help = "learning rate", .fallback = "1e-3", .min = 0},
    {.name = "lr-schedule", .tools = kC | kR | kO, .group = Group::kOptimizer, .kind = kChoice, .meta = "KIND", .help = "factor of lr over the applied steps", .fallback = "constant", .choices = kSchedules, .keys = kScheduleKeys},
    {.name = "no-decay", .tools = kC | kO, .group = Group::kOptimizer, .meta = "GLOB|1d", .help = "parameters without weight decay; 1d: all of rank 0 and 1; a group's weight_decay= wins", .repeatable = true, .head_key = "glob"},
    {.name = "param-group", .tools = kC | kR | kO, .group = Group::kOptimizer, .meta = "GLOB", .help = "other settings for some parameters; the first match wins", .keys = kGroupKeys, .repeatable = true, .head_key = "glob"},
    {.name = "clip-norm", .tools = kC | kR | kO, .group = Group::kOptimizer, .kind = kNumber, .meta = "X", .help = "clip gradients by their global norm", .min = 0},
    {.name = "clip-value", .tools = kC | kR | kO, .group = Group::kOptimizer, .kind = kNumber, .meta = "X", .help = "clip every gradient element to [-X, X]", .min = 0},
    {.name = "accumulate", .tools = kC | kO, .group = Group::kOptimizer, .kind = kInt, .meta = "K", .help = "micro-batches per update", .fallback = "1", .min = 1, .max = 1e6},

    // Precision
    {.name = "precision", .tools = kC | kO, .group = Group::kPrecision, .kind = kChoice, .meta = "fp32|bf16|fp16|fp64", .help = "of the training graph; fp16 scales the loss, fp64 is the oracle", .fallback = "bf16", .choices = kPrecisions},
    {.name = "policy", .tools = kC | kO, .group = Group::kPrecision, .kind = kChoiceOrPath, .meta = "NAME|FILE.yaml", .help = "which nodes run in low precision", .fallback = "torch-cuda", .choices = kPolicies},
    {.name = "loss-scale", .tools = kC | kR | kO, .group = Group::kPrecision, .kind = kChoiceOrNumber, .meta = "dynamic|off|NUMBER", .help = "auto: dynamic for fp16, else off", .fallback = "auto", .choices = kScales, .keys = kScaleKeys},
    {.name = "wgrad", .tools = kC | kO, .group = Group::kPrecision, .kind = kChoice, .meta = "low|fp32", .help = "parameter gradients: rounded as PyTorch does, or fp32 from the accumulators", .fallback = "low", .choices = kWgrads},
    {.name = "eval-precision", .tools = kC | kO, .group = Group::kPrecision, .kind = kChoice, .meta = "fp32|same", .help = "fp32: from the masters, equals the exported model", .fallback = "fp32", .choices = kEvalPrecisions},
    {.name = "calibrate", .tools = kC | kO, .group = Group::kPrecision, .kind = kPath, .meta = "DATA", .help = "value-range rules", .built = kNotBuilt},
    {.name = "cast-placement", .tools = kC | kO, .group = Group::kPrecision, .kind = kChoice, .meta = "policy|min-bytes", .help = "where casts stand", .choices = kPlacements, .built = kNotBuilt},
    {.name = "memory-limit", .tools = kC | kO, .group = Group::kPrecision, .meta = "SIZE", .help = "recompute to fit", .built = kNotBuilt},

    // Data
    {.name = "data", .tools = kR, .group = Group::kData, .kind = kData, .meta = "[NAME=]FILE|random|const", .help = "training data of a feed (.npy, .npz, idx, idx.gz, .bin tokens, text), or of all feeds (.npz)", .choices = kMadeUp, .keys = kDataKeys, .repeatable = true, .naming = Naming::kOptional, .head_key = "file"},
    {.name = "eval-data", .tools = kR, .group = Group::kData, .kind = kData, .meta = "[NAME=]FILE|random|const", .help = "evaluation data, likewise", .choices = kMadeUp, .keys = kDataKeys, .repeatable = true, .naming = Naming::kOptional, .head_key = "file"},
    {.name = "range", .tools = kR, .group = Group::kData, .kind = kRange, .meta = "a:b", .help = "training samples, of all feeds; also 90%:"},
    {.name = "eval-range", .tools = kR, .group = Group::kData, .kind = kRange, .meta = "a:b", .help = "evaluation samples; without --eval-data, of the training files"},
    {.name = "no-shuffle", .tools = kR, .group = Group::kData, .kind = kSwitch, .help = "samples in file order"},
    {.name = "seed", .tools = kR, .group = Group::kData, .kind = kInt, .meta = "N", .help = "of the sample order and of dropout", .fallback = "0", .min = 0},

    // Run
    {.name = "epochs", .tools = kR, .group = Group::kRun, .kind = kInt, .meta = "N", .help = "passes over the training data", .fallback = "1", .min = 0},
    {.name = "steps", .tools = kR, .group = Group::kRun, .kind = kInt, .meta = "N", .help = "updates attempted, instead of --epochs; 0 = evaluate only", .min = 0},
    {.name = "eval-every", .tools = kR, .group = Group::kRun, .kind = kInt, .meta = "N", .help = "steps between evaluations (default: after each epoch and at the end)", .min = 1},
    {.name = "eval-steps", .tools = kR, .group = Group::kRun, .kind = kInt, .meta = "N", .help = "batches per evaluation (default: all)", .min = 1},
    {.name = "device", .tools = kR, .group = Group::kRun, .meta = "cpu|cuda[:i]|null", .help = "where to run", .fallback = "cpu"},
    {.name = "threads", .tools = kR, .group = Group::kRun, .kind = kInt, .meta = "N", .help = "CPU threads (default: OMP_NUM_THREADS, else all cores)", .min = 1, .max = 4096},
    {.name = "deterministic", .tools = kR, .group = Group::kRun, .kind = kSwitch, .help = "results independent of the thread count, or a refusal"},
    {.name = "checkpoint-dir", .tools = kR, .group = Group::kRun, .kind = kPath, .meta = "DIR", .help = "where checkpoints go; one is written at the end", .head_key = "file"},
    {.name = "checkpoint-every", .tools = kR, .group = Group::kRun, .kind = kInt, .meta = "N", .help = "steps between checkpoints (default: only at the end)", .min = 1},
    {.name = "keep", .tools = kR, .group = Group::kRun, .kind = kInt, .meta = "N", .help = "checkpoints to keep", .fallback = "3", .min = 1},
    {.name = "resume", .tools = kR, .group = Group::kRun, .kind = kSwitch, .help = "go on from the newest checkpoint", .recipe = false},
    {.name = "init-from", .tools = kR, .group = Group::kRun, .kind = kPath, .meta = "FILE.{safetensors,onnx}", .help = "initial weights by initializer name", .keys = kInitKeys, .head_key = "file"},

    // Output
    {.name = "output", .tools = kC | kO, .group = Group::kOutput, .kind = kPath, .meta = "FILE", .help = "what to write", .recipe = false, .short_name = 'o'},
    {.name = "emit", .tools = kC, .group = Group::kOutput, .kind = kChoice, .meta = "plan|step|text|schedule", .help = "what -o receives; step: the training step as a standard ONNX model", .fallback = "plan", .choices = kEmits, .keys = kEmitKeys, .recipe = false},
    {.name = "keep", .tools = kC | kO, .group = Group::kOutput, .meta = "NAME", .help = "a value that must not be fused away, so that it can be fetched", .repeatable = true, .head_key = "name"},
    {.name = "export-model", .tools = kR, .group = Group::kOutput, .kind = kPath, .meta = "FILE.onnx", .help = "the trained model, in inference form", .head_key = "file"},
    {.name = "save-weights", .tools = kR, .group = Group::kOutput, .kind = kPath, .meta = "FILE.safetensors", .help = "the trained weights", .head_key = "file"},
    {.name = "log", .tools = kR, .group = Group::kOutput, .kind = kPath, .meta = "FILE.jsonl", .help = "one JSON object per step and evaluation", .head_key = "file"},
    {.name = "log-every", .tools = kR, .group = Group::kOutput, .kind = kInt, .meta = "N", .help = "steps between log lines", .fallback = "1", .min = 1},
    {.name = "fetch", .tools = kR, .group = Group::kOutput, .meta = "[train:|apply:|eval:]GLOB", .help = "values to save per step: outputs, states, grad:PARAM", .keys = kFetchKeys, .repeatable = true, .head_key = "glob"},
    {.name = "fetch-out", .tools = kR, .group = Group::kOutput, .kind = kPath, .meta = "FILE.npz", .help = "where they go", .keys = kFetchKeys, .head_key = "file"},
    {.name = "tensorboard", .tools = kR, .group = Group::kOutput, .kind = kPath, .meta = "DIR", .help = "event files", .built = kNotBuilt},
    {.name = "trace", .tools = kR, .group = Group::kOutput, .kind = kPath, .meta = "FILE.json", .help = "time line", .built = kNotBuilt},
    {.name = "report", .tools = kC | kR, .group = Group::kOutput, .kind = kPath, .meta = "FILE.{json,html}", .help = "report of the compilation or the run", .built = kNotBuilt},
    {.name = "explain", .tools = kC | kO, .group = Group::kOutput, .kind = kOptionalText, .meta = "[=NODE_GLOB]", .help = "why each node has its precision", .recipe = false},
    {.name = "profile", .tools = kR, .group = Group::kOutput, .kind = kOptionalPath, .meta = "[=FILE.json]", .help = "time per call: median, p90, p99, GFLOP/s, GB/s", .recipe = false},
    {.name = "diagnose", .tools = kR, .group = Group::kOutput, .meta = "overflow,underflow,precision", .help = "where numbers go wrong", .built = kNotBuilt},
    {.name = "info", .tools = kC | kR, .group = Group::kOutput, .kind = kSwitch, .help = "what the file holds", .recipe = false},
    {.name = "dump", .tools = kR, .group = Group::kOutput, .kind = kSwitch, .help = "every buffer and call of the plan", .recipe = false},
    {.name = "print-policy", .tools = kC, .group = Group::kOutput, .kind = kSwitch, .help = "the effective policy", .recipe = false},

    // General
    {.name = "recipe", .tools = kC, .group = Group::kGeneral, .kind = kPath, .meta = "FILE.yaml", .help = "settings of ampc and amprun", .recipe = false},
    {.name = "model", .tools = kC, .group = Group::kGeneral, .kind = kPath, .meta = "FILE.onnx", .help = "the model, when it is not an argument"},
    {.name = "print-config", .tools = kC | kR, .group = Group::kGeneral, .kind = kSwitch, .help = "the effective settings", .recipe = false},
    {.name = "quiet", .tools = kC | kR | kO, .group = Group::kGeneral, .kind = kSwitch, .help = "no notes, only errors and the closing line", .recipe = false, .short_name = 'q'},
    {.name = "verbose", .tools = kC | kR | kO, .group = Group::kGeneral, .kind = kSwitch, .help = "more", .recipe = false, .short_name = 'v'},
    {.name = "version", .tools = kC | kR | kO, .group = Group::kGeneral, .kind = kSwitch, .recipe = false},
    {.name = "help", .tools = kC | kR | kO, .group = Group::kGeneral, .kind = kSwitch, .recipe = false, .short_name = 'h'},

    // Debugging
    {.name = "passes", .tools = kO, .group = Group::kDebug, .meta = "a,b", .help = "passes to run, in this order", .recipe = false},
    {.name = "print-after", .tools = kC | kO, .group = Group::kDebug, .meta = "PASS", .help = "prints the module after a pass", .repeatable = true, .recipe = false},
    {.name = "print-changed", .tools = kC | kO, .group = Group::kDebug, .kind = kSwitch, .help = "prints the module after each pass that changed it", .recipe = false},
    {.name = "stop-after", .tools = kC | kO, .group = Group::kDebug, .meta = "PASS", .help = "stops there and prints the module", .recipe = false},
    {.name = "disable-pass", .tools = kC | kO, .group = Group::kDebug, .meta = "PASS", .help = "leaves a pass out", .repeatable = true, .recipe = false},
    {.name = "time-passes", .tools = kC | kO, .group = Group::kDebug, .kind = kSwitch, .help = "time and change per pass", .recipe = false},
    {.name = "verify-each", .tools = kC | kO, .group = Group::kDebug, .kind = kSwitch, .help = "verifies the module after each pass", .recipe = false},
    {.name = "list-passes", .tools = kC | kO, .group = Group::kDebug, .kind = kSwitch, .help = "the passes in order", .recipe = false},
    {.name = "reference", .tools = kR, .group = Group::kDebug, .kind = kSwitch, .help = "reference kernels only (slow)", .recipe = false},
};
// clang-format on

}  // namespace

std::span<const FlagSpec> AllFlags() { return kFlags; }

const FlagSpec* FindFlag(Tool tool, std::string_view name) {
  for (const FlagSpec& flag : kFlags) {
    if (flag.For(tool) && flag.name == name) return &flag;
  }
  return nullptr;
}

bool HasWord(std::string_view words, std::string_view word) {
  for (std::string_view w : Words(words)) {
    if (w == word) return true;
  }
  return false;
}

std::vector<std::string_view> Words(std::string_view words) {
  std::vector<std::string_view> out;
  while (!words.empty()) {
    size_t bar = words.find('|');
    out.push_back(words.substr(0, bar));
    words = bar == std::string_view::npos ? "" : words.substr(bar + 1);
  }
  return out;
}

const KeySpec* FindKey(const FlagSpec& flag, std::string_view head, std::string_view key) {
  for (const KeySpec& k : flag.keys) {
    if (k.name == key && (k.heads.empty() || HasWord(k.heads, head))) return &k;
  }
  return nullptr;
}

std::string_view Name(Tool tool) {
  switch (tool) {
    case Tool::kAmpc:
      return "ampc";
    case Tool::kAmprun:
      return "amprun";
    case Tool::kAmpcOpt:
      return "ampc-opt";
  }
  return "";
}

}  // namespace ampc
