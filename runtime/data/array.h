// SPDX-License-Identifier: Apache-2.0
#pragma once
// An array as it lies in a data file: little-endian elements, any strides, mapped or owned.
//
// Loading copies nothing that can be used in place: rows of a .npy or of a stored .npz member are
// pages of the file, a Fortran-order array is a view with other strides. Elements may lie at any
// address, so readers go through memcpy.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

namespace ampc {

/// More axes than any format or model needs; lets strided loops keep their counters on the stack.
inline constexpr size_t kMaxArrayRank = 32;

struct Array {
  DType dtype = DType::kNone;
  Dims dims;
  std::vector<int64_t> strides;       ///< in elements, one per axis
  const std::byte* data = nullptr;    ///< element [0,…,0]
  std::shared_ptr<const void> owner;  ///< keeps `data` alive

  int64_t elements() const { return NumElements(dims); }
  int64_t bytes() const { return elements() * SizeOf(dtype); }
  bool contiguous() const {
    return elements() == 0 || strides == StridesOf(dims, Layout::kRowMajor);
  }
};

/// A row-major array over memory that `owner` keeps.
Array MakeArray(DType dtype, Dims dims, const std::byte* data, std::shared_ptr<const void> owner);

/// Elements in row-major order, in memory of their own.
std::vector<std::byte> PackedBytes(const Array& array);

/// Memory for file contents. A size beyond the machine's memory is an error (E0787), not an
/// attempt.
struct OwnedBytes {
  std::shared_ptr<std::byte[]> memory;
  int64_t size = 0;
  std::span<std::byte> span() const { return {memory.get(), static_cast<size_t>(size)}; }
};
Result<OwnedBytes> AllocateBytes(int64_t size);

/// Reverses the bytes of every element.
void SwapByteOrder(std::span<std::byte> data, int64_t element_size);

/// "'a', 'b'" for messages; at most twenty.
std::string JoinNames(std::span<const std::string> names);

class ZipArchive;
class Vocabulary;
struct TextTokens;

/// Reads arrays from .npy, .npz, idx and idx.gz files, told apart by their first bytes, and token
/// streams as the caller says what they are. A file is opened, and an array decoded, once. Errors
/// name the file (and the member) and keep to what the file says.
class ArrayLoader {
 public:
  ArrayLoader();
  ~ArrayLoader();
  ArrayLoader(ArrayLoader&&) noexcept;
  ArrayLoader& operator=(ArrayLoader&&) noexcept;

  /// `member` names an array of a .npz; empty = the only one.
  Result<Array> Load(const std::string& path, const std::string& member = "");
  /// Names of the arrays of a .npz, in file order; an error for other files.
  Result<std::vector<std::string>> Members(const std::string& path);
  /// True when `path` is a zip file.
  Result<bool> IsNpz(const std::string& path);

  /// A raw file of integers as one axis (tokens.h).
  Result<Array> LoadTokens(const std::string& path, DType dtype, int64_t header);
  /// The characters of a text as ids in the vocabulary of the text `vocabulary` (which may be
  /// `path` itself).
  Result<TextTokens> LoadText(const std::string& path, const std::string& vocabulary);

 private:
  struct File;
  Result<File*> Open(const std::string& path);
  Result<Array> Decode(const File& file, const std::string& member) const;
  Result<std::shared_ptr<const Vocabulary>> VocabularyOf(const std::string& path);

  std::map<std::string, std::unique_ptr<File>> files_;
};

}  // namespace ampc
