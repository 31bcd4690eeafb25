// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics.h"

#include "runtime/base/file.h"
#include "runtime/config/value.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>

namespace ampc {
namespace {

using std::chrono::steady_clock;

constexpr size_t kLineCapacity = 8192;
constexpr size_t kFileBuffer = 1 << 16;
constexpr int64_t kMaxLogBytes = int64_t{1} << 34;

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

void JsonLine::Quoted(std::string_view text) {
  text_ += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(text_), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

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
  size_t at = 0;
  while (at < log.size()) {
    size_t end = log.find('\n', at);
    if (end == std::string_view::npos) break;
    std::string_view line = log.substr(at, end - at);
    std::optional<int64_t> line_step = StepOf(line);
    bool keep = line_step ? *line_step <= step : line.starts_with("{\"run\":");
    if (!keep) break;
    at = end + 1;
  }
  return static_cast<int64_t>(at);
}

JsonlLog::JsonlLog(std::string path, FILE* file)
    : path_(std::move(path)),
      file_(file),
      buffer_(std::make_unique<char[]>(kFileBuffer)),
      flushed_(steady_clock::now()) {
  std::setvbuf(file_, buffer_.get(), _IOFBF, kFileBuffer);
}

JsonlLog::~JsonlLog() {
  if (file_ != nullptr) std::fclose(file_);
}

Result<std::unique_ptr<JsonlLog>> JsonlLog::Create(const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr)
    return IoError("E0951", "cannot be written: {}", std::strerror(errno)).Of(path);
  return std::unique_ptr<JsonlLog>(new JsonlLog(path, file));
}

Result<std::unique_ptr<JsonlLog>> JsonlLog::Resume(const std::string& path, int64_t step) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return Create(path);
  if (S_ISREG(info.st_mode)) {
    AMPC_ASSIGN(std::string text, ReadFile(path, kMaxLogBytes));
    if (truncate(path.c_str(), KeptLogBytes(text, step)) != 0)
      return IoError("E0951", "cannot be cut back: {}", std::strerror(errno)).Of(path);
  }
  FILE* file = std::fopen(path.c_str(), "ae");
  if (file == nullptr)
    return IoError("E0951", "cannot be written: {}", std::strerror(errno)).Of(path);
  return std::unique_ptr<JsonlLog>(new JsonlLog(path, file));
}

Status JsonlLog::Write(std::string_view line) {
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size())
    return IoError("E0951", "cannot be written: {}", std::strerror(errno)).Of(path_);
  steady_clock::time_point now = steady_clock::now();
  return now - flushed_ >= std::chrono::seconds(1) ? Flush() : Status();
}

Status JsonlLog::Flush() {
  flushed_ = steady_clock::now();
  if (std::fflush(file_) != 0)
    return IoError("E0951", "cannot be written: {}", std::strerror(errno)).Of(path_);
  return {};
}

Status JsonlLog::Close() {
  if (file_ == nullptr) return {};
  Status status = Flush();
  if (std::fclose(std::exchange(file_, nullptr)) != 0 && status.ok())
    status = IoError("E0951", "cannot be written: {}", std::strerror(errno)).Of(path_);
  return status;
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
      stderr,
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
