// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_weights.h"

#include "runtime/data/convert.h"
#include "runtime/data/safetensors.h"
#include "runtime/onnx_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

namespace ampc {
namespace {

constexpr size_t kListed = 20;

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kListed); ++i)
    text += fmt::format("\n  {}", lines[i]);
  if (lines.size() > kListed) text += fmt::format("\n  and {} more", lines.size() - kListed);
  return text;
}

/// The tensors of either kind of file.
class WeightFile {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    Dims dims;
  };

  static Result<WeightFile> Open(const std::string& path) {
    WeightFile file;
    if (path.ends_with(".onnx")) {
      AMPC_ASSIGN(file.onnx_, OnnxWeights::Open(path));
      for (const OnnxInitializer& e : file.onnx_->entries())
        file.entries_.push_back({e.name, e.dtype, e.dims});
    } else {
      AMPC_ASSIGN(file.tensors_, SafetensorsFile::Open(path));
      for (const SafetensorsEntry& e : file.tensors_->entries())
        file.entries_.push_back({e.name, e.dtype, e.dims});
    }
    for (size_t i = 0; i < file.entries_.size(); ++i) file.by_name_[file.entries_[i].name] = i;
    return file;
  }

  const std::vector<Entry>& entries() const { return entries_; }
  std::optional<size_t> Find(const std::string& name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? std::nullopt : std::optional(it->second);
  }
  /// `scratch` holds the bytes where the file does not have them in one piece.
  Result<std::span<const std::byte>> Bytes(size_t i, std::vector<std::byte>* scratch) const {
    if (tensors_) return tensors_->bytes(tensors_->entries()[i]);
    AMPC_ASSIGN(*scratch, onnx_->Read(onnx_->entries()[i]));
    return std::span<const std::byte>(*scratch);
  }

 private:
  std::optional<SafetensorsFile> tensors_;
  std::optional<OnnxWeights> onnx_;
  std::vector<Entry> entries_;
  std::map<std::string, size_t> by_name_;
};

struct Match {
  size_t entry;
  int32_t state;
};

Status WriteMatch(const plan::Plan& plan, Executor& executor, const WeightFile& file,
                  const Match& match) {
  const plan::State& state = plan.states[static_cast<size_t>(match.state)];
  const WeightFile::Entry& entry = file.entries()[match.entry];
  std::vector<std::byte> scratch;
  AMPC_ASSIGN(const std::span<const std::byte> bytes, file.Bytes(match.entry, &scratch));
  if (entry.dtype == state.desc.dtype && IsFloat(entry.dtype))
    return executor.WriteState(match.state, bytes);  // a copy less of what may be gigabytes
  AMPC_ASSIGN(Converter converter, Converter::Make(entry.dtype, state.desc.dtype, {}, {}, {}));
  std::vector<std::byte> data(static_cast<size_t>(state.desc.bytes()));
  int64_t bad = converter.Convert(bytes.data(), data.data(), state.desc.elements());
  if (bad >= 0)
    return BadInput("E0971", "'{}': {}", entry.name, converter.DescribeBad(bytes.data(), bad));
  return executor.WriteState(match.state, data);
}

/// Initializers that the plan keeps as they are: those of its source model, and exports without a
/// state.
class CompiledIn {
 public:
  static Result<CompiledIn> Of(const plan::Plan& plan) {
    CompiledIn all(plan);
    if (!plan.source_model.empty()) {
      AMPC_ASSIGN(all.source_, OnnxWeights::Of(plan.source_model));
      for (const OnnxInitializer& e : all.source_->entries()) all.small_[e.name] = &e;
    }
    for (const plan::Export& e : plan.exports)
      if (e.state < 0) all.large_[e.initializer] = &e;
    return all;
  }

  bool Has(const std::string& name) const { return small_.contains(name) || large_.contains(name); }
  /// Whether the file has the very bytes of one.
  Result<bool> Same(const WeightFile& file, size_t entry) const {
    const WeightFile::Entry& other = file.entries()[entry];
    std::vector<std::byte> scratch, compiled;
    if (const auto it = large_.find(other.name); it != large_.end()) {
      const plan::Export& e = *it->second;
      if (e.dtype != other.dtype || e.dims != other.dims) return false;
      compiled.resize(static_cast<size_t>(e.length));
      AMPC_TRY(plan::ReadWeight(plan_, e.offset, e.crc, e.initializer, compiled));
    } else {
      const OnnxInitializer& e = *small_.at(other.name);
      if (e.dtype != other.dtype || e.dims != other.dims) return false;
      AMPC_ASSIGN(compiled, source_->Read(e));
    }
    AMPC_ASSIGN(const std::span<const std::byte> bytes, file.Bytes(entry, &scratch));
    return std::equal(bytes.begin(), bytes.end(), compiled.begin(), compiled.end());
  }

 private:
  explicit CompiledIn(const plan::Plan& plan) : plan_(plan) {}

  const plan::Plan& plan_;
  std::optional<OnnxWeights> source_;
  std::map<std::string_view, const OnnxInitializer*> small_;
  std::map<std::string_view, const plan::Export*> large_;
};

}  // namespace

Status InitWeights(const plan::Plan& plan, Executor& executor, const std::string& path, bool strict,
                   std::vector<std::string>* notes) {
  Result<WeightFile> opened = WeightFile::Open(path);
  if (!opened.ok()) return std::move(opened).TakeStatus().Of(path);
  const WeightFile& file = *opened;
  std::vector<Match> matches;
  std::vector<std::string> wrong, loose;
  std::set<std::string_view> known;
  for (const plan::Export& e : plan.exports) {
    if (e.state < 0) continue;
    known.insert(e.initializer);
    const std::optional<size_t> found = file.Find(e.initializer);
    if (!found) {
      loose.push_back(fmt::format("'{}' {} is not in the file", e.initializer, ToString(e.dims)));
      continue;
    }
    const TensorDesc& desc = plan.states[static_cast<size_t>(e.state)].desc;
    const WeightFile::Entry& entry = file.entries()[*found];
    if (entry.dims != desc.dims) {
      wrong.push_back(fmt::format("'{}' is {} in the model and {} in the file", e.initializer,
                                  ToString(desc.dims), ToString(entry.dims)));
    } else if (IsFloat(entry.dtype) != IsFloat(desc.dtype)) {
      wrong.push_back(fmt::format("'{}' is {} in the model and {} in the file", e.initializer,
                                  Name(desc.dtype), Name(entry.dtype)));
    } else {
      matches.push_back({*found, e.state});
    }
  }
  AMPC_ASSIGN(const CompiledIn compiled_in, CompiledIn::Of(plan));
  for (size_t i = 0; i < file.entries().size(); ++i) {
    const WeightFile::Entry& entry = file.entries()[i];
    if (known.contains(entry.name)) continue;
    if (!compiled_in.Has(entry.name)) {
      loose.push_back(fmt::format("'{}' {} is not in the model", entry.name, ToString(entry.dims)));
      continue;
    }
    AMPC_ASSIGN(const bool same, compiled_in.Same(file, i));
    if (!same) loose.push_back(fmt::format("'{}' is compiled in and stays as it is", entry.name));
  }
  if (strict) wrong.insert(wrong.end(), loose.begin(), loose.end());
  if (!wrong.empty())
    return BadInput("E0971", "{} tensors do not match{}:{}", wrong.size(),
                    strict ? " (strict=false lets names differ)" : "", Join(wrong))
        .Of(path);
  if (matches.empty())
    return BadInput("E0971", "no tensor has the name of an initializer").Of(path);
  for (const Match& match : matches) AMPC_TRY(WriteMatch(plan, executor, file, match));
  for (std::string& note : loose) notes->push_back(fmt::format("{}: {}", path, note));
  return {};
}

}  // namespace ampc
