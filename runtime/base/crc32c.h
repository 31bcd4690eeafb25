// SPDX-License-Identifier: Apache-2.0
#pragma once
// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected): the checksum of plans and checkpoints.
//
// Uses the SSE 4.2 instruction when the processor has it, else eight tables; both give the same
// number.

#include <cstddef>
#include <cstdint>
#include <span>

namespace ampc {

/// Checksum of `bytes`; Crc32c(b, Crc32c(a)) is the checksum of a followed by b. "123456789" gives
/// 0xE3069283.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

/// The table form alone, for tests and for machines without the instruction.
uint32_t Crc32cPortable(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace ampc
