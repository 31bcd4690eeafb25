// SPDX-License-Identifier: Apache-2.0
//
// The checkpoint file. Little-endian:
//
//   0   8  magic "AMPCCKPT"
//   8   4  format version
//  12      zeros up to 64, then the states, each at a multiple of 64
//          manifest (checkpoint.proto): names, forms, places, checksums
//          footer of 32 bytes: manifest offset (8), length (8), CRC-32C (4), zeros (4), magic (8)

#include "runtime/state.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <filesystem>
#include <map>

#include "runtime/base/crc32c.h"
#include "runtime/checkpoint.pb.h"

namespace ampc {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kCheckpointFormat = 1;
constexpr std::string_view kMagic = "AMPCCKPT";
constexpr std::string_view kPrefix = "step-", kSuffix = ".ckpt";
constexpr int64_t kAlignment = 64;

struct Footer {
  int64_t manifest_offset = 0;
  int64_t manifest_bytes = 0;
  uint32_t manifest_crc = 0;
  uint32_t zero = 0;
  char magic[8] = {};
};
static_assert(sizeof(Footer) == 32);

bool IsSaved(const plan::State& s) {
  return s.initial.kind != plan::Initial::Kind::kDerived && s.role != plan::Role::kHyper;
}

std::string FileName(int64_t step) { return fmt::format("{}{:012}{}", kPrefix, step, kSuffix); }

/// The step in "step-000000000200.ckpt", or nullopt for any other name.
std::optional<int64_t> StepOf(std::string_view name) {
  if (name.size() <= kPrefix.size() + kSuffix.size() || name.size() > 40 ||
      !name.starts_with(kPrefix) || !name.ends_with(kSuffix)) {
    return std::nullopt;
  }
  const std::string digits(
      name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()));
  if (digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(digits);
}

/// Steps of the checkpoint files in `dir`, newest first; stale temporaries are removed on the way.
/// A missing folder has none.
Result<std::vector<int64_t>> ListSteps(const std::string& dir) {
  std::vector<int64_t> steps;
  std::error_code error;
  fs::directory_iterator it(dir, error);
  if (error == std::errc::no_such_file_or_directory) return steps;
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (const auto step = StepOf(name)) {
      steps.push_back(*step);
    } else if (const size_t at = name.find(std::string(kSuffix) + ".tmp.");
               at != std::string::npos) {
      AMPC_TRY(SweepTemporaries(JoinPath(dir, name.substr(0, at + kSuffix.size()))));
    }
  }
  if (error) return IoError("E0651", "cannot list the folder: {}", error.message()).Of(dir);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

Status MakeFolder(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return IoError("E0651", "cannot make the folder: {}", error.message()).Of(dir);
  return {};
}

Status AppendStates(const plan::Plan& plan, Executor& executor, AtomicFile* file,
                    pb::Manifest* manifest) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const plan::State& s = plan.states[i];
    if (!IsSaved(s)) continue;
    bytes.resize(static_cast<size_t>(s.desc.bytes()));
    AMPC_TRY(executor.ReadState(static_cast<int>(i), bytes));
    AMPC_TRY(file->PadTo(kAlignment));
    pb::SavedState* saved = manifest->add_states();
    saved->set_name(s.name);
    saved->set_dtype(static_cast<int>(s.desc.dtype));
    saved->mutable_dims()->Assign(s.desc.dims.begin(), s.desc.dims.end());
    saved->set_offset(file->size());
    saved->set_bytes(s.desc.bytes());
    saved->set_crc(Crc32c(bytes));
    AMPC_TRY(file->Append(bytes));
  }
  return {};
}

Status WriteCheckpoint(const std::string& path, const Checkpoint& checkpoint,
                       const plan::Plan& plan, Executor& executor) {
  AMPC_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  AMPC_TRY(file.Append(kMagic));
  AMPC_TRY(file.Append(std::as_bytes(std::span(&kCheckpointFormat, 1))));
  pb::Manifest manifest;
  manifest.set_step(checkpoint.step);
  manifest.set_position(checkpoint.position);
  manifest.set_plan_fingerprint(checkpoint.plan_fingerprint);
  manifest.set_data_fingerprint(checkpoint.data_fingerprint);
  AMPC_TRY(file.PadTo(kAlignment));
  AMPC_TRY(AppendStates(plan, executor, &file, &manifest));
  AMPC_TRY(file.PadTo(kAlignment));

  const std::string text = manifest.SerializeAsString();
  Footer footer;
  footer.manifest_offset = file.size();
  footer.manifest_bytes = static_cast<int64_t>(text.size());
  footer.manifest_crc = Crc32c(std::as_bytes(std::span(text)));
  std::memcpy(footer.magic, kMagic.data(), kMagic.size());
  AMPC_TRY(file.Append(text));
  AMPC_TRY(file.Append(std::as_bytes(std::span(&footer, 1))));
  return file.Commit();
}

// ---- loading ------------------------------------------------------------------------------------

Status Damaged(std::string_view what) { return BadInput("E0652", "{}", what); }

/// The manifest's bytes, when head, footer and checksum are right.
Result<std::span<const std::byte>> FindManifest(const MappedFile& file) {
  const int64_t size = file.size();
  const auto head = static_cast<int64_t>(kMagic.size() + sizeof kCheckpointFormat);
  if (size < head || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return Damaged("it does not start as a checkpoint does");
  }
  uint32_t format = 0;
  std::memcpy(&format, file.data() + kMagic.size(), sizeof format);
  Footer footer;
  const bool complete = size >= head + static_cast<int64_t>(sizeof footer);
  if (complete) std::memcpy(&footer, file.data() + size - sizeof footer, sizeof footer);
  if (!complete || std::memcmp(footer.magic, kMagic.data(), kMagic.size()) != 0)
    return Damaged("its end is missing");
  if (format > kCheckpointFormat) {
    return BadInput(
        "E0653", "checkpoint format {} is newer than format {}, the newest that this version reads",
        format, kCheckpointFormat);
  }
  const int64_t end = size - static_cast<int64_t>(sizeof footer);
  if (format == 0 || footer.manifest_offset < head || footer.manifest_offset > end ||
      footer.manifest_bytes > INT_MAX || footer.manifest_bytes != end - footer.manifest_offset) {
    return Damaged("its sizes do not agree");
  }
  const auto manifest = file.bytes().subspan(static_cast<size_t>(footer.manifest_offset),
                                             static_cast<size_t>(footer.manifest_bytes));
  if (Crc32c(manifest) != footer.manifest_crc)
    return Damaged("the checksum of its manifest is wrong");
  return manifest;
}

Result<SavedState> CheckState(const pb::SavedState& in, const MappedFile& file, int64_t limit) {
  SavedState out{in.name(), {}, in.offset()};
  if (!IsKnownDType(in.dtype()))
    return Damaged(fmt::format("state '{}' has data type {}", in.name(), in.dtype()));
  out.desc = {static_cast<DType>(in.dtype()), Dims(in.dims().begin(), in.dims().end())};
  const auto elements = CheckedNumElements(out.desc.dims, SizeOf(out.desc.dtype));
  if (!elements || *elements * SizeOf(out.desc.dtype) != in.bytes() || in.offset() < 0 ||
      in.offset() > limit || in.bytes() > limit - in.offset()) {
    return Damaged(fmt::format("state '{}' does not fit the file", in.name()));
  }
  const auto bytes =
      file.bytes().subspan(static_cast<size_t>(in.offset()), static_cast<size_t>(in.bytes()));
  if (Crc32c(bytes) != in.crc())
    return Damaged(fmt::format("the checksum of state '{}' is wrong", in.name()));
  return out;
}

Result<LoadedCheckpoint> Load(const std::string& path) {
  AMPC_ASSIGN(MappedFile mapped, MappedFile::Open(path));
  auto file = std::make_shared<const MappedFile>(std::move(mapped));
  AMPC_ASSIGN(const auto bytes, FindManifest(*file));
  pb::Manifest manifest;
  if (!manifest.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Damaged("its manifest cannot be read");
  }
  LoadedCheckpoint out;
  out.step = manifest.step();
  out.position = manifest.position();
  out.plan_fingerprint = manifest.plan_fingerprint();
  out.data_fingerprint = manifest.data_fingerprint();
  out.path = path;
  for (const pb::SavedState& s : manifest.states()) {
    AMPC_ASSIGN(SavedState state, CheckState(s, *file, bytes.data() - file->data()));
    out.states.push_back(std::move(state));
  }
  out.file = std::move(file);
  return out;
}

std::string FormOf(const TensorDesc& desc) {
  return fmt::format("{}{}", Name(desc.dtype), ToString(desc.dims));
}

}  // namespace

Status SaveCheckpoint(const std::string& dir, const Checkpoint& checkpoint, const plan::Plan& plan,
                      Executor& executor, int keep) {
  AMPC_TRY(MakeFolder(dir));
  AMPC_TRY(WriteCheckpoint(JoinPath(dir, FileName(checkpoint.step)), checkpoint, plan, executor));
  AMPC_ASSIGN(const std::vector<int64_t> steps, ListSteps(dir));
  int kept = 0;
  for (const int64_t step : steps) {
    if (step <= checkpoint.step && kept++ < std::max(keep, 1)) continue;
    std::error_code error;
    if (!fs::remove(JoinPath(dir, FileName(step)), error) && error) {
      return IoError("E0651", "cannot remove an old checkpoint: {}", error.message())
          .Of(JoinPath(dir, FileName(step)));
    }
  }
  return {};
}

Result<std::optional<LoadedCheckpoint>> LoadLatestCheckpoint(const std::string& dir,
                                                             std::vector<std::string>* notes) {
  AMPC_ASSIGN(const std::vector<int64_t> steps, ListSteps(dir));
  std::string reasons;
  for (const int64_t step : steps) {
    const std::string path = JoinPath(dir, FileName(step));
    Result<LoadedCheckpoint> loaded = Load(path);
    if (loaded.ok()) return std::optional(std::move(loaded).value());
    if (loaded.status().id() != "E0652") return std::move(loaded).TakeStatus().Of(path);
    notes->push_back(fmt::format("checkpoint '{}' is damaged: {}; trying the one before it", path,
                                 loaded.status().message()));
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", FileName(step),
                           loaded.status().message());
  }
  if (!steps.empty()) {
    return BadInput("E0652", "no checkpoint here is intact ({}); remove the files to start afresh",
                    reasons)
        .Of(dir);
  }
  return std::optional<LoadedCheckpoint>();
}

Status RestoreCheckpoint(const LoadedCheckpoint& checkpoint, const plan::Plan& plan,
                         Executor& executor) {
  const auto mismatch = [&](std::string what) {
    return BadInput("E0654",
                    "the checkpoint is of another plan: {}; resume with the plan that wrote it",
                    what)
        .Of(checkpoint.path);
  };
  std::map<std::string_view, const SavedState*> saved;
  for (const SavedState& s : checkpoint.states) saved[s.name] = &s;
  size_t matched = 0;
  for (const plan::State& s : plan.states) {
    if (!IsSaved(s)) continue;
    const auto it = saved.find(s.name);
    if (it == saved.end()) return mismatch(fmt::format("it has no state '{}'", s.name));
    if (it->second->desc != s.desc) {
      return mismatch(fmt::format("state '{}' is {} there and {} in the plan", s.name,
                                  FormOf(it->second->desc), FormOf(s.desc)));
    }
    ++matched;
  }
  if (matched != checkpoint.states.size()) {
    for (const SavedState& s : checkpoint.states) {
      const auto same = [&](const plan::State& p) { return IsSaved(p) && p.name == s.name; };
      if (std::none_of(plan.states.begin(), plan.states.end(), same)) {
        return mismatch(fmt::format("the plan has no state '{}'", s.name));
      }
    }
    return mismatch("a state occurs twice");
  }
  for (size_t i = 0; i < plan.states.size(); ++i) {
    if (!IsSaved(plan.states[i])) continue;
    const SavedState& s = *saved.at(plan.states[i].name);
    AMPC_TRY(executor.WriteState(static_cast<int>(i), checkpoint.file->bytes().subspan(
                                                          static_cast<size_t>(s.offset),
                                                          static_cast<size_t>(s.desc.bytes()))));
  }
  return {};
}

}  // namespace ampc
