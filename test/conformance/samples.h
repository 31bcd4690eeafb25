// SPDX-License-Identifier: Apache-2.0
#pragma once
// One table of samples for every row of the op tables. All conformance tests run over it:
// gradients, types and values against onnxruntime, and every kernel implementation.
//
// A sample says its operands once; Build() makes it a graph of one node in the element type under
// test (float64, float32, float16 or bfloat16). Random values come from one shuffled ladder per
// sample, so that no two are closer than a step: differences never cross a tie of a maximum. Ranges
// keep off the kinks of an op.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ops/op_def.h"

namespace ampc::conformance {

/// Values of the attribute "to" that stand for the element type under test and for its accumulation
/// type.
inline constexpr int64_t kToTested = -1, kToAcc = -2;

/// One operand.
struct Arg {
  enum class Kind : uint8_t {
    kTested,  ///< float of the type under test
    kAcc,     ///< float32; float64 when that is under test
    kFixed,   ///< the given dtype
    kSame,    ///< the same value as an earlier slot
    kLeftOut,
  };
  Kind kind = Kind::kTested;
  DType dtype = DType::kNone;
  Dims dims = {};
  std::vector<double> values =
      {};  ///< explicit; else random numbers of magnitude [low, high], of both signs or positive
  double low = 0.2, high = 1.7;
  bool both_signs = true;
  std::vector<double> avoid = {};  ///< random values keep a distance of 0.02 from these
  bool constant = false;           ///< a Constant node instead of a feed
  bool differentiate = false;
  size_t same = 0;

  Arg NoGrad() && { return differentiate = false, std::move(*this); }
  Arg Constant() && { return constant = true, differentiate = false, std::move(*this); }
  Arg Avoiding(std::vector<double> v) && { return avoid = std::move(v), std::move(*this); }
};

struct Sample {
  std::string op;  ///< "Add", "ai.ampc.Map"
  std::vector<Arg> args;
  Attrs attrs = {};
  size_t outputs = 1;
  uint32_t loss_outputs = ~0u;  ///< bit i: output i enters the loss of the gradient test
  /// Terms summed into one element, times what cancellation costs: scales the tolerances of sums.
  double terms = 1;
  bool types_only =
      false;           ///< the row is rewritten before lowering: only its types can be compared
  bool large = false;  ///< too large for differences: for the kernels' blocks, vectors and threads

  std::string_view domain() const {
    return op.starts_with("ai.ampc.") ? kOwnDomain : std::string_view();
  }
  std::string_view name() const {
    return std::string_view(op).substr(op.starts_with("ai.ampc.") ? 8 : 0);
  }
};

/// The table, family by family.
std::vector<Sample> AllSamples();
std::vector<Sample> ElementwiseSamples();
std::vector<Sample>
LayerSamples();  ///< matrix products, convolutions, pools, norms, softmax, losses
std::vector<Sample> MovementSamples();  ///< shapes, movement, reductions
std::vector<Sample> TrainingSamples();  ///< random ops, unscaling, optimizers
std::vector<Sample> LargeSamples();     ///< of any family

/// "Conv float[2,4,5] float[6,2,3] pads=[1,2]", for messages.
std::string Describe(const Sample& sample);

using Values = std::map<ir::ValueId, HostTensor>;

/// A sample in one element type: a module whose `train` graph holds the node.
struct Instance {
  std::unique_ptr<ir::Module> module;
  ir::NodeId node = ir::kNone;
  Values values;                        ///< of feeds and states
  std::vector<ir::ValueId> parameters;  ///< trainable states: what is differentiated
  ir::Graph& graph() const { return *module->train; }
};

/// `seed` chooses the random values.
Result<Instance> Build(const Sample& sample, DType tested, uint32_t seed = 1);

/// Adds the output "loss": the sum over the float outputs in `loss_outputs` of output * weights.
/// False when there is none.
enum class Weights : uint8_t { kRandom, kOnes };
Result<bool> AddLoss(Instance& instance, const Sample& sample, Weights weights = Weights::kRandom);

/// Adds the loss and the nodes of the backward pass, as training has them; the sample's node may
/// become its training form. Samples without a gradient stay as they are.
Status AddGradientNodes(Instance& instance, const Sample& sample);

/// Runs every node of a graph with the reference kernels and adds what they compute to `values`.
Status EvaluateGraph(const ir::Graph& graph, Values& values);

}  // namespace ampc::conformance
