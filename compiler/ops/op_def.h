// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an op is. Every fact about an op stands in one row of its op set's table
// (compiler/ops/*.cc); passes read rows and hold no op names.
//
// Standard ops (domain "") are kept in one canonical opset (kCanonicalOpset): the importer rewrites
// older and newer forms. Their types come from the ONNX library's schemas; own ops (domain
// kOwnDomain) bring an inference function and a body in standard ONNX that defines their meaning.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"

namespace ampc {

inline constexpr int kCanonicalOpset = 23;
inline constexpr std::string_view kOwnDomain = "ai.ampc";

namespace ir {
class Builder;
}

/// How autocast treats an op.
enum class CastClass : uint8_t {
  kLow,     ///< float operands are cast to the low dtype
  kFp32,    ///< float operands are cast to fp32
  kWidest,  ///< float operands are cast to the widest among them
  kFollow,  ///< float operands are cast to the dtype of slot 0
  kNever,   ///< refused: PyTorch bans it
};

/// One class per built-in policy; the rows write {.cuda = …, .cpu = …}.
struct CastClasses {
  CastClass cuda = CastClass::kFollow;
  CastClass cpu = CastClass::kFollow;
};
inline constexpr CastClasses kLowClass{CastClass::kLow, CastClass::kLow};
inline constexpr CastClasses kFp32Class{CastClass::kFp32, CastClass::kFp32};
inline constexpr CastClasses kWidestClass{CastClass::kWidest, CastClass::kWidest};
inline constexpr CastClasses kFollowClass{CastClass::kFollow, CastClass::kFollow};
/// fp32 under PyTorch's CUDA policy, follows its input under the CPU policy (softmax, exp, pow,
/// norms, sum, …).
inline constexpr CastClasses kFp32OnCuda{CastClass::kFp32, CastClass::kFollow};

/// Number of operands; the last one repeats when max is kVariadic.
struct Arity {
  int min = 1, max = 1;
  constexpr Arity(int n) : min(n), max(n) {}  // NOLINT: implicit by design, `.in = 2`
  constexpr Arity(int lo, int hi) : min(lo), max(hi) {}
};
inline constexpr int kVariadic = 1 << 20;

struct Traits {
  bool constant = false;  ///< Constant: value in attribute "value"
  bool movement = false;  ///< moves elements of slot 0 unchanged: casts can be hoisted through it
  bool view = false;      ///< output 0 has the bytes of input 0 in the same order
  /// The result depends on types, not on values: folds even on trainable values.
  bool type_only = false;
  bool elementwise = false;       ///< has `expr`; may join a fused group
  bool cast = false;              ///< converts the dtype of slot 0, nothing else
  bool random = false;            ///< never merged, never folded
  bool any_layout = false;        ///< works on channels-last operands; elementwise ops do by nature
  bool channels = false;          ///< its kernels want channels-last operands (channel_slots)
  bool reads_any_layout = false;  ///< takes channels-last operands, gives row-major results
  /// Its kernel applies `post` of the op behind it, before the one rounding.
  bool epilogue = false;
  /// Reads float operands of any dtype: a widening cast before it is not needed.
  bool widens = false;
  /// Attribute "to": output 0 may be fp32 although the operands are low (parameter gradients).
  bool wide_output = false;
  /// x times slot 1: with a parameter there it is a linear layer, and a parameter vector that the
  /// op behind adds (`adds`) is its bias.
  bool product = false;
  bool adds = false;         ///< x0 + x1
  bool probability = false;  ///< its results lie close to 1, or 0: in 16 bits they are just that
  bool logarithm = false;    ///< of a probability it shows how close
  bool arithmetic = false;   ///< a one-element constant operand is a Python scalar, not a parameter
  /// Slot 0 is the loss scale, slot i > 0 a gradient that output i - 1 is, unscaled.
  bool unscale = false;
};

// ---- types

struct InferContext {
  const Attrs& attrs;
  std::vector<const ir::TensorType*> inputs;  ///< null = left out
  std::vector<const HostTensor*> constants;   ///< value of constant inputs, else null
  std::vector<ir::TensorType> outputs;        ///< to be filled; one per wanted or possible output

  const ir::TensorType& in(size_t i) const { return *inputs[i]; }
  bool has(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
};
using InferFn = Status (*)(InferContext&);
/// Output 0 has the type of slot 0.
Status InferSame(InferContext&);
/// Output 0 has the dims of attribute "dims", and the dtype of attribute "to" or of slot 0.
Status InferFromDims(InferContext&);

/// What a node of a standard op may not be, where ONNX's own inference does not look (it computes
/// output shapes and takes the rest on trust). Null inputs are left out. Errors are E0107.
using CheckFn = Status (*)(const Attrs&, std::span<const ir::TensorType* const> inputs);

/// A negative axis counts from the end.
constexpr int64_t NormalAxis(int64_t axis, size_t rank) {
  return axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
}

/// E0107 when an input of that rank has no such axis.
inline Status CheckAxis(int64_t axis, size_t rank) {
  const int64_t normal = NormalAxis(axis, rank);
  if (normal >= 0 && normal < static_cast<int64_t>(rank)) return {};
  return BadInput("E0107", "axis {} of an input of rank {}", axis, rank);
}
/// NormalAxis of one that is there.
inline Result<int64_t> CheckedAxis(int64_t axis, size_t rank) {
  AMPC_TRY(CheckAxis(axis, rank));
  return NormalAxis(axis, rank);
}

// ---- gradients

/// What a gradient rule sees of one node. Rules are written with the builder: they read x(i), y(i),
/// dy(i) and Set(i, dx).
class GradContext {
 public:
  ir::Builder& b;
  const ir::Node& node;  ///< a copy: the graph's own moves while the rule adds nodes

  GradContext(ir::Builder& builder, ir::Graph& graph, ir::NodeId id,
              std::vector<ir::ValueId> output_grads, std::vector<bool> needs);
  ir::Graph& graph() const { return graph_; }
  const Attrs& attrs() const { return node.attrs; }
  ir::ValueId x(size_t i) const { return i < node.inputs.size() ? node.inputs[i] : ir::kNone; }
  ir::ValueId y(size_t i = 0) const {
    return i < node.outputs.size() ? node.outputs[i] : ir::kNone;
  }
  /// Gradient of output i in the output's dtype; kNone when nothing flows there.
  ir::ValueId dy(size_t i = 0) const {
    return i < output_grads_.size() ? output_grads_[i] : ir::kNone;
  }
  bool Needs(size_t i) const { return i < needs_.size() && needs_[i]; }
  const ir::TensorType& type(ir::ValueId v) const { return graph_.type(v); }
  /// Gradient of input i. Broadcast axes are summed, the dtype is brought to the input's.
  void Set(size_t i, ir::ValueId dx);
  const std::vector<ir::ValueId>& result() const { return grads_; }

 private:
  ir::Node node_;
  ir::Graph& graph_;
  std::vector<ir::ValueId> output_grads_;
  std::vector<bool> needs_;
  std::vector<ir::ValueId> grads_;
};
using GradFn = Status (*)(GradContext&);
/// For ops whose outputs are constant by definition (comparisons, Shape, ArgMax, …): gradients stop
/// here.
Status NoGradient(GradContext&);

// ---- lowering

/// A tensor while lowering: an index into the tensors of the program that is being made; kNone =
/// left out.
using Operand = int32_t;

/// What a lowering rule sees of one node: it emits calls, or makes an output a view of an input.
class LowerContext {
 public:
  virtual ~LowerContext() = default;
  virtual const ir::Graph& graph() const = 0;
  virtual const ir::Node& node() const = 0;
  const Attrs& attrs() const { return node().attrs; }
  size_t num_inputs() const { return node().inputs.size(); }
  size_t num_outputs() const { return node().outputs.size(); }
  virtual Operand in(size_t i) const = 0;   ///< kNone when left out
  virtual Operand out(size_t i) const = 0;  ///< kNone when not wanted
  virtual const TensorDesc& desc(Operand t) const = 0;
  /// A temporary of this node.
  virtual Operand Temp(TensorDesc desc) = 0;
  /// Another form of the same bytes.
  virtual Operand View(Operand base, TensorDesc desc, int64_t byte_offset = 0) = 0;
  /// `in_place`: pairs (input, output) that may share memory, for kernels over lists of tensors;
  /// others have them in kernels.def.
  virtual void Call(std::string_view kernel, Attrs params, std::vector<Operand> inputs,
                    std::vector<Operand> outputs,
                    std::vector<std::pair<int, int>> in_place = {}) = 0;
  /// Output i is `source` seen with the output's form (same bytes); no call. Not after out(i),
  /// which gives it memory of its own.
  virtual void Alias(size_t i, Operand source) = 0;
  /// Value of a constant input, or null.
  const HostTensor* Constant(size_t i) const {
    return i < node().inputs.size() ? graph().ConstantOf(node().inputs[i]) : nullptr;
  }
};
using LowerFn = Status (*)(LowerContext&);

// ---- the row

struct OpDef;
/// Types and attributes of the node for which a body is written.
struct BodyContext {
  const OpDef& op;
  const Attrs& attrs;
  std::vector<const ir::TensorType*> inputs;
  std::vector<const ir::TensorType*> outputs;
};
/// An own op's meaning in standard ONNX: statements of ONNX text over inputs i0, i1, … and outputs
/// o0, o1, …, all in the types given. Floats are computed in fp32 (double for double) and rounded
/// once at the end.
using BodyFn = Result<std::string> (*)(const BodyContext&);

/// `by` stands where output 0 of the node stood, under its name; the node goes.
void TakePlace(ir::Graph& graph, ir::NodeId id, ir::ValueId by);
/// Rewrites the node into the variant with the outputs that its gradient wants, in place; `train`
/// only.
using TrainingFormFn = Status (*)(ir::Graph&, ir::NodeId, ir::Builder&);

/// How normalisations and random ops behave: --train-mode for the train graph, kInference for eval.
struct ModeOptions {
  enum class Mode : uint8_t { kTrain, kPreserve, kFrozenEval, kInference };
  Mode mode = Mode::kTrain;
  bool bn_unbiased = false;                   ///< running variance as PyTorch keeps it
  std::vector<std::string>* notes = nullptr;  ///< what the user should know
};
/// Puts one node into a mode: replaces it, wires statistics to their next values, or removes it
/// (identity).
using ModeFn = Status (*)(ir::Graph&, ir::NodeId, ir::Builder&, const ModeOptions&);

// ---- random numbers: one state for all, a stream per node that draws (kernels/philox.h)

/// The module's random state, int64[2] {seed, index of the micro-batch}; added when it has none.
ir::StateId RngState(ir::Module& module);

/// Streams are hashes of names: two that collide are told apart, in graph order.
void SeparateStreams(ir::Graph& graph);

/// Where the graph draws, its random state goes on by one micro-batch.
Status CountDraws(ir::Graph& graph);

struct OpDef {
  std::string_view domain = {};  ///< "" or kOwnDomain
  std::string_view name = {};
  int since = 1;  ///< schema version in the canonical opset; shown in messages
  Arity in = 1, out = 1;

  // Facts about single inputs and outputs: bit i of a set stands for slot i.
  /// May be left out although later inputs are there (own ops).
  uint32_t optional_slots = 0;
  CastClasses cast = kFollowClass;
  /// Stay fp32 in low precision (statistics, scales); the policy can't override it.
  uint32_t fp32_slots = 0;
  /// Outputs that are fp32 whatever the dtype of slot 0 (for messages; types come from inference).
  uint32_t fp32_outputs = 0;
  /// > 0: the slot whose integers index the axis `axis` of slot 0.
  int index_slot = 0;
  /// Running statistics: states, never parameters.
  uint32_t statistic_slots = 0;
  /// Numbers that set the op up, not data: no gradient reaches them.
  uint32_t no_gradient_slots = 0;
  /// Have the channel layout (any_layout, channels); elementwise: all.
  uint32_t channel_slots = 0;
  uint32_t channel_outputs = 0;

  /// Name as an epilogue ("relu"): a unary op that another kernel can apply to its result.
  std::string_view post = {};
  CheckFn check = nullptr;  ///< standard ops only
  /// Own ops; standard ops whose schema in ONNX has no inference, or one that leaves cases out.
  InferFn infer = nullptr;
  GradFn grad = nullptr;  ///< null: a gradient that must flow through is an error
  TrainingFormFn training = nullptr;
  ModeFn mode = nullptr;    ///< null: behaves the same in training and inference
  LowerFn lower = nullptr;  ///< null: an earlier pass must have rewritten the op
  /// Own ops; standard ops whose fp32 slots ONNX wants in slot 0's dtype (KeepsFp32): types are
  /// inferred as if they had it, and a node that keeps fp32 is exported as its body.
  BodyFn body = nullptr;

  // Elementwise ops.
  /// Program over x0.., attributes as $name (kernels/expr.h).
  std::string_view expr = {};
  /// Gradient of input i over x0.., y, dy; "" = none.
  std::string_view grad_expr[3] = {{}, {}, {}};
  Traits traits = {};
};

/// Whether a set of slots (bit i: slot i) has slot i.
constexpr bool HasSlot(uint32_t slots, size_t i) { return i < 32 && (slots >> i & 1) != 0; }

/// True for an output that a node may lack (kNone). Beyond the least number they are optional, but
/// not in a list of any number: each place in it counts.
constexpr bool MayLackOutput(const OpDef& op, size_t i) {
  return op.out.max < kVariadic && i >= static_cast<size_t>(op.out.min);
}

/// Row of an op, or null. One row per (domain, name).
const OpDef* FindOp(std::string_view domain, std::string_view name);
/// All rows, table by table.
std::vector<const OpDef*> AllOps();

// The tables, joined in registry.cc.
std::span<const OpDef> ElementwiseOps();
std::span<const OpDef> MatmulOps();
std::span<const OpDef> ConvOps();
std::span<const OpDef> PoolOps();
std::span<const OpDef> ResizeOps();
std::span<const OpDef> GridSampleOps();
std::span<const OpDef> NormOps();
std::span<const OpDef> RnnOps();
std::span<const OpDef> LayerNormOps();
std::span<const OpDef> NormMapOps();
std::span<const OpDef> SoftmaxOps();
std::span<const OpDef> AttentionOps();
std::span<const OpDef> LossOps();
std::span<const OpDef> ShapeOps();
std::span<const OpDef> MovementOps();
std::span<const OpDef> IndexingOps();
std::span<const OpDef> AlongAxisOps();
std::span<const OpDef> ReduceOps();
std::span<const OpDef> RandomOps();
std::span<const OpDef> TrainingOps();

}  // namespace ampc
