// SPDX-License-Identifier: Apache-2.0
// Errors are values. Nothing in the libraries throws (std::bad_alloc passes through: engine/api/tally.h), prints or exits.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace tally {

enum class StatusCode {
  kOk = 0,
  kInternal,      // a defect of ours: exit code 1
  kBadInput,      // a file, text, option or request that cannot be honoured: exit code 2
  kNoRoom,        // memory, threads, disk or places are missing now: less, or the same later, may work: exit code 2
  kNotFinite,     // a computation gave NaN or infinity; the message names layer and op: exit code 2
  kDisagreement,  // accounts that must agree do not: exit code 3
  kInterrupted,   // stopped on request: exit code 130
  kUnreadable,    // weights that stay on disk cannot be read, or have changed there, while the model runs: exit code 2
};

// A code and one clear line. Default-constructed: success.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status BadInput(std::string message) { return {StatusCode::kBadInput, std::move(message)}; }
inline Status NoRoom(std::string message) { return {StatusCode::kNoRoom, std::move(message)}; }
inline Status NotFinite(std::string message) { return {StatusCode::kNotFinite, std::move(message)}; }
inline Status InternalError(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

// A value, or the status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)), status_() {}  // NOLINT: implicit on purpose, `return value;`
  Result(Status status) : status_(std::move(status)) {}     // NOLINT: implicit on purpose, `return status;`

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }

 private:
  std::optional<T> value_;
  Status status_{StatusCode::kInternal, "empty result"};
};

}  // namespace tally

#define TALLY_CONCAT_INNER(a, b) a##b
#define TALLY_CONCAT(a, b) TALLY_CONCAT_INNER(a, b)

#define TALLY_RETURN_IF_ERROR(expr)                                  \
  do {                                                               \
    if (::tally::Status tally_status = (expr); !tally_status.ok()) { \
      return tally_status;                                           \
    }                                                                \
  } while (0)

// TALLY_ASSIGN_OR_RETURN(auto x, MakeX());
#define TALLY_ASSIGN_OR_RETURN(decl, expr) TALLY_ASSIGN_OR_RETURN_IMPL(TALLY_CONCAT(tally_result_, __LINE__), decl, expr)
#define TALLY_ASSIGN_OR_RETURN_IMPL(tmp, decl, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) {                                   \
    return tmp.status();                             \
  }                                                  \
  decl = std::move(tmp).value()
