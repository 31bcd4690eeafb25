// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plan: everything that amprun needs to train, as plain data. Written by the compiler, read by
// the runtime; the two meet only here and in kernels/kernel.h.
//
// A plan has states (tensors that outlive a program run), feeds, and programs. A program is a list
// of kernel calls over tensors; a tensor is a view (form + byte offset) of a buffer; a buffer lies
// in a state, in a feed, in the constants, or in the program's block at an offset that the memory
// planner chose. Calls run in order; states are only written by calls (the compiler places an
// updated state in its own buffer where nothing reads the old value later, else appends a copy).
//
// Invariants (checked by VerifyProgram when a plan is written and when it is read):
//   P0 states, feeds, exports and settings are consistent
//   P1 every index is in range and every kernel is known     P4 no call writes a constant or a feed
//   P2 every tensor fits its buffer                           P5 write-after-read: no call
//   overwrites bytes of a buffer that P3 every block tensor is written before it is read a later
//   call reads as another tensor's value P6 two block buffers with overlapping lifetimes do not
//   overlap in memory

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/attrs.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

namespace ampc::plan {

/// Where a buffer lies.
enum class Space : uint8_t {
  kBlock = 0,     ///< in the program's block, at Buffer::offset
  kState = 1,     ///< the memory of state Buffer::index
  kFeed = 2,      ///< the memory of feed Buffer::index
  kConstant = 3,  ///< Plan::constants[Buffer::index]
};

struct Buffer {
  Space space = Space::kBlock;
  int32_t index = 0;  ///< of the state, feed or constant
  int64_t bytes = 0;
  int64_t offset = 0;  ///< in the block; 64-byte aligned
  int32_t first = 0;   ///< first call that writes it (block buffers)
  int32_t last =
      0;  ///< last call that reads or writes it; a fetched output lives to the end (calls.size())
};

/// A named value: a typed view of a buffer.
struct Tensor {
  std::string name;  ///< value name of the module; unique in its program
  TensorDesc desc;
  int32_t buffer = 0;
  int64_t byte_offset = 0;  ///< in the buffer
  /// A tensor that no call writes is a view: of `view_of`, a tensor in the same memory whose value
  /// it shows; or (-1) of what its memory holds when the program starts; or, where some call writes
  /// its buffer, of what lay there at its first read. Two buffers may lie in one state: reads of
  /// the old value in one, the next value in the other.
  int32_t view_of = -1;
};

struct Call {
  std::string kernel;
  Attrs params;
  std::vector<int32_t> inputs;   ///< tensor indices; -1 = optional operand left out
  std::vector<int32_t> outputs;  ///< tensor indices; -1 = optional output not wanted
  std::string loc;               ///< label of the source node it comes from ("grad of /fc1/Gemm")
};

/// A scalar or tensor that the host reads after a run: loss, metrics, scale, …
struct Output {
  std::string name;  ///< "loss", "accuracy_sum", "scale", …
  int32_t tensor = 0;
};

struct Program {
  std::string name;  ///< "step" (train and apply in one, K = 1), "train", "apply", "eval"
  std::vector<Buffer> buffers;
  std::vector<Tensor> tensors;
  std::vector<Call> calls;
  std::vector<Output> outputs;
  int64_t block_bytes = 0;  ///< what the planner needs
  int64_t bound_bytes = 0;  ///< largest sum of bytes of the buffers that are live at one call
};

enum class Role : uint8_t {
  kWeight,
  kLowCopy,
  kMoment,
  kStatistic,
  kAccumulator,
  kScaler,
  kCounter,
  kRng,
  kHyper,
  kConstant
};
std::string_view Name(Role role);

/// Initial value of a state.
struct Initial {
  enum class Kind : uint8_t {
    kFill,     ///< every element = fill
    kBytes,    ///< Plan::weights: offset, length
    kDerived,  ///< cast of another state; in neither plan nor checkpoint, rebuilt at load
    kAuto,     ///< a hyper that amprun must fill (schedule's total steps); fill holds NaN
  };
  Kind kind = Kind::kFill;
  double fill = 0;
  int64_t offset = 0, length = 0;  ///< in the plan's weight section
  uint32_t crc = 0;                ///< CRC-32C of the bytes
  int32_t derived_from = -1;       ///< state index
};

struct State {
  std::string name;
  Role role = Role::kWeight;
  TensorDesc desc;  ///< always row-major
  Initial initial;
  std::string source;  ///< source initializer for weights and statistics, "" otherwise
};

struct Feed {
  enum class Kind : uint8_t {
    kInput,   ///< an input of the model
    kTarget,  ///< read by the loss only
    kValid,   ///< float [batch] of the eval program: 1 for real samples, 0 for padding; filled by
              ///< the runtime
  };
  std::string name;
  Kind kind = Kind::kInput;
  TensorDesc desc;      ///< dims[0] is the batch
  std::string program;  ///< "" = every program; "eval" or "train" when the dims differ per program
  /// > 0: integers must lie in [0, limit) or equal `ignore` (class labels, token ids): checked
  /// while filling.
  int64_t limit = 0;
  bool from_end = false;  ///< or in [-limit, 0): they count from the end
  bool has_ignore = false;
  int64_t ignore = 0;
};

/// How a source initializer is rebuilt from states when the trained model is exported.
struct Export {
  enum class Inverse : uint8_t { kIdentity, kRound };  ///< kRound: to the source's 16-bit type
  std::string initializer;
  DType dtype = DType::kFloat32;
  Dims dims;
  int32_t state = -1;  ///< -1: the bytes are in the plan's weight section unchanged
  Inverse inverse = Inverse::kIdentity;
  int64_t offset = 0, length = 0;  ///< for state == -1
  uint32_t crc = 0;                ///< CRC-32C of those bytes
  /// So many bytes of the source model come after it: initializers keep their order.
  int64_t rest = 0;
  std::string notes;  ///< serialised fields of the TensorProto beside type, name and data
};

/// A named scalar that amprun may override: "lr" -> hyper state.
struct Setting {
  std::string name;  ///< flag or key: "lr", "weight_decay", "clip_norm", "loss_scale.init_scale", …
  int32_t state = 0;
};

struct Plan {
  std::string producer;  ///< "ampc 0.1.0"
  std::vector<State> states;
  std::vector<Feed> feeds;
  std::vector<HostTensor> constants;
  std::vector<Program> programs;  ///< step | train + apply; and eval
  std::vector<Export> exports;
  std::vector<Setting> settings;
  int64_t accumulate = 1;                ///< micro-batches per update
  std::string precision;                 ///< fp32, bf16, fp16, fp64
  std::string policy_name, policy_text;  ///< effective policy
  uint64_t policy_hash = 0;
  std::string recipe;        ///< YAML; file names relative to the plan
  std::string config;        ///< YAML of the effective compile settings (--print-config)
  std::string source_model;  ///< serialised ModelProto without weight bytes, inference form
  std::string source_name;   ///< file name of the model
  int64_t max_skips = 50;
  /// Weight bytes: where they come from when writing, where they lie when read.
  std::shared_ptr<class WeightSection> weights;

  const Program* Find(std::string_view program) const;
};

/// Where the bytes of `Initial::kBytes` come from. In the compiler: ranges of the source's files or
/// memory, copied once when the plan is written. In the runtime: the mapped plan file.
class WeightSection {
 public:
  virtual ~WeightSection() = default;
  virtual int64_t size() const = 0;
  /// Copies [offset, offset + out.size()) of the section.
  virtual Status Read(int64_t offset, std::span<std::byte> out) const = 0;
  /// True when `crc` of the ranges is set, so that whoever uses a range must check it (ReadWeight
  /// does).
  virtual bool checksummed() const { return false; }
};

/// Reads one range into `out` and verifies its checksum where there is one. `name` is for the
/// message.
Status ReadWeight(const Plan& plan, int64_t offset, uint32_t crc, std::string_view name,
                  std::span<std::byte> out);

/// Checks P1..P6 on one program.
Status VerifyProgram(const Plan& plan, const Program& program);
/// Checks what stands outside of programs (P0: indices, sizes, unique names), then every program.
Status VerifyPlan(const Plan& plan);

/// What can be read of a plan file of any format version.
struct PlanInfo {
  uint32_t format = 0;
  std::string producer;
  bool readable = false;  ///< this version reads the format
};
Result<PlanInfo> ReadPlanInfo(const std::string& path);

/// Identifies the plan in checkpoints: a hash of everything in its header and of its weights'
/// checksums.
uint64_t Fingerprint(const Plan& plan);

/// Writes atomically: temporary, flush, rename. CRCs are computed here.
Status WritePlan(const Plan& plan, const std::string& path);
/// Reads and verifies; weights stay mapped. A newer format, a bad checksum, an offset outside its
/// buffer or an unknown kernel is refused in one sentence naming both sides.
Result<Plan> ReadPlan(const std::string& path);

}  // namespace ampc::plan
