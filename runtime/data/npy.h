// SPDX-License-Identifier: Apache-2.0
#pragma once
// NumPy's .npy: format versions 1 to 3, the plain numeric dtypes, either byte order, C or Fortran
// order.
//
// Pickled objects, structured and text dtypes are refused. bfloat16 has no .npy form: it is written
// as float32, which holds it exactly.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/base/tensor.h"
#include "runtime/data/array.h"

namespace ampc {

struct NpyHeader {
  DType dtype = DType::kNone;
  Dims dims;
  bool fortran_order = false;
  bool big_endian = false;
  int64_t data_offset = 0;
  int64_t data_bytes = 0;
};

/// Parses and checks everything but the amount of data that follows.
Result<NpyHeader> ParseNpyHeader(std::span<const std::byte> file);

/// The array in `file`, which must end with its last element. A view of `file` (kept by `owner`),
/// or a swapped copy.
Result<Array> NpyArray(std::span<const std::byte> file, std::shared_ptr<const void> owner);

/// Header for row-major little-endian data; its size is a multiple of 64. kBFloat16 gives that of
/// float32.
std::string MakeNpyHeader(DType dtype, std::span<const int64_t> dims);

/// `data` is row-major; bfloat16 is widened.
Status WriteNpy(const std::string& path, DType dtype, std::span<const int64_t> dims,
                std::span<const std::byte> data);

}  // namespace ampc
