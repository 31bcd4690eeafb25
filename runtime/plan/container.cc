// SPDX-License-Identifier: Apache-2.0
//
// The plan file. Little-endian:
//
//     0   8  magic "AMPCPLAN"
//     8   4  format version
//    12   4  zero
//    16  64  producer, zero-padded           -- up to here the same in every format version
//    80   8  header length
//    88   8  start of the weight section, a multiple of 64
//    96   8  length of the weight section; it ends the file
//   104   4  CRC-32C of the header
//   108  16  zero
//   124   4  CRC-32C of bytes 0..123
//   128      header (plan.proto), then zeros up to the weight section
//
// Each weight starts at a multiple of 64. Its checksum stands in the header and is verified when
// the weight is used.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "runtime/base/crc32c.h"
#include "runtime/base/file.h"
#include "runtime/plan/codec.h"
#include "runtime/plan/plan.h"

namespace ampc::plan {
namespace {

constexpr uint32_t kPlanFormat = 1;
constexpr std::string_view kMagic = "AMPCPLAN";
constexpr int64_t kAlignment = 64;
constexpr size_t kChunk = size_t{1} << 20;

struct Prelude {
  char magic[8];
  uint32_t format;
  uint32_t zero;
  char producer[64];
  int64_t header_bytes;
  int64_t weights_offset;
  int64_t weights_bytes;
  uint32_t header_crc;
  uint32_t zeros[4];
  uint32_t prelude_crc;
};
constexpr int64_t kPreludeBytes = 128;
static_assert(sizeof(Prelude) == kPreludeBytes);
static_assert(std::endian::native == std::endian::little, "plans are little-endian");

int64_t AlignUp(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

uint32_t PreludeCrc(const Prelude& p) {
  return Crc32c(std::as_bytes(std::span(&p, 1)).first(offsetof(Prelude, prelude_crc)));
}

class MappedWeights : public WeightSection {
 public:
  MappedWeights(MappedFile file, int64_t start) : file_(std::move(file)), start_(start) {}
  int64_t size() const override { return file_.size() - start_; }
  Status Read(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || offset > size() || static_cast<int64_t>(out.size()) > size() - offset) {
      return InternalError("E0647", "read of {}+{} outside of the weight section of {} bytes",
                           offset, out.size(), size());
    }
    if (!out.empty()) std::memcpy(out.data(), file_.data() + start_ + offset, out.size());
    return {};
  }
  bool checksummed() const override { return true; }

 private:
  MappedFile file_;
  int64_t start_;
};

/// Where each range lies in the new file, relative to the weight section.
Result<std::vector<WeightRange>> PlaceWeights(const Plan& plan, const WeightIndex& index) {
  const int64_t section = plan.weights ? plan.weights->size() : 0;
  std::vector<WeightRange> placed;
  int64_t end = 0;
  for (const auto& [range, number] : index) {
    const auto [offset, length] = range;
    if (offset < 0 || length < 0 || offset > section || length > section - offset) {
      return InternalError("E0645", "weight range {}+{} lies outside of the section of {} bytes",
                           offset, length, section);
    }
    placed.push_back({AlignUp(end), length, 0});
    end = placed.back().offset + length;
  }
  return placed;
}

/// Copies the ranges behind the header, in chunks, and notes their checksums.
Status AppendWeights(const Plan& plan, const WeightIndex& index, AtomicFile* file,
                     std::vector<WeightRange>* placed) {
  std::vector<std::byte> chunk;
  for (const auto& [range, number] : index) {
    auto [offset, left] = range;
    chunk.resize(std::max(chunk.size(), std::min(kChunk, static_cast<size_t>(left))));
    AMPC_TRY(file->PadTo(kAlignment));
    uint32_t crc = 0;
    while (left > 0) {
      const auto part = std::span(chunk).first(std::min(chunk.size(), static_cast<size_t>(left)));
      AMPC_TRY(plan.weights->Read(offset, part));
      crc = Crc32c(part, crc);
      AMPC_TRY(file->Append(part));
      offset += static_cast<int64_t>(part.size());
      left -= static_cast<int64_t>(part.size());
    }
    (*placed)[static_cast<size_t>(number)].crc = crc;
  }
  return {};
}

Status CheckPrelude(const MappedFile& file, Prelude* p) {
  if (file.size() < kPreludeBytes || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return BadInput("E0641", "not a plan: it should start with '{}'; plans are made by ampc -o",
                    kMagic);
  }
  std::memcpy(p, file.data(), sizeof *p);
  if (p->format > kPlanFormat) {
    const std::string_view producer(p->producer, strnlen(p->producer, sizeof p->producer));
    return BadInput("E0642",
                    "plan format {} (written by '{}') is newer than format {}, the newest that "
                    "this version reads; use a newer amprun or compile again",
                    p->format, producer, kPlanFormat);
  }
  if (p->format == 0) return BadInput("E0643", "damaged plan: it says that it has format 0");
  if (PreludeCrc(*p) != p->prelude_crc) {
    return BadInput("E0643", "damaged plan: checksum {:08x} of its first bytes, expected {:08x}",
                    PreludeCrc(*p), p->prelude_crc);
  }
  const int64_t size = file.size();
  if (p->header_bytes < 0 || p->weights_bytes < 0 || p->weights_offset < kPreludeBytes ||
      p->header_bytes > p->weights_offset - kPreludeBytes || p->weights_offset % kAlignment != 0 ||
      p->weights_offset > size || p->weights_bytes != size - p->weights_offset) {
    return BadInput("E0643",
                    "damaged plan: {} bytes, but its first bytes promise a header of {} and "
                    "weights at {}+{}",
                    size, p->header_bytes, p->weights_offset, p->weights_bytes);
  }
  return {};
}

Result<Plan> ReadMapped(MappedFile file) {
  Prelude p;
  AMPC_TRY(CheckPrelude(file, &p));
  const auto header = file.bytes().subspan(kPreludeBytes, static_cast<size_t>(p.header_bytes));
  if (const uint32_t crc = Crc32c(header); crc != p.header_crc) {
    return BadInput("E0643", "damaged plan: checksum {:08x} of the header, expected {:08x}", crc,
                    p.header_crc);
  }
  AMPC_ASSIGN(Plan plan, DecodePlan(header, p.weights_bytes));
  plan.producer.assign(p.producer, strnlen(p.producer, sizeof p.producer));
  plan.weights = std::make_shared<MappedWeights>(std::move(file), p.weights_offset);
  AMPC_TRY(VerifyPlan(plan));
  return plan;
}

}  // namespace

Status WritePlan(const Plan& plan, const std::string& path) {
  if (Status s = VerifyPlan(plan); !s.ok()) {
    return InternalError("E0645", "the compiled plan is not valid: {}", s.message()).At(s.node());
  }
  const WeightIndex index = IndexWeights(plan);
  AMPC_ASSIGN(std::vector<WeightRange> placed, PlaceWeights(plan, index));
  AMPC_ASSIGN(const std::string main, EncodePlan(plan, index));
  const int64_t header_bytes = static_cast<int64_t>(main.size() + EncodeWeights(placed).size());

  Prelude p = {};
  std::memcpy(p.magic, kMagic.data(), kMagic.size());
  p.format = kPlanFormat;
  std::memcpy(p.producer, plan.producer.data(), std::min(plan.producer.size(), sizeof p.producer));
  p.header_bytes = header_bytes;
  p.weights_offset = AlignUp(kPreludeBytes + header_bytes);

  AMPC_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  AMPC_TRY(file.Append(std::as_bytes(std::span(&p, 1))));
  AMPC_TRY(file.Append(main));
  AMPC_TRY(file.Append(EncodeWeights(placed)));
  AMPC_TRY(file.PadTo(kAlignment));
  AMPC_TRY(AppendWeights(plan, index, &file, &placed));

  const std::string table = EncodeWeights(placed);
  AMPC_TRY(file.WriteAt(kPreludeBytes + static_cast<int64_t>(main.size()),
                        std::as_bytes(std::span(table))));
  p.weights_bytes = file.size() - p.weights_offset;
  p.header_crc = Crc32c(std::as_bytes(std::span(table)), Crc32c(std::as_bytes(std::span(main))));
  p.prelude_crc = PreludeCrc(p);
  AMPC_TRY(file.WriteAt(0, std::as_bytes(std::span(&p, 1))));
  return file.Commit();
}

Result<Plan> ReadPlan(const std::string& path) {
  AMPC_ASSIGN(MappedFile file, MappedFile::Open(path));
  Result<Plan> plan = ReadMapped(std::move(file));
  if (!plan.ok()) return std::move(plan).TakeStatus().Of(path);
  return plan;
}

Result<PlanInfo> ReadPlanInfo(const std::string& path) {
  AMPC_ASSIGN(MappedFile file, MappedFile::Open(path));
  if (file.size() < kPreludeBytes || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return BadInput("E0641", "not a plan: it should start with '{}'", kMagic).Of(path);
  }
  Prelude p;
  std::memcpy(&p, file.data(), sizeof p);
  return PlanInfo{p.format, std::string(p.producer, strnlen(p.producer, sizeof p.producer)),
                  p.format >= 1 && p.format <= kPlanFormat};
}

}  // namespace ampc::plan
