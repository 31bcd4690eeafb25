// SPDX-License-Identifier: Apache-2.0
#pragma once
// Writes .npz files whose arrays grow row by row, all at the same time, to a length that is known
// only at the end.
//
// Rows collect in memory and spill to one unnamed temporary file in the folder of the output;
// Commit() writes the members one after the other (stored, in the order of AddArray). Equal
// contents give equal files. Without Commit nothing remains.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

namespace ampc {

class NpzWriter {
 public:
  static Result<NpzWriter> Create(const std::string& path);
  ~NpzWriter();
  NpzWriter(NpzWriter&&) noexcept;
  NpzWriter& operator=(NpzWriter&&) noexcept;

  /// Declares the array `name` of shape [rows…, row_dims]; returns its handle. bfloat16 is written
  /// as float32.
  Result<int> AddArray(std::string_view name, DType dtype, std::span<const int64_t> row_dims);
  /// Appends `count` whole rows (row-major), which may have no bytes.
  Status AppendRows(int array, int64_t count, std::span<const std::byte> rows);
  /// An array that is complete at once.
  Status AddWhole(std::string_view name, DType dtype, std::span<const int64_t> dims,
                  std::span<const std::byte> data);
  Status Commit();

 private:
  struct State;
  explicit NpzWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ampc
