// SPDX-License-Identifier: Apache-2.0
//
// ONNX's ModelProto by hand. Protobuf parsers merge concatenated messages: fields of sub-messages
// merge, repeated fields append. So a model followed by `{graph: {initializer: T1}} {graph:
// {initializer: T2}} …` is the model with those initializers, and no message of all weights is ever
// in memory. Field numbers are those of onnx.proto, which never change:
//
//   ModelProto.graph = 7, GraphProto.initializer = 5, TensorProto: dims = 1, data_type = 2, name =
//   8, raw_data = 9, external_data = 13 (StringStringEntryProto: key = 1, value = 2), data_location
//   = 14 (EXTERNAL = 1).
#include "runtime/base/model_writer.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/wire.h"

namespace ampc {
namespace {

/// Small tensors stay in the model: readers want shapes and scalars without opening the data file.
constexpr int64_t kSmall = 1024;
constexpr int64_t kPage = 4096;

/// Where data lies outside of the model.
struct Place {
  std::string_view location;
  int64_t offset = 0;
};

/// `{graph: {initializer: {…` up to the raw data, or all of it where the data lies outside.
std::string Head(const ModelInitializer& t, const std::optional<Place>& place) {
  std::string tensor(t.notes);
  for (const int64_t d : t.dims) AppendNumber(1, static_cast<uint64_t>(d), &tensor);
  AppendNumber(2, static_cast<uint64_t>(t.dtype), &tensor);
  AppendText(8, t.name, &tensor);
  uint64_t follows = 0;
  if (place) {
    const std::pair<std::string_view, std::string> entries[] = {
        {"location", std::string(place->location)},
        {"offset", std::to_string(place->offset)},
        {"length", std::to_string(t.bytes())}};
    for (const auto& [key, value] : entries) {
      std::string entry;
      AppendText(1, key, &entry);
      AppendText(2, value, &entry);
      AppendText(13, entry, &tensor);
    }
    AppendNumber(14, 1, &tensor);
  } else {
    follows = static_cast<uint64_t>(t.bytes());
    AppendLength(9, follows, &tensor);
  }
  std::string initializer, graph;
  AppendLength(5, tensor.size() + follows, &initializer);
  AppendLength(7, initializer.size() + tensor.size() + follows, &graph);
  return graph + initializer + tensor;
}

/// Which of two files the model at `path` keeps weights in: their names stand in it as protobuf
/// strings. One that cannot be read might name either, so that is an error.
Result<std::pair<bool, bool>> NamedFiles(const std::string& path, const std::string& first,
                                         const std::string& second) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return std::pair(false, false);
  AMPC_ASSIGN(const MappedFile model, MappedFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(model.data()),
                              static_cast<size_t>(model.size()));
  const auto named = [&](const std::string& location) {
    std::string entry;
    AppendText(2, location, &entry);
    return text.find(entry) != std::string_view::npos;
  };
  return std::pair(named(first), named(second));
}

}  // namespace

int64_t ModelInitializer::inline_bytes() const {
  return static_cast<int64_t>(Head(*this, std::nullopt).size()) + bytes();
}

Result<ModelWriter> ModelWriter::Create(const std::string& path, bool beside) {
  AMPC_ASSIGN(AtomicFile model, AtomicFile::Create(path));
  ModelWriter writer(std::move(model));
  if (!beside) return writer;
  const std::string target = FollowLinks(path);
  const std::string name = std::filesystem::path(target).filename().string();
  std::string location = name + ".data", other = name + ".data2";
  AMPC_ASSIGN(const auto named, NamedFiles(target, location, other));
  if (named.first) std::swap(location, other);
  if (named.first || named.second) writer.stale_ = JoinPath(DirName(target), other);
  AMPC_ASSIGN(writer.data_, AtomicFile::Create(JoinPath(DirName(target), location)));
  writer.location_ = std::move(location);
  return writer;
}

Status ModelWriter::Begin(const ModelInitializer& initializer) {
  in_data_ = data_ && initializer.bytes() > kSmall;
  if (!in_data_) return model_.Append(Head(initializer, std::nullopt));
  AMPC_TRY(data_->PadTo(kPage));
  return model_.Append(Head(initializer, Place{location_, data_->size()}));
}

Status ModelWriter::AppendData(std::span<const std::byte> bytes) {
  return in_data_ ? data_->Append(bytes) : model_.Append(bytes);
}

Status ModelWriter::Commit() {
  // The data first: a model never names data that is not there.
  if (data_) AMPC_TRY(data_->Commit());
  AMPC_TRY(model_.Commit());
  if (!stale_.empty() && unlink(stale_.c_str()) != 0 && errno != ENOENT)
    return IoError("E0663", "cannot remove the data of the old model: {}",
                   std::generic_category().message(errno))
        .Of(stale_);
  return {};
}

}  // namespace ampc
