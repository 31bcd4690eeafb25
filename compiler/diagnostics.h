// SPDX-License-Identifier: Apache-2.0
#pragma once
// A sink for several findings: all unsupported nodes at once, notes, and the remarks that --explain
// shows.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ampc {

/// "'a', 'b' and 17 more": what a note of one kind lists, however many there are.
std::string Listed(const std::vector<std::string>& items);

struct Remark {
  std::string node;   ///< label of the node, or ""
  std::string topic;  ///< "precision", "trainable", "fold", "layout", …
  std::string text;
};

class Diagnostics {
 public:
  void Error(Status status) { errors_.push_back(std::move(status)); }
  /// Printed to stderr as "note: …" unless -q.
  void Note(std::string text) { notes_.push_back(std::move(text)); }
  /// Kept only when --explain wants them: `explaining` saves the formatting otherwise.
  bool explaining = false;
  void Explain(std::string_view node, std::string_view topic, std::string text) {
    if (explaining) remarks_.push_back({std::string(node), std::string(topic), std::move(text)});
  }

  const std::vector<Status>& errors() const { return errors_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<Remark>& remarks() const { return remarks_; }
  /// ok, or all errors in one Status: the class and id of the first, one line each.
  Status Take();

 private:
  std::vector<Status> errors_;
  std::vector<std::string> notes_;
  std::vector<Remark> remarks_;
};

}  // namespace ampc
