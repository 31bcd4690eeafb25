// SPDX-License-Identifier: Apache-2.0
#pragma once
// Status and Result<T>: how everything that a user can cause is reported.
//
// A Status is one pointer, null when ok. An error carries a class (what the user can do about it,
// which also decides the exit code), a stable diagnostic id such as "E0107", a message that states
// what was expected and what was found, and the place: the node's label, the pass, the file. Leaf
// code writes only the fact; the loops above it add the place with At(), In() and Of(). Nothing
// here throws.

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ampc {

/// What the user can do about an error. The values are the exit codes of the tools.
enum class ErrorClass : int {
  kBadInput = 1,     ///< the model, data, recipe or plan is wrong
  kUsage = 2,        ///< the command line is wrong
  kUnsupported = 3,  ///< valid, but not built
  kNumeric = 4,      ///< training stopped for a numeric reason
  kDevice = 5,       ///< device, driver or backend library failed
  kIo = 6,           ///< disk full, unwritable, unreadable
  kInternal = 70,    ///< our bug
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  /// `id` is the stable code, e.g. "E0107"; the message starts lower-case and ends without a
  /// period.
  static Status Error(ErrorClass cls, std::string_view id, std::string message) {
    Status s;
    s.rep_ = std::make_unique<Rep>();
    s.rep_->cls = cls;
    s.rep_->id = id;
    s.rep_->message = std::move(message);
    return s;
  }

  bool ok() const { return rep_ == nullptr; }
  explicit operator bool() const { return ok(); }
  ErrorClass error_class() const { return rep_->cls; }
  const std::string& id() const { return rep_->id; }
  const std::string& message() const { return rep_->message; }
  const std::string& node() const { return rep_->node; }
  const std::string& pass() const { return rep_->pass; }
  const std::string& file() const { return rep_->file; }
  int exit_code() const { return ok() ? 0 : static_cast<int>(rep_->cls); }

  /// Adds the node ("node '/fc1/MatMul' (MatMul-13)"); the innermost place wins.
  Status At(std::string_view node) && {
    if (rep_ && rep_->node.empty()) rep_->node = node;
    return std::move(*this);
  }
  /// Adds the pass in which it happened.
  Status In(std::string_view pass) && {
    if (rep_ && rep_->pass.empty()) rep_->pass = pass;
    return std::move(*this);
  }
  /// Adds the file that it is about.
  Status Of(std::string_view file) && {
    if (rep_ && rep_->file.empty()) rep_->file = file;
    return std::move(*this);
  }
  /// "model.onnx: error[E0107]: node '/fc1/MatMul' (MatMul-13): inner dimensions differ: …"
  std::string ToString() const;

 private:
  struct Rep {
    ErrorClass cls;
    std::string id, message, node, pass, file;
  };
  std::unique_ptr<Rep> rep_;
};

template <typename... Args>
Status BadInput(std::string_view id, fmt::format_string<Args...> f, Args&&... args) {
  return Status::Error(ErrorClass::kBadInput, id, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
Status UsageError(std::string_view id, fmt::format_string<Args...> f, Args&&... args) {
  return Status::Error(ErrorClass::kUsage, id, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
Status Unsupported(std::string_view id, fmt::format_string<Args...> f, Args&&... args) {
  return Status::Error(ErrorClass::kUnsupported, id, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
Status DeviceError(std::string_view id, fmt::format_string<Args...> f, Args&&... args) {
  return Status::Error(ErrorClass::kDevice, id, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
Status IoError(std::string_view id, fmt::format_string<Args...> f, Args&&... args) {
  return Status::Error(ErrorClass::kIo, id, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
Status InternalError(std::string_view id, fmt::format_string<Args...> f, Args&&... args) {
  return Status::Error(ErrorClass::kInternal, id, fmt::format(f, std::forward<Args>(args)...));
}

/// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {
    assert(!status_.ok());
  }  // NOLINT: implicit by design
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  Status TakeStatus() && { return std::move(status_); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define AMPC_CONCAT_(a, b) a##b
#define AMPC_CONCAT(a, b) AMPC_CONCAT_(a, b)

/// Returns from the enclosing function when `expr` (a Status) is an error.
#define AMPC_TRY(expr)                                                              \
  do {                                                                              \
    if (::ampc::Status ampc_status = (expr); !ampc_status.ok()) return ampc_status; \
  } while (false)

/// `AMPC_ASSIGN(auto x, F())`: x = value of the Result, or return its Status.
#define AMPC_ASSIGN(decl, expr)                                         \
  auto AMPC_CONCAT(ampc_result_, __LINE__) = (expr);                    \
  if (!AMPC_CONCAT(ampc_result_, __LINE__).ok())                        \
    return std::move(AMPC_CONCAT(ampc_result_, __LINE__)).TakeStatus(); \
  decl = std::move(AMPC_CONCAT(ampc_result_, __LINE__)).value()

}  // namespace ampc
