// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/json.h"
#include "runtime/metrics.h"

#include "runtime/base/file.h"
#include "runtime/config/value.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

namespace ampc {
namespace {

using std::chrono::steady_clock;

constexpr size_t kLineCapacity = 8192;
constexpr size_t kFileBuffer = 1 << 16;
constexpr std::string_view kRunLine = "{\"run\":";

/// The step of a log line that this program wrote, or nullopt for the run and done lines.
std::optional<int64_t> StepOf(std::string_view line) {
  constexpr std::string_view kStart = "{\"step\":";
  if (!line.starts_with(kStart)) return std::nullopt;
  std::string_view digits = line.substr(kStart.size());
  return ParseInt(digits.substr(0, digits.find_first_not_of("0123456789")));
}

bool IsNumeric(std::string_view text) {
  return !text.empty() && (text.front() == '-' || (text.front() >= '0' && text.front() <= '9'));
}

/// Columns on a terminal of UTF-8 text.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string_view FormatNumber(double v, char (&buffer)[40]) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  // Whole numbers as they are: the shortest text of 2^30 as a float is 1073741800.
  if (std::abs(v) < 9007199254740992.0 && v == std::trunc(v) && !(v == 0 && std::signbit(v))) {
    auto end = fmt::format_to_n(buffer, sizeof buffer, "{}", static_cast<int64_t>(v));
    return {buffer, static_cast<size_t>(end.out - buffer)};
  }
  bool is_float =
      std::abs(v) <= 3.4028234663852886e38 && static_cast<double>(static_cast<float>(v)) == v;
  auto end = is_float ? fmt::format_to_n(buffer, sizeof buffer, "{}", static_cast<float>(v))
                      : fmt::format_to_n(buffer, sizeof buffer, "{}", v);
  return {buffer, static_cast<size_t>(end.out - buffer)};
}

JsonLine::JsonLine() { text_.reserve(kLineCapacity); }

void JsonLine::Begin() {
  text_.assign("{");
  first_ = true;
}

void JsonLine::Key(std::string_view key) {
  if (!first_) text_ += ',';
  first_ = false;
  Quoted(key);
  text_ += ':';
}

void JsonLine::Quoted(std::string_view text) { AppendJsonString(text, &text_); }

void JsonLine::Add(std::string_view key, double value) {
  Key(key);
  char buffer[40];
  std::string_view number = FormatNumber(value, buffer);
  if (std::isfinite(value)) {
    text_ += number;
  } else {
    Quoted(number);
  }
}

void JsonLine::Add(std::string_view key, int64_t value) {
  Key(key);
  char buffer[24];
  auto end = fmt::format_to_n(buffer, sizeof buffer, "{}", value);
  text_.append(buffer, end.out);
}

void JsonLine::Add(std::string_view key, bool value) {
  Key(key);
  text_ += value ? "true" : "false";
}

void JsonLine::Add(std::string_view key, std::string_view value) {
  Key(key);
  Quoted(value);
}

void JsonLine::AddFixed(std::string_view key, double value, int decimals) {
  if (!std::isfinite(value)) return Add(key, value);
  Key(key);
  char buffer[400];
  int length = std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  text_.append(buffer, static_cast<size_t>(length));
}

void JsonLine::BeginObject(std::string_view key) {
  Key(key);
  text_ += '{';
  first_ = true;
}

void JsonLine::EndObject() {
  text_ += '}';
  first_ = false;
}

std::string_view JsonLine::Finish() {
  text_ += "}\n";
  return text_;
}

int64_t KeptLogBytes(std::string_view log, int64_t step) {
  size_t at = 0, kept = 0;
  while (at < log.size()) {
    size_t end = log.find('\n', at);
    if (end == std::string_view::npos) break;
    std::string_view line = log.substr(at, end - at);
    std::optional<int64_t> line_step = StepOf(line);
    if (line_step ? *line_step > step : !line.starts_with(kRunLine)) break;
    if (line_step || at == 0) kept = end + 1;
    at = end + 1;
  }
  return static_cast<int64_t>(kept);
}

namespace {

int OpenLog(const std::string& path, int flags) {
  int fd;
  do {
    fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

Status CannotWrite(const std::string& path, std::string_view what, int error) {
  return IoError("E0951", "{}: {}", what, std::generic_category().message(error)).Of(path);
}

}  // namespace

JsonlLog::JsonlLog(std::string path, int fd, std::string temporary)
    : path_(std::move(path)),
      target_(FollowLinks(path_)),
      temporary_(std::move(temporary)),
      fd_(fd),
      flushed_(steady_clock::now()) {
  buffer_.reserve(kFileBuffer + kLineCapacity);
}

JsonlLog::~JsonlLog() {
  if (fd_ < 0) return;
  static_cast<void>(Flush().ok());  // the run ends with another error, which is the one to tell
  close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Result<std::unique_ptr<JsonlLog>> JsonlLog::Create(const std::string& path) {
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  std::string temporary;
  if (!exists || S_ISREG(info.st_mode)) {
    const std::string target = FollowLinks(path);
    // A folder that cannot be listed keeps its old temporaries.
    static_cast<void>(SweepTemporaries(target).ok());
    temporary = fmt::format("{}.tmp.{}", target, getpid());
    unlink(temporary.c_str());
  }
  const int fd = temporary.empty() ? OpenLog(path, 0) : OpenLog(temporary, O_CREAT | O_EXCL);
  if (fd < 0) return CannotWrite(path, "cannot be written", errno);
  std::unique_ptr<JsonlLog> log(new JsonlLog(path, fd, std::move(temporary)));
  if (exists && S_ISREG(info.st_mode) && fchmod(fd, info.st_mode & 07777) != 0)
    return log->Failed("cannot be written");
  return log;
}

Result<std::unique_ptr<JsonlLog>> JsonlLog::Resume(const std::string& path, int64_t step) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return Create(path);
  int64_t kept = -1;
  if (S_ISREG(info.st_mode)) {
    AMPC_ASSIGN(const MappedFile file, MappedFile::Open(path));
    const std::string_view text(reinterpret_cast<const char*>(file.data()),
                                static_cast<size_t>(file.size()));
    kept = KeptLogBytes(text, step);
    if (!text.empty() && kept == 0 && !text.starts_with(kRunLine) && !StepOf(text))
      return IoError("E0951", "is no log of amprun, so it is not continued; give another file")
          .Of(path);
  }
  const int fd = OpenLog(path, 0);
  if (fd < 0) return CannotWrite(path, "cannot be written", errno);
  std::unique_ptr<JsonlLog> log(new JsonlLog(path, fd, ""));
  if (kept >= 0 && ftruncate(fd, kept) != 0) return log->Failed("cannot be cut back");
  return log;
}

/// The error of now; the log takes no more lines.
Status JsonlLog::Failed(std::string_view what) {
  failed_ = true;
  return CannotWrite(path_, what, errno);
}

/// Of the buffer, `written` bytes are in the file; a part of a line at their end goes.
void JsonlLog::CutTornLine(size_t written) {
  const size_t newline = written == 0 ? std::string::npos : buffer_.rfind('\n', written - 1);
  const size_t whole = newline == std::string::npos ? 0 : newline + 1;
  struct stat info {};
  if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return;
  const off_t torn = static_cast<off_t>(written - whole);
  // When this fails too, the torn line stays; a resume cuts it off.
  if (torn > 0 && info.st_size >= torn) static_cast<void>(ftruncate(fd_, info.st_size - torn) == 0);
}

/// Gives a new file its name.
Status JsonlLog::Appear() {
  if (temporary_.empty()) return {};
  if (rename(temporary_.c_str(), target_.c_str()) != 0) return Failed("cannot be written");
  temporary_.clear();
  return SyncFolder(DirName(target_));
}

Status JsonlLog::Write(std::string_view line) {
  buffer_ += line;
  steady_clock::time_point now = steady_clock::now();
  bool due = !temporary_.empty() || buffer_.size() >= kFileBuffer;
  return due || now - flushed_ >= std::chrono::seconds(1) ? Flush() : Status();
}

Status JsonlLog::Flush() {
  if (failed_) return IoError("E0951", "an earlier line could not be written").Of(path_);
  flushed_ = steady_clock::now();
  size_t written = 0;
  while (written < buffer_.size()) {
    const ssize_t n = write(fd_, buffer_.data() + written, buffer_.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Status error = Failed("cannot be written");
      CutTornLine(written);
      return error;
    }
    written += static_cast<size_t>(n);
  }
  buffer_.clear();
  return Appear();
}

Status JsonlLog::Sync() {
  AMPC_TRY(Flush());
  while (fsync(fd_) != 0) {
    if (errno == EINVAL || errno == EROFS) break;  // a pipe or a terminal
    if (errno != EINTR) return Failed("cannot be written");
  }
  return {};
}

Status JsonlLog::Close() {
  if (fd_ < 0) return {};
  AMPC_TRY(Sync());
  if (close(std::exchange(fd_, -1)) != 0 && errno != EINTR) return Failed("cannot be written");
  return {};
}

Progress::Progress(std::FILE* terminal, int64_t total_steps)
    : terminal_(terminal), total_(total_steps) {}

Progress::~Progress() { Clear(); }

void Progress::Step(int64_t step, int64_t epoch, double loss, double ms, double samples_per_s) {
  if (terminal_ == nullptr) return;
  steady_clock::time_point now = steady_clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100) && step != total_) return;
  last_ = now;
  drawn_ = true;
  constexpr int kBar = 24;
  char bar[kBar + 1];
  int filled = total_ > 0 ? static_cast<int>(step * kBar / total_) : 0;
  for (int i = 0; i < kBar; ++i) bar[i] = i < filled ? '=' : (i == filled ? '>' : ' ');
  bar[kBar] = '\0';
  auto eta = static_cast<int64_t>(static_cast<double>(total_ - step) * ms / 1000);
  std::fprintf(
      terminal_,
      "\r\033[K%lld/%lld [%s] epoch %lld  loss %.4g  %.3g ms  %.4g samples/s  eta %lld:%02lld",
      static_cast<long long>(step), static_cast<long long>(total_), bar,
      static_cast<long long>(epoch), loss, ms, samples_per_s, static_cast<long long>(eta / 60),
      static_cast<long long>(eta % 60));
  std::fflush(terminal_);
}

void Progress::Clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", terminal_);
  std::fflush(terminal_);
  drawn_ = false;
}

std::string Table::ToString() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      std::string pad(widths[i] - Width(row[i]), ' ');
      if (i > 0) line += "  ";
      line += IsNumeric(row[i]) ? pad + row[i] : row[i] + pad;
    }
    while (line.ends_with(' ')) line.pop_back();
    out += line + '\n';
  }
  return out;
}

std::string FormatBytes(int64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace ampc
