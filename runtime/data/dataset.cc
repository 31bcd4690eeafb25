// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "runtime/base/crc32c.h"
#include "runtime/data/bind.h"
#include "runtime/data/shuffle.h"
#include "runtime/data/strided.h"
#include "runtime/data/windows.h"

namespace ampc {

/// A feed and where its values come from.
struct Dataset::Bound {
  FeedSpec spec;
  DataSource source;
  // kFile
  Array array;        // sample or step axis in front
  StridedBlock unit;  // what one index of it selects
  Converter converter;
  // of them, token streams: `array` is windows of `stream`
  Array stream;
  WindowForm window;
  std::shared_ptr<const Vocabulary> vocabulary;  // of a text
  // kRandom, integer feeds
  int64_t high = 0;
  // kConst: one element
  std::vector<std::byte> element;

  bool from_file() const { return source.kind == DataSource::Kind::kFile; }
  int64_t elements() const { return NumElements(spec.dims); }
  const std::string& vocabulary_path() const {
    return source.tokens->vocabulary.empty() ? source.path : source.tokens->vocabulary;
  }
  std::string place() const {
    return source.member.empty() ? source.path : source.path + ":member=" + source.member;
  }
};

Dataset::Dataset() = default;
Dataset::~Dataset() = default;

/// Finds the source of every feed and checks that it fits.
class Dataset::Binder {
 public:
  Binder(std::span<const FeedSpec> feeds, std::span<const DataSource> sources, ArrayLoader& loader)
      : feeds_(feeds), sources_(sources), loader_(loader) {}

  Status Bind(std::vector<Bound>* out) {
    AMPC_TRY(CheckSources());
    for (const FeedSpec& feed : feeds_) {
      Bound bound;
      bound.spec = feed;
      AMPC_ASSIGN(bound.source, SourceOf(feed));
      Status status = !bound.from_file()    ? BindMadeUp(&bound)
                      : bound.source.tokens ? BindTokens(&bound)
                                            : BindFile(&bound);
      if (!status.ok())
        return bound.from_file() ? std::move(status).Of(bound.place()) : std::move(status);
      out->push_back(std::move(bound));
    }
    return {};
  }

 private:
  Status CheckSources();
  Result<DataSource> SourceOf(const FeedSpec& feed);
  Status BindFile(Bound* bound);
  Status BindTokens(Bound* bound);
  Status BindConverter(Bound* bound);
  Status BindMadeUp(Bound* bound);
  Status CheckShape(const Bound& bound, const Dims& file_dims) const;
  std::string FeedNames() const;

  std::span<const FeedSpec> feeds_;
  std::span<const DataSource> sources_;
  ArrayLoader& loader_;
};

std::string Dataset::Binder::FeedNames() const {
  std::vector<std::string> names;
  for (const FeedSpec& feed : feeds_) names.push_back(feed.name);
  return JoinNames(names);
}

Status Dataset::Binder::CheckSources() {
  for (size_t i = 0; i < sources_.size(); ++i) {
    const DataSource& source = sources_[i];
    if (source.feed.empty()) continue;
    const bool known = std::any_of(feeds_.begin(), feeds_.end(),
                                   [&](const FeedSpec& f) { return f.name == source.feed; });
    if (!known)
      return UsageError("E0791", "there is no feed '{}'; the feeds are {}", source.feed,
                        FeedNames());
    for (size_t k = 0; k < i; ++k) {
      if (sources_[k].feed == source.feed)
        return UsageError("E0791", "the feed '{}' has two sources", source.feed);
    }
  }
  return {};
}

// A source that names the feed; else the first .npz that has an array of its name; else made-up
// data for all.
Result<DataSource> Dataset::Binder::SourceOf(const FeedSpec& feed) {
  for (const DataSource& source : sources_) {
    if (source.feed != feed.name) continue;
    DataSource chosen = source;
    if (chosen.kind == DataSource::Kind::kFile && !chosen.tokens && chosen.member.empty()) {
      AMPC_ASSIGN(const bool npz, loader_.IsNpz(chosen.path));
      if (npz) {
        AMPC_ASSIGN(const std::vector<std::string> members, loader_.Members(chosen.path));
        if (std::count(members.begin(), members.end(), feed.name) > 0) chosen.member = feed.name;
      }
    }
    return chosen;
  }
  std::string seen;
  for (const DataSource& source : sources_) {
    if (!source.feed.empty()) continue;
    if (source.kind != DataSource::Kind::kFile) return source;
    if (source.tokens)
      return UsageError("E0792", "'{}' is one stream of tokens: write NAME={}", source.path,
                        source.path);
    AMPC_ASSIGN(const bool npz, loader_.IsNpz(source.path));
    if (!npz)
      return UsageError("E0792", "'{}' holds one array: write NAME={}", source.path, source.path);
    AMPC_ASSIGN(const std::vector<std::string> members, loader_.Members(source.path));
    if (std::count(members.begin(), members.end(), feed.name) > 0) {
      DataSource chosen = source;
      chosen.member = feed.name;
      return chosen;
    }
    seen += fmt::format("; '{}' has {}", source.path, JoinNames(members));
  }
  return UsageError("E0793", "the feed '{}' ({} {}) has no data: give --data {}=FILE{}", feed.name,
                    Name(feed.dtype), ToString(feed.dims), feed.name, seen);
}

Status Dataset::Binder::CheckShape(const Bound& bound, const Dims& file_dims) const {
  const Dims& dims = bound.array.dims;
  const std::span<const int64_t> unit = std::span(dims).subspan(1);
  const FeedSpec& feed = bound.spec;
  if (bound.source.layout == DataSource::Layout::kSteps) {
    if (std::equal(unit.begin(), unit.end(), feed.dims.begin(), feed.dims.end())) return {};
    return BadInput(
        "E0794",
        "feed '{}' is {}, a step of the data is {} (layout=steps wants the feed's exact shape)",
        feed.name, ToString(feed.dims), ToString(unit));
  }
  const std::span<const int64_t> sample = std::span(feed.dims).subspan(1);
  if (Adapts(unit, sample)) return {};
  std::string advice;
  if (const auto order =
          ProposePermute(file_dims, bound.source.permute.empty() ? bound.source.axis : 0, sample)) {
    advice = fmt::format("; permute={}{} would fit", ToString(*order),
                         bound.source.axis != 0 ? " without axis=" : "");
  }
  if (advice.empty() && unit.size() == feed.dims.size())
    advice = "; if the first axis counts whole batches: layout=steps";
  return BadInput("E0794", "feed '{}' takes samples of {}, the data {} has samples of {}{}",
                  feed.name, ToString(sample), ToString(file_dims), ToString(unit), advice);
}

Status Dataset::Binder::BindFile(Bound* bound) {
  const FeedSpec& feed = bound->spec;
  const DataSource& source = bound->source;
  AMPC_ASSIGN(bound->array, loader_.Load(source.path, source.member));
  const Dims file_dims = bound->array.dims;
  if (file_dims.empty())
    return BadInput("E0794", "the data of feed '{}' is a single number", feed.name);
  // Whole batches may be empty tensors, a dataset may not.
  const bool has_steps = source.layout == DataSource::Layout::kSteps && file_dims[0] > 0;
  if (bound->array.elements() == 0 && !has_steps) {
    return BadInput("E0794", "the data {} of feed '{}' is empty", ToString(file_dims), feed.name);
  }
  if (feed.dims.empty() && source.layout == DataSource::Layout::kSamples) {
    return BadInput("E0794", "feed '{}' has no batch axis: use layout=steps or const", feed.name);
  }
  if (!source.permute.empty()) {
    AMPC_ASSIGN(bound->array, Permuted(bound->array, source.permute));
  }
  AMPC_ASSIGN(bound->array, SampleAxisFirst(bound->array, source.axis));
  AMPC_TRY(CheckShape(*bound, file_dims));
  return BindConverter(bound);
}

// The samples of a stream are windows as long as the feed's samples have elements.
Status Dataset::Binder::BindTokens(Bound* bound) {
  const FeedSpec& feed = bound->spec;
  const DataSource& source = bound->source;
  if (source.tokens->kind == TokenForm::Kind::kCharacters) {
    AMPC_ASSIGN(TextTokens text, loader_.LoadText(source.path, bound->vocabulary_path()));
    bound->stream = std::move(text.ids);
    bound->vocabulary = std::move(text.vocabulary);
    if (feed.range.limit > 0 && bound->vocabulary->size() > feed.range.limit) {
      return BadInput("E0769",
                      "the {} different characters of '{}' get the ids 0 to {}, feed '{}' takes 0 "
                      "to {}: the model is made for fewer",
                      bound->vocabulary->size(), bound->vocabulary_path(),
                      bound->vocabulary->size() - 1, feed.name, feed.range.limit - 1);
    }
  } else {
    AMPC_ASSIGN(bound->stream,
                loader_.LoadTokens(source.path, source.tokens->dtype, source.tokens->header));
  }
  const int64_t length = feed.dims.empty() ? 0 : NumElements(std::span(feed.dims).subspan(1));
  if (length == 0)
    return BadInput("E0794", "feed '{}' is {}: [batch, length] is expected for tokens", feed.name,
                    ToString(feed.dims));
  bound->window = {length, source.stride > 0 ? source.stride : length, source.shift};
  Result<Array> windows = WindowsOf(bound->stream, bound->window);
  if (!windows.ok())
    return Status::Error(windows.status().error_class(), windows.status().id(),
                         fmt::format("feed '{}': {}", feed.name, windows.status().message()));
  bound->array = std::move(windows).value();
  return BindConverter(bound);
}

// What makes elements of the feed of those of the array.
Status Dataset::Binder::BindConverter(Bound* bound) {
  const FeedSpec& feed = bound->spec;
  const DataSource& source = bound->source;
  const Array& array = bound->array;
  bound->unit = StridedBlock(std::span(array.dims).subspan(1), std::span(array.strides).subspan(1),
                             SizeOf(array.dtype));

  ChannelLayout layout;
  for (const std::vector<double>* list : {&source.normalization.mean, &source.normalization.std}) {
    const int64_t given = static_cast<int64_t>(list->size());
    if (given == 1) continue;
    if (feed.dims.size() < 2 || feed.dims[1] != given) {
      return UsageError(
          "E0795", "{} values of mean or std, but feed '{}' {} has {} channels (axis 1)", given,
          feed.name, ToString(feed.dims), feed.dims.size() < 2 ? 0 : feed.dims[1]);
    }
    layout = {given, NumElements(std::span(feed.dims).subspan(2))};
  }
  Result<Converter> converter =
      Converter::Make(array.dtype, feed.dtype, source.normalization, layout, feed.range);
  if (!converter.ok())
    return Status::Error(converter.status().error_class(), converter.status().id(),
                         fmt::format("feed '{}': {}", feed.name, converter.status().message()));
  bound->converter = std::move(converter).value();
  return {};
}

Status Dataset::Binder::BindMadeUp(Bound* bound) {
  const FeedSpec& feed = bound->spec;
  const DataSource& source = bound->source;
  if (!source.normalization.identity() || !source.permute.empty() || source.axis != 0 ||
      !source.member.empty() || source.tokens) {
    return UsageError("E0796",
                      "member, scale, mean, std, permute, axis and tokens are for files, feed '{}' "
                      "is made up",
                      feed.name);
  }
  const int64_t highest = feed.range.limit > 0 ? feed.range.limit - 1 : HighestOf(feed.dtype);
  if (source.kind == DataSource::Kind::kConst) {
    bound->element.resize(static_cast<size_t>(SizeOf(feed.dtype)));
    if (IsFloat(feed.dtype)) {
      StoreDoubles(feed.dtype, &source.value, bound->element.data(), 1);
      return {};
    }
    const double v = source.value;
    const bool fits =
        v == std::floor(v) &&
        v >= static_cast<double>(feed.range.limit > 0 ? feed.range.low : LowestOf(feed.dtype)) &&
        v <= static_cast<double>(highest) && v < 9.2e18;
    const bool ignored = feed.range.ignore && v == static_cast<double>(*feed.range.ignore);
    if (!fits && !ignored) {
      return UsageError("E0796", "value={} does not fit feed '{}' ({}, at most {})", v, feed.name,
                        Name(feed.dtype), highest);
    }
    const int64_t integer = static_cast<int64_t>(v);
    StoreIntegers(feed.dtype, &integer, bound->element.data(), 1);
    return {};
  }
  if (IsFloat(feed.dtype)) return {};
  if (feed.dtype == DType::kBool) {
    bound->high = 2;
  } else if (feed.range.limit > 0) {
    bound->high = source.high > 0 ? std::min(source.high, feed.range.limit) : feed.range.limit;
  } else {
    bound->high = source.high;
  }
  if (bound->high <= 0) {
    return UsageError(
        "E0796",
        "random values of feed '{0}' ({1}) need a bound, since nothing in the model limits them: "
        "--data {0}=random:below=N draws from [0, N)",
        feed.name, Name(feed.dtype));
  }
  return {};
}

Result<std::unique_ptr<Dataset>> Dataset::Open(std::span<const FeedSpec> feeds,
                                               std::span<const DataSource> sources,
                                               const DatasetOptions& options, ArrayLoader& loader) {
  std::unique_ptr<Dataset> data(new Dataset());
  data->options_ = options;
  AMPC_TRY(Binder(feeds, sources, loader).Bind(&data->feeds_));
  AMPC_TRY(data->AlignWindows());
  AMPC_TRY(data->CountUnits());
  int64_t scratch = 0;
  for (const Bound& feed : data->feeds_) {
    if (feed.from_file() && !feed.unit.contiguous()) {
      scratch = std::max(scratch, feed.unit.elements() * SizeOf(feed.array.dtype));
    }
  }
  data->scratch_.resize(static_cast<size_t>(scratch));
  data->Describe();
  return data;
}

// Streams of one length give unlike numbers of windows when they are shifted unlike: all have as
// many as the shortest. Window i of each must then begin at the same stride.
Status Dataset::AlignWindows() {
  const Bound* first = nullptr;
  int64_t windows = std::numeric_limits<int64_t>::max();
  for (const Bound& feed : feeds_) {
    if (!feed.from_file() || !feed.source.tokens) continue;
    if (first == nullptr) first = &feed;
    windows = std::min(windows, feed.array.dims[0]);
    const int64_t strides = feed.stream.dims[0] / feed.window.stride;
    const int64_t expected = first->stream.dims[0] / first->window.stride;
    if (strides != expected) {
      return BadInput("E0798",
                      "feed '{}' has {} tokens with a window every {}, feed '{}' {} with one "
                      "every {}: their windows do not go together; give stride=",
                      first->spec.name, first->stream.dims[0], first->window.stride, feed.spec.name,
                      feed.stream.dims[0], feed.window.stride);
    }
  }
  for (Bound& feed : feeds_) {
    if (feed.from_file() && feed.source.tokens) feed.array.dims[0] = windows;
  }
  return {};
}

// One number of samples, one batch size, one layout for all files; then the range and the number of
// batches.
Status Dataset::CountUnits() {
  const Bound* first = nullptr;
  for (const Bound& feed : feeds_) {
    if (!feed.from_file()) continue;
    if (first == nullptr) first = &feed;
    if (feed.source.layout != first->source.layout) {
      return UsageError(
          "E0797", "feed '{}' has layout=samples, feed '{}' layout=steps; use one for all files",
          feed.source.layout == DataSource::Layout::kSamples ? feed.spec.name : first->spec.name,
          feed.source.layout == DataSource::Layout::kSamples ? first->spec.name : feed.spec.name);
    }
    const bool steps = feed.source.layout == DataSource::Layout::kSteps;
    if (feed.array.dims[0] != first->array.dims[0]) {
      return BadInput("E0798",
                      "feed '{}' has {} {}, feed '{}' has {}: every file must have the same number",
                      first->spec.name, first->array.dims[0], steps ? "steps" : "samples",
                      feed.spec.name, feed.array.dims[0]);
    }
    if (!steps && feed.spec.dims[0] != first->spec.dims[0]) {
      return BadInput(
          "E0798", "feeds '{}' {} and '{}' {} differ in the batch (axis 0): use layout=steps",
          first->spec.name, ToString(first->spec.dims), feed.spec.name, ToString(feed.spec.dims));
    }
  }
  for (const Bound& feed : feeds_) {
    if (!feed.spec.dims.empty()) {
      batch_ =
          first != nullptr && !first->spec.dims.empty() ? first->spec.dims[0] : feed.spec.dims[0];
      break;
    }
  }
  const bool steps = first != nullptr && first->source.layout == DataSource::Layout::kSteps;
  if (batch_ < 0 || (batch_ == 0 && !steps))
    return BadInput("E0798", "a batch of {} samples", batch_);
  if (first == nullptr) {
    endless_ = true;
    num_batches_ = options_.batches_per_update;
    num_samples_ = num_batches_ * batch_;
    return {};
  }
  steps_ = first->source.layout == DataSource::Layout::kSteps;
  units_per_batch_ = steps_ ? 1 : batch_;
  const Result<SampleRange> parsed = ParseRange(options_.range, first->array.dims[0]);
  if (!parsed.ok()) {
    return UsageError(parsed.status().id(), "{}: {}", options_.range_flag,
                      parsed.status().message());
  }
  const SampleRange range = *parsed;
  begin_ = range.begin;
  units_ = range.end - range.begin;
  const int64_t samples_per_unit = steps_ ? batch_ : 1;
  num_samples_ = units_ * samples_per_unit;
  if (options_.pad_tail) {
    num_batches_ = (units_ + units_per_batch_ - 1) / units_per_batch_;
  } else {
    const int64_t updates = units_ / (units_per_batch_ * options_.batches_per_update);
    num_batches_ = updates * options_.batches_per_update;
    dropped_samples_ = num_samples_ - num_batches_ * batch_;
  }
  if (num_batches_ == 0) {
    return BadInput("E0799", "{} samples are too few: one {} takes {}", num_samples_,
                    options_.pad_tail ? "batch" : "update", batch_ * options_.batches_per_update);
  }
  if (units_ > int64_t{std::numeric_limits<uint32_t>::max()}) {
    return Unsupported("E0799", "{} samples; at most {} are handled", units_,
                       std::numeric_limits<uint32_t>::max());
  }
  if (options_.shuffle && !steps_) order_.resize(static_cast<size_t>(units_));
  return {};
}

// Index into the files of the sample (or step) at a position of the epoch; positions behind the end
// repeat the last.
int64_t Dataset::UnitAt(int64_t position) const {
  position = std::min(position, units_ - 1);
  return begin_ +
         (order_.empty() ? position : static_cast<int64_t>(order_[static_cast<size_t>(position)]));
}

Status Dataset::FillFromFile(const Bound& feed, int64_t first, std::byte* out) {
  const int64_t elements = feed.unit.elements();
  const int64_t stride = feed.array.strides[0] * SizeOf(feed.array.dtype);
  for (int64_t i = 0; i < units_per_batch_; ++i) {
    const int64_t unit = UnitAt(first + i);
    const std::byte* in = feed.array.data + unit * stride;
    if (!feed.unit.contiguous()) {
      feed.unit.Gather(in, scratch_.data());
      in = scratch_.data();
    }
    const int64_t bad =
        feed.converter.Convert(in, out + i * elements * SizeOf(feed.spec.dtype), elements);
    if (bad >= 0) {
      return BadInput("E0753", "feed '{}': {} {} holds {}", feed.spec.name,
                      steps_ ? "step" : "sample", unit, feed.converter.DescribeBad(in, bad))
          .Of(feed.place());
    }
  }
  return {};
}

Status Dataset::Fill(int64_t batch, int64_t epoch, std::span<std::byte* const> buffers,
                     int64_t* valid) {
  if (!order_.empty() && epoch != order_epoch_) {
    ShuffledOrder(options_.seed, static_cast<uint64_t>(epoch), order_);
    order_epoch_ = epoch;
  }
  const int64_t first = batch * units_per_batch_;
  for (size_t i = 0; i < feeds_.size(); ++i) {
    const Bound& feed = feeds_[i];
    const int64_t size = SizeOf(feed.spec.dtype);
    switch (feed.source.kind) {
      case DataSource::Kind::kFile:
        AMPC_TRY(FillFromFile(feed, first, buffers[i]));
        break;
      case DataSource::Kind::kRandom:
        FillRandom(StreamKey(options_.seed, feed.spec.name, static_cast<uint64_t>(epoch),
                             static_cast<uint64_t>(batch)),
                   feed.spec.dtype, feed.high, buffers[i], feed.elements());
        break;
      case DataSource::Kind::kConst:
        for (int64_t k = 0; k < feed.elements(); ++k) {
          std::memcpy(buffers[i] + k * size, feed.element.data(), static_cast<size_t>(size));
        }
        break;
    }
  }
  *valid = steps_ || endless_ ? batch_ : std::clamp<int64_t>(units_ - first, 0, batch_);
  return {};
}

void Dataset::Describe() {
  auto add = [&](const void* data, size_t size) {
    fingerprint_ = Crc32c({static_cast<const std::byte*>(data), size}, fingerprint_);
  };
  for (const Bound& feed : feeds_) {
    std::string text =
        fmt::format("{} {} {}", feed.spec.name, Name(feed.spec.dtype), ToString(feed.spec.dims));
    std::string shown = feed.spec.name + ": ";
    if (feed.from_file()) {
      const Normalization& n = feed.source.normalization;
      text += fmt::format(" <- {} {} {} {} {}", Name(feed.array.dtype), ToString(feed.array.dims),
                          ToString(feed.array.strides), steps_ ? "steps" : "samples", n.scale);
      for (double v : n.mean) text += fmt::format(" {}", v);
      for (double v : n.std) text += fmt::format(" {}", v);
      // The ends of the data: cheap for any size, and enough to notice another file of the same
      // shape. (Windows are not one block of memory; their stream is.)
      const Array& data = feed.source.tokens ? feed.stream : feed.array;
      const size_t size = static_cast<size_t>(data.bytes()), part = std::min<size_t>(size, 65536);
      add(data.data, part);
      add(data.data + size - part, part);
      shown += fmt::format("{} {} of {}", Name(feed.array.dtype), ToString(feed.array.dims),
                           feed.place());
      if (feed.source.tokens) {
        shown += fmt::format(", {} tokens, a window every {}", data.elements(), feed.window.stride);
        if (feed.window.shift > 0) shown += fmt::format(" behind the first {}", feed.window.shift);
        text += fmt::format(" {} {}", data.elements(), feed.window.shift);
      }
      if (feed.vocabulary != nullptr) {
        const std::span<const char32_t> characters = feed.vocabulary->characters();
        add(characters.data(), characters.size_bytes());
        const std::string vocabulary =
            fmt::format("{} characters of {}", characters.size(), feed.vocabulary_path());
        if (std::count(vocabularies_.begin(), vocabularies_.end(), vocabulary) == 0)
          vocabularies_.push_back(vocabulary);
      }
    } else if (feed.source.kind == DataSource::Kind::kConst) {
      text += fmt::format(" = {}", feed.source.value);
      shown += fmt::format("{} everywhere", feed.source.value);
    } else {
      text += fmt::format(" random {}", feed.high);
      shown +=
          feed.high > 0 ? fmt::format("random in [0, {})", feed.high) : "random, standard normal";
    }
    add(text.data(), text.size());
    description_.push_back(std::move(shown));
  }
  const std::string counts = fmt::format("{} {} {}", begin_, units_, options_.shuffle);
  add(counts.data(), counts.size());
}

}  // namespace ampc
