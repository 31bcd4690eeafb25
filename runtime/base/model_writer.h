// SPDX-License-Identifier: Apache-2.0
#pragma once
// An ONNX model with large initializers, written piece by piece without the ONNX library; its data
// stands in it, or in `<file name>.data` beside it where a message would be too large.
//
// A model and its data are two files and two renames, with a moment between them. So the data goes
// to a file that the model in place does not name (`.data`, or `.data2` when it names that): at any
// moment the model has the data that it was written with.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

namespace ampc {

struct ModelInitializer {
  std::string_view name;
  DType dtype = DType::kNone;
  std::span<const int64_t> dims;
  std::string_view notes = {};  ///< further fields of the TensorProto, serialised

  int64_t bytes() const { return NumElements(dims) * SizeOf(dtype); }
  /// What it adds to a model that has its data inside.
  int64_t inline_bytes() const;
};

class ModelWriter {
 public:
  /// `beside`: data of more than a kilobyte goes into a file of its own.
  static Result<ModelWriter> Create(const std::string& path, bool beside);

  /// Fields of a ModelProto. Parsers merge them with what was written before.
  Status Append(std::string_view fields) { return model_.Append(fields); }
  /// The next initializer. Its data follows, by AppendData.
  Status Begin(const ModelInitializer& initializer);
  Status AppendData(std::span<const std::byte> bytes);
  /// Both files take their places, complete; the data of the model that was replaced goes.
  Status Commit();

 private:
  explicit ModelWriter(AtomicFile model) : model_(std::move(model)) {}

  AtomicFile model_;
  std::optional<AtomicFile> data_;
  std::string location_;  ///< of the data, as the model names it
  std::string stale_;     ///< path of data that nothing reads after Commit
  bool in_data_ = false;  ///< where the data of the initializer of now goes
};

}  // namespace ampc
