// SPDX-License-Identifier: Apache-2.0
#pragma once
// The idx format of MNIST and its relatives, plain or gzipped: two zero bytes, a type byte, the
// number of axes, the dims as big-endian 32-bit numbers, big-endian elements.

#include <memory>

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/data/array.h"

namespace ampc {

bool LooksLikeIdx(std::span<const std::byte> file);
bool LooksLikeGzip(std::span<const std::byte> file);

/// The header must account for every byte.
Result<Array> IdxArray(std::shared_ptr<const MappedFile> file);
Result<Array> GzippedIdxArray(std::span<const std::byte> file);

}  // namespace ampc
