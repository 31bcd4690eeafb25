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

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "runtime/base/crc32c.h"
#include "runtime/checkpoint.pb.h"

namespace ampc {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kCheckpointFormat = 1;
constexpr std::string_view kMagic = "AMPCCKPT";
constexpr std::string_view kPrefix = "step-", kSuffix = ".ckpt";
constexpr int64_t kAlignment = 64;
constexpr int64_t kPiece = int64_t{1} << 20;  // of a state on its way to the file or back

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

int OpenFolder(const std::string& dir) {
  int fd;
  do {
    fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  return fd;
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
  const int64_t step = std::stoll(digits);
  // "step-7.ckpt" is not a name of ours.
  return FileName(step) == name ? std::optional(step) : std::nullopt;
}

/// Steps of the checkpoint files in `dir`, newest first; stale temporaries are removed on the way.
/// A missing folder has none.
Result<std::vector<int64_t>> ListSteps(const std::string& dir) {
  std::vector<int64_t> steps;
  AMPC_ASSIGN(const std::vector<std::string> names, ListFolder(dir));
  for (const std::string& name : names) {
    std::error_code ignored;
    if (const auto step = StepOf(name)) {
      if (fs::is_regular_file(JoinPath(dir, name), ignored)) steps.push_back(*step);
    } else if (const size_t at = name.find(std::string(kSuffix) + ".tmp.");
               at != std::string::npos && StepOf(name.substr(0, at + kSuffix.size()))) {
      AMPC_TRY(SweepTemporaries(JoinPath(dir, name.substr(0, at + kSuffix.size()))));
    }
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

/// True when the folder was not there before. What leads to it is made durable too.
Result<bool> MakeFolder(const std::string& dir) {
  std::error_code error;
  if (fs::is_directory(dir, error)) return false;
  const bool made = fs::create_directories(dir, error);
  if (error) return IoError("E0651", "cannot make the folder: {}", error.message()).Of(dir);
  if (made) AMPC_TRY(SyncFolder(DirName(dir)));
  return made;
}

/// The process that has the lock on the folder behind `fd`, from the kernel's list; 0 when it is
/// not told.
int LockHolder(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return 0;
  // "12: FLOCK  ADVISORY  WRITE 4711 fe:00:123456 0 EOF"
  const std::string place =
      fmt::format(" {:02x}:{:02x}:{} ", major(info.st_dev), minor(info.st_dev), info.st_ino);
  // A reader of the list misses lines while others come and go.
  for (int attempt = 0; attempt < 20; ++attempt) {
    const Result<std::string> locks = ReadFile("/proc/locks", 1 << 24);
    if (!locks.ok()) return 0;
    const size_t at = locks->find(place);
    if (at == std::string::npos) continue;
    const size_t pid = locks->rfind(' ', at - 1);
    return pid == std::string::npos ? 0 : std::atoi(locks->c_str() + pid);
  }
  return 0;
}

/// Appends a state piece by piece; the checksum of all of them goes into `saved`.
Status AppendState(Executor& executor, int index, int64_t bytes, std::span<std::byte> buffer,
                   AtomicFile* file, pb::SavedState* saved) {
  uint32_t crc = Crc32c({});
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const auto piece = buffer.first(static_cast<size_t>(std::min(kPiece, bytes - at)));
    AMPC_TRY(executor.ReadStatePiece(index, at, piece));
    crc = Crc32c(piece, crc);
    AMPC_TRY(file->Append(piece));
  }
  saved->set_crc(crc);
  return {};
}

Status AppendStates(const plan::Plan& plan, Executor& executor, AtomicFile* file,
                    pb::Manifest* manifest) {
  std::vector<std::byte> buffer(static_cast<size_t>(kPiece));
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const plan::State& s = plan.states[i];
    if (!IsSaved(s)) continue;
    AMPC_TRY(file->PadTo(kAlignment));
    pb::SavedState* saved = manifest->add_states();
    saved->set_name(s.name);
    saved->set_dtype(static_cast<int>(s.desc.dtype));
    saved->mutable_dims()->Assign(s.desc.dims.begin(), s.desc.dims.end());
    saved->set_offset(file->size());
    saved->set_bytes(s.desc.bytes());
    AMPC_TRY(AppendState(executor, static_cast<int>(i), s.desc.bytes(), buffer, file, saved));
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

/// What cannot be read back is as good as damaged: the one before it may be readable.
Status ReadAt(const InputFile& file, int64_t offset, std::span<std::byte> out) {
  const Status status = file.ReadAt(offset, out);
  return status.ok() ? Status() : Damaged(status.message());
}

struct FoundManifest {
  std::string text;
  int64_t offset = 0;
};

/// The manifest's bytes, when head, footer and checksum are right.
Result<FoundManifest> FindManifest(const InputFile& file) {
  const int64_t size = file.size();
  std::byte head[kMagic.size() + sizeof kCheckpointFormat] = {};
  const auto head_bytes = static_cast<int64_t>(sizeof head);
  if (size >= head_bytes) AMPC_TRY(ReadAt(file, 0, head));
  if (std::memcmp(head, kMagic.data(), kMagic.size()) != 0)
    return Damaged("it does not start as a checkpoint does");
  uint32_t format = 0;
  std::memcpy(&format, head + kMagic.size(), sizeof format);
  Footer footer;
  const int64_t end = size - static_cast<int64_t>(sizeof footer);
  if (end >= head_bytes) AMPC_TRY(ReadAt(file, end, std::as_writable_bytes(std::span(&footer, 1))));
  if (std::memcmp(footer.magic, kMagic.data(), kMagic.size()) != 0)
    return Damaged("its end is missing");
  if (format > kCheckpointFormat) {
    return BadInput(
        "E0653", "checkpoint format {} is newer than format {}, the newest that this version reads",
        format, kCheckpointFormat);
  }
  if (format == 0 || footer.manifest_offset < head_bytes || footer.manifest_offset > end ||
      footer.manifest_bytes > INT_MAX || footer.manifest_bytes != end - footer.manifest_offset) {
    return Damaged("its sizes do not agree");
  }
  FoundManifest found{std::string(static_cast<size_t>(footer.manifest_bytes), '\0'),
                      footer.manifest_offset};
  AMPC_TRY(ReadAt(file, found.offset, std::as_writable_bytes(std::span(found.text))));
  if (Crc32c(std::as_bytes(std::span(found.text))) != footer.manifest_crc)
    return Damaged("the checksum of its manifest is wrong");
  return found;
}

Result<SavedState> CheckState(const pb::SavedState& in, const InputFile& file, int64_t limit,
                              std::span<std::byte> buffer) {
  SavedState out{in.name(), {}, in.offset()};
  if (!IsKnownDType(in.dtype()))
    return Damaged(fmt::format("state '{}' has data type {}", in.name(), in.dtype()));
  out.desc = {static_cast<DType>(in.dtype()), Dims(in.dims().begin(), in.dims().end())};
  const auto elements = CheckedNumElements(out.desc.dims, SizeOf(out.desc.dtype));
  if (!elements || *elements * SizeOf(out.desc.dtype) != in.bytes() || in.offset() < 0 ||
      in.offset() > limit || in.bytes() > limit - in.offset()) {
    return Damaged(fmt::format("state '{}' does not fit the file", in.name()));
  }
  uint32_t crc = Crc32c({});
  for (int64_t at = 0; at < in.bytes(); at += kPiece) {
    const auto piece = buffer.first(static_cast<size_t>(std::min(kPiece, in.bytes() - at)));
    AMPC_TRY(ReadAt(file, in.offset() + at, piece));
    crc = Crc32c(piece, crc);
  }
  if (crc != in.crc())
    return Damaged(fmt::format("the checksum of state '{}' is wrong", in.name()));
  return out;
}

Result<LoadedCheckpoint> Load(const std::string& path) {
  AMPC_ASSIGN(InputFile opened, InputFile::Open(path));
  auto file = std::make_shared<const InputFile>(std::move(opened));
  AMPC_ASSIGN(const FoundManifest found, FindManifest(*file));
  pb::Manifest manifest;
  if (!manifest.ParseFromString(found.text)) return Damaged("its manifest cannot be read");
  LoadedCheckpoint out;
  out.step = manifest.step();
  out.position = manifest.position();
  out.plan_fingerprint = manifest.plan_fingerprint();
  out.data_fingerprint = manifest.data_fingerprint();
  out.path = path;
  std::vector<std::byte> buffer(static_cast<size_t>(kPiece));
  for (const pb::SavedState& s : manifest.states()) {
    AMPC_ASSIGN(SavedState state, CheckState(s, *file, found.offset, buffer));
    out.states.push_back(std::move(state));
  }
  out.file = std::move(file);
  return out;
}

std::string FormOf(const TensorDesc& desc) {
  return fmt::format("{}{}", Name(desc.dtype), ToString(desc.dims));
}

}  // namespace

Result<std::vector<std::string>> ListFolder(const std::string& dir) {
  std::vector<std::string> names;
  const auto fails = [&](int error) {
    return IoError("E0651", "cannot list the folder: {}", std::generic_category().message(error))
        .Of(dir);
  };
  const int fd = OpenFolder(dir);
  if (fd < 0 && errno == ENOENT) return names;
  if (fd < 0) return fails(errno);
  std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(fd), &closedir);
  if (!stream) {
    const int error = errno;
    close(fd);
    return fails(error);
  }
  while (true) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr && errno != 0) return fails(errno);
    if (entry == nullptr) return names;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

Result<CheckpointFolder> CheckpointFolder::Open(const std::string& dir) {
  CheckpointFolder folder;
  folder.dir_ = dir;
  AMPC_ASSIGN(folder.made_, MakeFolder(dir));
  folder.fd_ = OpenFolder(dir);
  if (folder.fd_ < 0 || access(dir.c_str(), W_OK | X_OK) != 0) {
    return IoError("E0651", "cannot use the folder: {}", std::generic_category().message(errno))
        .Of(dir);
  }
  if (flock(folder.fd_, LOCK_EX | LOCK_NB) == 0) return folder;
  folder.locked_ = false;
  if (errno != EWOULDBLOCK) return folder;  // no locks here (some network file systems)
  const int pid = LockHolder(folder.fd_);
  return IoError("E0655", "another run{} has this checkpoint folder; give each run its own",
                 pid > 0 ? fmt::format(" (process {})", pid) : "")
      .Of(dir);
}

CheckpointFolder::~CheckpointFolder() {
  if (fd_ < 0) return;
  close(fd_);
  if (made_) rmdir(dir_.c_str());  // fails, as it should, when there is something in it
}

CheckpointFolder::CheckpointFolder(CheckpointFolder&& other) noexcept
    : dir_(std::move(other.dir_)),
      fd_(std::exchange(other.fd_, -1)),
      made_(other.made_),
      locked_(other.locked_) {}

Status SaveCheckpoint(const std::string& dir, const Checkpoint& checkpoint, const plan::Plan& plan,
                      Executor& executor, int keep) {
  AMPC_ASSIGN([[maybe_unused]] const bool made, MakeFolder(dir));
  AMPC_TRY(WriteCheckpoint(JoinPath(dir, FileName(checkpoint.step)), checkpoint, plan, executor));
  AMPC_ASSIGN(const std::vector<int64_t> steps, ListSteps(dir));
  int kept = 0;
  for (const int64_t step : steps) {
    if (step <= checkpoint.step && kept++ < std::max(keep, 1)) continue;
    const std::string path = JoinPath(dir, FileName(step));
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return IoError("E0651", "cannot remove an old checkpoint: {}",
                     std::generic_category().message(errno))
          .Of(path);
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
    if (it == saved.end() || it->second->desc != s.desc) {
      return mismatch(fmt::format("state '{}': expected {}, found {}", s.name, FormOf(s.desc),
                                  it == saved.end() ? "none" : FormOf(it->second->desc)));
    }
    ++matched;
  }
  if (matched != checkpoint.states.size()) {
    for (const SavedState& s : checkpoint.states) {
      const auto same = [&](const plan::State& p) { return IsSaved(p) && p.name == s.name; };
      if (std::none_of(plan.states.begin(), plan.states.end(), same)) {
        return mismatch(fmt::format("state '{}': expected none, found {}", s.name, FormOf(s.desc)));
      }
    }
    return mismatch("a state occurs twice");
  }
  std::vector<std::byte> buffer(static_cast<size_t>(kPiece));
  for (size_t i = 0; i < plan.states.size(); ++i) {
    if (!IsSaved(plan.states[i])) continue;
    const SavedState& s = *saved.at(plan.states[i].name);
    const int64_t bytes = s.desc.bytes();
    for (int64_t at = 0; at < bytes; at += kPiece) {
      const auto piece = std::span(buffer).first(static_cast<size_t>(std::min(kPiece, bytes - at)));
      AMPC_TRY(checkpoint.file->ReadAt(s.offset + at, piece));
      AMPC_TRY(executor.WriteStatePiece(static_cast<int>(i), at, piece));
    }
  }
  return {};
}

}  // namespace ampc
