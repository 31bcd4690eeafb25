// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/float16.h"

namespace ampc {
namespace {

static_assert(std::endian::native == std::endian::little, "array bytes are used as they lie");

constexpr std::string_view kMagic = "\x93NUMPY";
// NumPy itself stops at 10,000 unless told to trust the file.
constexpr int64_t kMaxHeader = 65536;

struct TypeCode {
  std::string_view code;
  DType dtype;
};
// The first row of a dtype is the one that is written.
constexpr TypeCode kTypeCodes[] = {
    {"f4", DType::kFloat32}, {"f2", DType::kFloat16}, {"f8", DType::kFloat64},
    {"u1", DType::kUInt8},   {"i1", DType::kInt8},    {"u2", DType::kUInt16},
    {"i2", DType::kInt16},   {"u4", DType::kUInt32},  {"i4", DType::kInt32},
    {"u8", DType::kUInt64},  {"i8", DType::kInt64},   {"b1", DType::kBool},
};

/// Reads the one Python dict literal that a header holds.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Status Parse(NpyHeader* out) {
    if (!Take('{')) return Damaged();
    while (!Take('}')) {
      std::string_view key;
      if (!String(&key) || !Take(':')) return Damaged();
      if (key == "descr" && !have_descr_) {
        AMPC_TRY(Descr(out));
        have_descr_ = true;
      } else if (key == "fortran_order" && !have_order_) {
        out->fortran_order = Word("True");
        if (!out->fortran_order && !Word("False")) return Damaged();
        have_order_ = true;
      } else if (key == "shape" && !have_shape_) {
        AMPC_TRY(Shape(out));
        have_shape_ = true;
      } else {
        return BadInput("E0711", "damaged .npy header: unexpected or repeated key '{}'", key);
      }
      if (!Take(',') && !Peek('}')) return Damaged();
    }
    SkipSpace();
    if (at_ != text_.size() || !have_descr_ || !have_order_ || !have_shape_) return Damaged();
    return {};
  }

 private:
  static Status Damaged() {
    return BadInput("E0711",
                    "damaged .npy header: expected {{'descr': …, 'fortran_order': …, 'shape': …}}");
  }
  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool Peek(char c) {
    SkipSpace();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool Take(char c) {
    if (!Peek(c)) return false;
    ++at_;
    return true;
  }
  bool Word(std::string_view word) {
    SkipSpace();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool String(std::string_view* out) {
    if (!Peek('\'') && !Peek('"')) return false;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return false;
    *out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }

  Status Descr(NpyHeader* out) {
    std::string_view text;
    if (Peek('['))
      return Unsupported(
          "E0712", "structured .npy arrays are not read; save each field as an array of its own");
    if (!String(&text)) return Damaged();
    if (text.find('O') != std::string_view::npos) {
      return Unsupported("E0712",
                         "the array holds pickled Python objects, which are never loaded; save it "
                         "with a numeric dtype");
    }
    std::string_view code = text;
    if (!code.empty() && std::string_view("<>|=").find(code[0]) != std::string_view::npos)
      code.remove_prefix(1);
    for (const TypeCode& row : kTypeCodes) {
      if (row.code != code) continue;
      out->dtype = row.dtype;
      out->big_endian = text[0] == '>' && SizeOf(row.dtype) > 1;
      return {};
    }
    return Unsupported("E0712",
                       "dtype '{}' is not read; expected bool, int8 to int64, uint8 to uint64, "
                       "float16, float32 or "
                       "float64 (save bfloat16 as float32)",
                       text);
  }

  Status Shape(NpyHeader* out) {
    if (!Take('(')) return Damaged();
    while (!Take(')')) {
      SkipSpace();
      int64_t dim = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0) return Damaged();
      at_ += static_cast<size_t>(end - begin);
      static_cast<void>(Word("L"));  // Python 2 wrote long integers so
      out->dims.push_back(dim);
      if (out->dims.size() > kMaxArrayRank)
        return Unsupported("E0712", "more than {} axes", kMaxArrayRank);
      if (!Take(',') && !Peek(')')) return Damaged();
    }
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  bool have_descr_ = false, have_order_ = false, have_shape_ = false;
};

}  // namespace

Result<NpyHeader> ParseNpyHeader(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic) || text.size() < 10) return BadInput("E0711", "not a .npy file");
  const int major = static_cast<unsigned char>(text[6]);
  if (major < 1 || major > 3)
    return Unsupported("E0712", ".npy format version {} (1 to 3 are read)", major);
  const size_t length_bytes = major == 1 ? 2 : 4;
  int64_t length = 0;
  if (text.size() < 8 + length_bytes) return BadInput("E0711", "truncated in the .npy header");
  std::memcpy(&length, text.data() + 8, length_bytes);
  const int64_t offset = static_cast<int64_t>(8 + length_bytes) + length;
  if (length > kMaxHeader)
    return BadInput("E0711", "a .npy header of {} bytes (at most {} are read)", length, kMaxHeader);
  if (offset > static_cast<int64_t>(text.size()))
    return BadInput("E0711", "truncated in the .npy header");
  NpyHeader header;
  header.data_offset = offset;
  AMPC_TRY(HeaderParser(text.substr(8 + length_bytes, static_cast<size_t>(length))).Parse(&header));
  const std::optional<int64_t> elements = CheckedNumElements(header.dims, SizeOf(header.dtype));
  if (!elements)
    return BadInput("E0711", "the shape {} has more elements than can be addressed",
                    ToString(header.dims));
  header.data_bytes = *elements * SizeOf(header.dtype);
  return header;
}

Result<Array> NpyArray(std::span<const std::byte> file, std::shared_ptr<const void> owner) {
  AMPC_ASSIGN(NpyHeader header, ParseNpyHeader(file));
  const std::span<const std::byte> data = file.subspan(static_cast<size_t>(header.data_offset));
  if (static_cast<int64_t>(data.size()) != header.data_bytes) {
    return BadInput("E0713", "{} {} needs {} bytes of data, the file has {}", Name(header.dtype),
                    ToString(header.dims), header.data_bytes, data.size());
  }
  Array array = MakeArray(header.dtype, header.dims, data.data(), std::move(owner));
  if (header.fortran_order && header.data_bytes > 0) {
    int64_t stride = 1;
    for (size_t axis = 0; axis < array.dims.size(); ++axis) {
      array.strides[axis] = stride;
      stride *= array.dims[axis];
    }
  }
  if (header.big_endian) {
    AMPC_ASSIGN(OwnedBytes swapped, AllocateBytes(header.data_bytes));
    std::copy(data.begin(), data.end(), swapped.span().begin());
    SwapByteOrder(swapped.span(), SizeOf(header.dtype));
    array.data = swapped.memory.get();
    array.owner = swapped.memory;
  }
  return array;
}

std::string MakeNpyHeader(DType dtype, std::span<const int64_t> dims) {
  const DType stored = dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
  std::string_view code;
  for (const TypeCode& row : kTypeCodes) {
    if (row.dtype == stored) code = row.code;
  }
  std::string shape;
  for (int64_t d : dims) shape += fmt::format("{}, ", d);
  if (dims.size() > 1) shape.resize(shape.size() - 2);
  if (dims.size() == 1) shape.resize(shape.size() - 1);  // "(3,)"
  const char order = SizeOf(stored) == 1 ? '|' : '<';
  std::string dict = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 order, code, shape);
  const size_t unpadded = kMagic.size() + 4 + dict.size() + 1;
  dict.append((64 - unpadded % 64) % 64, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(dict.size() & 0xFF);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

Status WriteNpy(const std::string& path, DType dtype, std::span<const int64_t> dims,
                std::span<const std::byte> data) {
  AMPC_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  AMPC_TRY(file.Append(MakeNpyHeader(dtype, dims)));
  if (dtype != DType::kBFloat16) {
    AMPC_TRY(file.Append(data));
    return file.Commit();
  }
  std::vector<uint16_t> low(data.size() / 2);
  std::memcpy(low.data(), data.data(), low.size() * 2);
  std::vector<float> wide(low.size());
  BFloat16ToFloat(low.data(), wide.data(), static_cast<int64_t>(low.size()));
  AMPC_TRY(file.Append(std::as_bytes(std::span(wide))));
  return file.Commit();
}

}  // namespace ampc
