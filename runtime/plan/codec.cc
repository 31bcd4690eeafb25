// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/codec.h"

#include <algorithm>
#include <climits>

#include <google/protobuf/arena.h>

#include "runtime/plan/plan.pb.h"

namespace ampc::plan {
namespace {

// ---- enumerators: one table each, read in both directions ---------------------------------------

template <typename Ours, typename Theirs>
struct EnumRow {
  Ours ours;
  Theirs theirs;
};

// clang-format off
constexpr EnumRow<Layout, pb::Layout> kLayouts[] = {
    {Layout::kRowMajor, pb::LAYOUT_ROW_MAJOR}, {Layout::kChannelsLast, pb::LAYOUT_CHANNELS_LAST}};
constexpr EnumRow<Space, pb::Space> kSpaces[] = {
    {Space::kBlock, pb::SPACE_BLOCK}, {Space::kState, pb::SPACE_STATE},
    {Space::kFeed, pb::SPACE_FEED}, {Space::kConstant, pb::SPACE_CONSTANT}};
constexpr EnumRow<Role, pb::Role> kRoles[] = {
    {Role::kWeight, pb::ROLE_WEIGHT}, {Role::kLowCopy, pb::ROLE_LOW_COPY}, {Role::kMoment, pb::ROLE_MOMENT},
    {Role::kStatistic, pb::ROLE_STATISTIC}, {Role::kAccumulator, pb::ROLE_ACCUMULATOR},
    {Role::kScaler, pb::ROLE_SCALER}, {Role::kCounter, pb::ROLE_COUNTER}, {Role::kRng, pb::ROLE_RNG},
    {Role::kHyper, pb::ROLE_HYPER}, {Role::kConstant, pb::ROLE_CONSTANT}};
constexpr EnumRow<Feed::Kind, pb::FeedKind> kFeedKinds[] = {
    {Feed::Kind::kInput, pb::FEED_INPUT}, {Feed::Kind::kTarget, pb::FEED_TARGET}, {Feed::Kind::kValid, pb::FEED_VALID}};
constexpr EnumRow<Export::Inverse, pb::Inverse> kInverses[] = {
    {Export::Inverse::kIdentity, pb::INVERSE_IDENTITY}, {Export::Inverse::kRound, pb::INVERSE_ROUND}};
// clang-format on

template <typename Ours, typename Theirs, size_t N>
Theirs Encode(const EnumRow<Ours, Theirs> (&table)[N], Ours value) {
  for (const auto& row : table) {
    if (row.ours == value) return row.theirs;
  }
  return static_cast<Theirs>(0);
}

template <typename Ours, typename Theirs, size_t N>
Status Decode(const EnumRow<Ours, Theirs> (&table)[N], Theirs value, std::string_view what,
              Ours* out) {
  for (const auto& row : table) {
    if (row.theirs == value) {
      *out = row.ours;
      return {};
    }
  }
  return BadInput("E0644", "the plan's header holds {} for {}, which this version does not know",
                  static_cast<int>(value), what);
}

// ---- encoding -----------------------------------------------------------------------------------

void Encode(const TensorDesc& in, pb::Desc* out) {
  out->set_dtype(static_cast<int>(in.dtype));
  out->mutable_dims()->Assign(in.dims.begin(), in.dims.end());
  out->set_layout(Encode(kLayouts, in.layout));
}

void Encode(const HostTensor& in, pb::HostTensor* out) {
  out->set_dtype(static_cast<int>(in.dtype));
  out->mutable_dims()->Assign(in.dims.begin(), in.dims.end());
  out->set_data(in.data.data(), in.data.size());
}

struct AttrEncoder {
  pb::Attr* out;
  void operator()(int64_t v) const { out->set_int_(v); }
  void operator()(double v) const { out->set_float_(v); }
  void operator()(const std::string& v) const { out->set_string(v); }
  void operator()(const std::vector<int64_t>& v) const {
    out->mutable_ints()->mutable_values()->Assign(v.begin(), v.end());
  }
  void operator()(const std::vector<double>& v) const {
    out->mutable_floats()->mutable_values()->Assign(v.begin(), v.end());
  }
  void operator()(const std::vector<std::string>& v) const {
    out->mutable_strings()->mutable_values()->Assign(v.begin(), v.end());
  }
  void operator()(const std::shared_ptr<const HostTensor>& v) const {
    Encode(*v, out->mutable_tensor());
  }
};

void Encode(const Call& in, pb::Call* out) {
  out->set_kernel(in.kernel);
  for (const Attrs::Entry& entry : in.params.entries()) {
    pb::Attr* attr = out->add_params();
    attr->set_name(entry.first);
    std::visit(AttrEncoder{attr}, entry.second);
  }
  out->mutable_inputs()->Assign(in.inputs.begin(), in.inputs.end());
  out->mutable_outputs()->Assign(in.outputs.begin(), in.outputs.end());
  out->set_loc(in.loc);
}

void Encode(const Buffer& in, pb::Buffer* out) {
  out->set_space(Encode(kSpaces, in.space));
  out->set_index(in.index);
  out->set_bytes(in.bytes);
  out->set_offset(in.offset);
  out->set_first(in.first);
  out->set_last(in.last);
}

void Encode(const Tensor& in, pb::Tensor* out) {
  out->set_name(in.name);
  Encode(in.desc, out->mutable_desc());
  out->set_buffer(in.buffer);
  out->set_byte_offset(in.byte_offset);
  out->set_view_of(in.view_of);
}

void Encode(const Output& in, pb::Output* out) {
  out->set_name(in.name);
  out->set_tensor(in.tensor);
}

void Encode(const Setting& in, pb::Setting* out) {
  out->set_name(in.name);
  out->set_state(in.state);
}

void Encode(const State& in, const WeightIndex& index, pb::State* out) {
  out->set_name(in.name);
  out->set_role(Encode(kRoles, in.role));
  Encode(in.desc, out->mutable_desc());
  out->set_source(in.source);
  pb::Initial* initial = out->mutable_initial();
  switch (in.initial.kind) {
    case Initial::Kind::kFill:
      initial->set_fill(in.initial.fill);
      break;
    case Initial::Kind::kBytes:
      initial->set_weight(index.at({in.initial.offset, in.initial.length}));
      break;
    case Initial::Kind::kDerived:
      initial->set_derived_from(in.initial.derived_from);
      break;
    case Initial::Kind::kAuto:
      initial->set_automatic(true);
      break;
  }
}

void Encode(const Feed& in, pb::Feed* out) {
  out->set_name(in.name);
  out->set_kind(Encode(kFeedKinds, in.kind));
  Encode(in.desc, out->mutable_desc());
  out->set_program(in.program);
  out->set_limit(in.limit);
  out->set_from_end(in.from_end);
  out->set_has_ignore(in.has_ignore);
  out->set_ignore(in.ignore);
}

void Encode(const Export& in, const WeightIndex& index, pb::Export* out) {
  out->set_initializer(in.initializer);
  out->set_dtype(static_cast<int>(in.dtype));
  out->mutable_dims()->Assign(in.dims.begin(), in.dims.end());
  out->set_inverse(Encode(kInverses, in.inverse));
  if (in.state >= 0) {
    out->set_state(in.state);
  } else {
    out->set_weight(index.at({in.offset, in.length}));
  }
  out->set_rest(in.rest);
  out->set_notes(in.notes);
}

// The header is written part by part: as messages it would take several times the memory of the
// plan. A message is the concatenation of its fields, so each element is serialised in a message of
// its own that holds nothing else.

/// Appends one field per item. `part` is empty before and after.
template <typename Items, typename Message, typename Element, typename... Context>
void AppendAll(const Items& items, Message& part, Element* (Message::*add)(), std::string* out,
               const Context&... context) {
  for (const auto& item : items) {
    if constexpr (sizeof...(context) == 0) {
      Encode(item, (part.*add)());
    } else {
      Encode(item, context..., (part.*add)());
    }
    part.AppendToString(out);
    part.Clear();
  }
}

/// Appends a program as one field of the header.
void AppendProgram(const Program& in, std::string* out) {
  const size_t begin = out->size();
  pb::Program part;
  part.set_name(in.name);
  part.AppendToString(out);
  part.Clear();
  AppendAll(in.buffers, part, &pb::Program::add_buffers, out);
  AppendAll(in.tensors, part, &pb::Program::add_tensors, out);
  AppendAll(in.calls, part, &pb::Program::add_calls, out);
  AppendAll(in.outputs, part, &pb::Program::add_outputs, out);
  part.set_block_bytes(in.block_bytes);
  part.set_bound_bytes(in.bound_bytes);
  part.AppendToString(out);
  // Now that its length is known: number and wire type (2, bytes) of the field, and the length.
  std::string tag(1, static_cast<char>(pb::Header::kProgramsFieldNumber << 3 | 2));
  for (size_t left = out->size() - begin; left != 0 || tag.size() == 1; left >>= 7)
    tag += static_cast<char>((left & 0x7F) | (left > 0x7F ? 0x80 : 0));
  out->insert(begin, tag);
}

// ---- decoding -----------------------------------------------------------------------------------

Status Decode(int32_t in, std::string_view what, DType* out) {
  if (!IsKnownDType(in)) {
    return BadInput("E0644",
                    "the plan's header holds data type {} for {}, which this version does not know",
                    in, what);
  }
  *out = static_cast<DType>(in);
  return {};
}

Status Decode(const pb::Desc& in, std::string_view what, TensorDesc* out) {
  AMPC_TRY(Decode(in.dtype(), what, &out->dtype));
  AMPC_TRY(Decode(kLayouts, in.layout(), what, &out->layout));
  out->dims.assign(in.dims().begin(), in.dims().end());
  if (!CheckedNumElements(out->dims, SizeOf(out->dtype))) {
    return BadInput("E0644", "the dims {} of '{}' are negative or too large", ToString(out->dims),
                    what);
  }
  return {};
}

Status Decode(const pb::HostTensor& in, std::string_view what, HostTensor* out) {
  AMPC_TRY(Decode(in.dtype(), what, &out->dtype));
  out->dims.assign(in.dims().begin(), in.dims().end());
  const auto elements = CheckedNumElements(out->dims, SizeOf(out->dtype));
  const int64_t bytes = elements.value_or(-1) * SizeOf(out->dtype);
  if (!elements || bytes != static_cast<int64_t>(in.data().size())) {
    return BadInput("E0644", "{} has {} bytes of data, but its dims {} of {} want {}", what,
                    in.data().size(), ToString(out->dims), Name(out->dtype), bytes);
  }
  const auto* data = reinterpret_cast<const std::byte*>(in.data().data());
  out->data.assign(data, data + in.data().size());
  return {};
}

Status Decode(const pb::Attr& in, Attrs* out) {
  switch (in.value_case()) {
    case pb::Attr::kInt:
      out->Set(in.name(), in.int_());
      return {};
    case pb::Attr::kFloat:
      out->Set(in.name(), in.float_());
      return {};
    case pb::Attr::kString:
      out->Set(in.name(), in.string());
      return {};
    case pb::Attr::kInts:
      out->Set(in.name(),
               std::vector<int64_t>(in.ints().values().begin(), in.ints().values().end()));
      return {};
    case pb::Attr::kFloats:
      out->Set(in.name(),
               std::vector<double>(in.floats().values().begin(), in.floats().values().end()));
      return {};
    case pb::Attr::kStrings:
      out->Set(in.name(), std::vector<std::string>(in.strings().values().begin(),
                                                   in.strings().values().end()));
      return {};
    case pb::Attr::kTensor: {
      auto tensor = std::make_shared<HostTensor>();
      AMPC_TRY(Decode(in.tensor(), in.name(), tensor.get()));
      out->Set(in.name(), std::shared_ptr<const HostTensor>(std::move(tensor)));
      return {};
    }
    case pb::Attr::VALUE_NOT_SET:
      break;
  }
  return BadInput("E0644", "parameter '{}' has no value of a type that this version knows",
                  in.name());
}

Status Decode(const pb::Call& in, Call* out) {
  // No kernel has a tenth of these, and each is sorted in among the others.
  constexpr int kMaxParams = 1000;
  out->kernel = in.kernel();
  if (in.params_size() > kMaxParams) {
    return BadInput("E0644", "a call has {} parameters, at most {} are read", in.params_size(),
                    kMaxParams);
  }
  for (const pb::Attr& attr : in.params()) AMPC_TRY(Decode(attr, &out->params));
  out->inputs.assign(in.inputs().begin(), in.inputs().end());
  out->outputs.assign(in.outputs().begin(), in.outputs().end());
  out->loc = in.loc();
  return {};
}

Status Decode(const pb::Program& in, Program* out) {
  out->name = in.name();
  out->buffers.resize(static_cast<size_t>(in.buffers_size()));
  for (int i = 0; i < in.buffers_size(); ++i) {
    const pb::Buffer& from = in.buffers(i);
    Buffer& b = out->buffers[static_cast<size_t>(i)];
    AMPC_TRY(Decode(kSpaces, from.space(), "the space of a buffer", &b.space));
    b.index = from.index();
    b.bytes = from.bytes();
    b.offset = from.offset();
    b.first = from.first();
    b.last = from.last();
  }
  out->tensors.resize(static_cast<size_t>(in.tensors_size()));
  for (int i = 0; i < in.tensors_size(); ++i) {
    const pb::Tensor& from = in.tensors(i);
    Tensor& t = out->tensors[static_cast<size_t>(i)];
    t.name = from.name();
    AMPC_TRY(Decode(from.desc(), t.name, &t.desc));
    t.buffer = from.buffer();
    t.byte_offset = from.byte_offset();
    t.view_of = from.view_of();
  }
  out->calls.resize(static_cast<size_t>(in.calls_size()));
  for (int i = 0; i < in.calls_size(); ++i) {
    AMPC_TRY(Decode(in.calls(i), &out->calls[static_cast<size_t>(i)]).At(in.calls(i).loc()));
  }
  for (const pb::Output& o : in.outputs()) out->outputs.push_back({o.name(), o.tensor()});
  out->block_bytes = in.block_bytes();
  out->bound_bytes = in.bound_bytes();
  return {};
}

Status FindRange(std::span<const WeightRange> ranges, int32_t index, std::string_view what,
                 WeightRange* out) {
  if (index < 0 || index >= static_cast<int64_t>(ranges.size())) {
    return BadInput("E0644", "'{}' names weight range {}, but the plan has {}", what, index,
                    ranges.size());
  }
  *out = ranges[static_cast<size_t>(index)];
  return {};
}

Status Decode(const pb::State& in, std::span<const WeightRange> ranges, State* out) {
  out->name = in.name();
  out->source = in.source();
  AMPC_TRY(Decode(kRoles, in.role(), "the role of a state", &out->role));
  AMPC_TRY(Decode(in.desc(), out->name, &out->desc));
  Initial& initial = out->initial;
  switch (in.initial().kind_case()) {
    case pb::Initial::kFill:
      initial.kind = Initial::Kind::kFill;
      initial.fill = in.initial().fill();
      return {};
    case pb::Initial::kWeight: {
      initial.kind = Initial::Kind::kBytes;
      WeightRange range;
      AMPC_TRY(FindRange(ranges, in.initial().weight(), in.name(), &range));
      initial.offset = range.offset;
      initial.length = range.length;
      initial.crc = range.crc;
      return {};
    }
    case pb::Initial::kDerivedFrom:
      initial.kind = Initial::Kind::kDerived;
      initial.derived_from = in.initial().derived_from();
      return {};
    case pb::Initial::kAutomatic:
      initial.kind = Initial::Kind::kAuto;
      initial.fill = std::numeric_limits<double>::quiet_NaN();
      return {};
    case pb::Initial::KIND_NOT_SET:
      break;
  }
  return BadInput("E0644", "state '{}' has no initial value that this version knows", in.name());
}

Status Decode(const pb::Feed& in, Feed* out) {
  out->name = in.name();
  AMPC_TRY(Decode(kFeedKinds, in.kind(), "the kind of a feed", &out->kind));
  AMPC_TRY(Decode(in.desc(), out->name, &out->desc));
  out->program = in.program();
  out->limit = in.limit();
  out->from_end = in.from_end();
  out->has_ignore = in.has_ignore();
  out->ignore = in.ignore();
  return {};
}

Status Decode(const pb::Export& in, std::span<const WeightRange> ranges, Export* out) {
  out->initializer = in.initializer();
  AMPC_TRY(Decode(in.dtype(), out->initializer, &out->dtype));
  out->dims.assign(in.dims().begin(), in.dims().end());
  if (!CheckedNumElements(out->dims, SizeOf(out->dtype))) {
    return BadInput("E0644", "the dims {} of '{}' are negative or too large", ToString(out->dims),
                    out->initializer);
  }
  AMPC_TRY(Decode(kInverses, in.inverse(), "the inverse of an export", &out->inverse));
  out->rest = in.rest();
  out->notes = in.notes();
  if (in.from_case() == pb::Export::kState) {
    out->state = in.state();
    if (out->state >= 0) return {};
  } else if (in.from_case() == pb::Export::kWeight) {
    WeightRange range;
    AMPC_TRY(FindRange(ranges, in.weight(), in.initializer(), &range));
    out->offset = range.offset;
    out->length = range.length;
    out->crc = range.crc;
    return {};
  }
  return BadInput("E0644", "export of '{}' names neither a state nor a weight", in.initializer());
}

Result<std::vector<WeightRange>> DecodeWeights(const pb::Header& in, int64_t section_bytes) {
  std::vector<WeightRange> ranges;
  ranges.reserve(static_cast<size_t>(in.weights_size()));
  for (const pb::Weight& w : in.weights()) {
    int64_t end = 0;
    if (w.offset() < 0 || w.length() < 0 || __builtin_add_overflow(w.offset(), w.length(), &end) ||
        end > section_bytes) {
      return BadInput("E0644", "weight range {}+{} lies outside of the weight section of {} bytes",
                      w.offset(), w.length(), section_bytes);
    }
    ranges.push_back({w.offset(), w.length(), w.crc()});
  }
  return ranges;
}

/// Appends the decoded form of every element of `in` to `out`.
template <typename From, typename To, typename... Context>
Status DecodeAll(const google::protobuf::RepeatedPtrField<From>& in, std::vector<To>* out,
                 Context... context) {
  out->resize(static_cast<size_t>(in.size()));
  for (int i = 0; i < in.size(); ++i)
    AMPC_TRY(Decode(in.Get(i), context..., &(*out)[static_cast<size_t>(i)]));
  return {};
}

}  // namespace

WeightIndex IndexWeights(const Plan& plan) {
  WeightIndex index;
  for (const State& s : plan.states) {
    if (s.initial.kind == Initial::Kind::kBytes) index[{s.initial.offset, s.initial.length}] = 0;
  }
  for (const Export& e : plan.exports) {
    if (e.state < 0) index[{e.offset, e.length}] = 0;
  }
  int32_t next = 0;
  for (auto& [range, number] : index) number = next++;
  return index;
}

Result<std::string> EncodePlan(const Plan& plan, const WeightIndex& index) {
  std::string out;
  pb::Header part;
  AppendAll(plan.states, part, &pb::Header::add_states, &out, index);
  AppendAll(plan.feeds, part, &pb::Header::add_feeds, &out);
  AppendAll(plan.constants, part, &pb::Header::add_constants, &out);
  for (const Program& p : plan.programs) AppendProgram(p, &out);
  AppendAll(plan.exports, part, &pb::Header::add_exports, &out, index);
  AppendAll(plan.settings, part, &pb::Header::add_settings, &out);
  part.set_accumulate(plan.accumulate);
  part.set_precision(plan.precision);
  part.set_policy_name(plan.policy_name);
  part.set_policy_text(plan.policy_text);
  part.set_policy_hash(plan.policy_hash);
  part.set_recipe(plan.recipe);
  part.set_config(plan.config);
  part.set_source_model(plan.source_model);
  part.set_source_name(plan.source_name);
  part.set_max_skips(plan.max_skips);
  part.AppendToString(&out);
  if (out.size() > INT_MAX) {
    return Unsupported("E0648",
                       "the plan without its weights has {} bytes; a plan holds at most {}",
                       out.size(), INT_MAX);
  }
  return out;
}

std::string EncodeWeights(std::span<const WeightRange> ranges) {
  pb::Header header;
  for (const WeightRange& r : ranges) {
    pb::Weight* w = header.add_weights();
    w->set_offset(r.offset);
    w->set_length(r.length);
    w->set_crc(r.crc);
  }
  return header.SerializeAsString();
}

Result<Plan> DecodePlan(std::span<const std::byte> bytes, int64_t section_bytes) {
  google::protobuf::Arena arena;
  auto* header = google::protobuf::Arena::CreateMessage<pb::Header>(&arena);
  if (bytes.size() > INT_MAX ||
      !header->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return BadInput("E0644", "the plan's header of {} bytes is not a valid message", bytes.size());
  }
  AMPC_ASSIGN(const std::vector<WeightRange> ranges, DecodeWeights(*header, section_bytes));
  const std::span<const WeightRange> table = ranges;
  Plan plan;
  AMPC_TRY(DecodeAll(header->states(), &plan.states, table));
  AMPC_TRY(DecodeAll(header->feeds(), &plan.feeds));
  AMPC_TRY(DecodeAll(header->constants(), &plan.constants, std::string_view("a constant")));
  AMPC_TRY(DecodeAll(header->programs(), &plan.programs));
  AMPC_TRY(DecodeAll(header->exports(), &plan.exports, table));
  for (const pb::Setting& s : header->settings()) plan.settings.push_back({s.name(), s.state()});
  plan.accumulate = header->accumulate();
  plan.precision = header->precision();
  plan.policy_name = header->policy_name();
  plan.policy_text = header->policy_text();
  plan.policy_hash = header->policy_hash();
  plan.recipe = header->recipe();
  plan.config = header->config();
  plan.source_model = header->source_model();
  plan.source_name = header->source_name();
  plan.max_skips = header->max_skips();
  return plan;
}

}  // namespace ampc::plan
