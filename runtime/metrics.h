// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run tells: JSONL log, progress line, tables. Nothing here allocates once it has warmed up:
// a line is built in a buffer that keeps its capacity.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ampc {

/// Whole numbers in full; else the shortest text that reads back as the same float when `v` is one,
/// or the same double. Non-finite: inf, -inf, nan.
std::string_view FormatNumber(double v, char (&buffer)[40]);

/// One JSON object on one line. Non-finite numbers become the strings "inf", "-inf", "nan".
class JsonLine {
 public:
  JsonLine();
  void Begin();
  void Add(std::string_view key, double value);
  void Add(std::string_view key, int64_t value);
  void Add(std::string_view key, bool value);
  void Add(std::string_view key, std::string_view value);
  /// A number with `decimals` digits after the point: times, rates.
  void AddFixed(std::string_view key, double value, int decimals);
  void BeginObject(std::string_view key);
  void EndObject();
  /// Closes the object; the text ends with a newline and lives until the next Begin().
  std::string_view Finish();

 private:
  void Key(std::string_view key);
  void Quoted(std::string_view text);

  std::string text_;
  bool first_ = true;
};

/// The JSONL log file. Lines reach the file at least every second and at Close(). The file holds
/// whole lines only: when one cannot be written (a full disk), what was written of it is cut off.
class JsonlLog {
 public:
  /// A new file, which takes the place of an old one once its first line is written.
  static Result<std::unique_ptr<JsonlLog>> Create(const std::string& path);
  /// Goes on after the lines of step `step`: later ones, a `done` line and a torn last line are cut
  /// off. A missing file is created; one that is no log is refused.
  static Result<std::unique_ptr<JsonlLog>> Resume(const std::string& path, int64_t step);
  ~JsonlLog();

  Status Write(std::string_view line);
  Status Flush();
  /// Flushes, and waits until the lines are on the disk.
  Status Sync();
  /// Syncs and closes; errors of late writes appear here.
  Status Close();

 private:
  JsonlLog(std::string path, int fd, std::string temporary);
  Status Failed(std::string_view what);
  Status Appear();
  void CutTornLine(size_t written);

  std::string path_;
  std::string target_, temporary_;  ///< a new file has this name until its first line is written
  int fd_;
  bool failed_ = false;
  std::string buffer_;
  std::chrono::steady_clock::time_point flushed_;
};

/// Bytes of `log` that Resume keeps: up to the last line of a step that counts. Of the run lines
/// only the first stays without one behind it.
int64_t KeptLogBytes(std::string_view log, int64_t step);

/// One line on a terminal that is drawn over itself at most ten times a second.
class Progress {
 public:
  /// Draws on `terminal`; null = not at all.
  Progress(std::FILE* terminal, int64_t total_steps);
  ~Progress();
  void Step(int64_t step, int64_t epoch, double loss, double ms, double samples_per_s);
  /// Makes room for another line on the terminal.
  void Clear();

 private:
  std::FILE* terminal_;
  bool drawn_ = false;
  int64_t total_;
  std::chrono::steady_clock::time_point last_;
};

/// Columns aligned for a terminal: text left, numbers right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "12.3 MiB"
std::string FormatBytes(int64_t bytes);

}  // namespace ampc
