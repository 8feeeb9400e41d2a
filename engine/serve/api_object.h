// SPDX-License-Identifier: Apache-2.0
// Reads the members of a JSON object in a body: checks types and ranges, and refuses unknown names. Internal to serve.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/api_error.h"

namespace tally {

// The first error is kept; after it everything reads as absent. A member that is null is absent.
class ApiObject {
 public:
  // An error if `json` is no object. `where`: its place in the body, "messages[2]"; empty: it is the body. `json` and `error` must outlive
  // this.
  ApiObject(const OrderedJson& json, std::string where, std::optional<ApiError>* error);

  bool ok() const { return !error_->has_value(); }
  std::optional<ApiError>* error() const { return error_; }  // for objects within this one
  // "messages[2].content"
  std::string Place(std::string_view name) const;
  // "PLACE MESSAGE"
  void Fail(std::string_view name, const std::string& message, const char* code = "invalid_value");

  // Takes a member, so that End accepts it; null: it is absent.
  const OrderedJson* Take(std::string_view name);
  std::optional<std::string> Text(std::string_view name);
  std::optional<bool> Flag(std::string_view name);
  std::optional<int64_t> Whole(std::string_view name, int64_t least, int64_t most);
  std::optional<double> Number(std::string_view name, double least, double most = std::numeric_limits<double>::infinity());
  // An object or an array, whatever it holds.
  const OrderedJson* Object(std::string_view name);
  const OrderedJson* Array(std::string_view name);
  // Accepts these members, which mean nothing here.
  void Ignore(std::initializer_list<std::string_view> names);
  // An error if a member was neither taken nor ignored.
  void End();

 private:
  using IsType = bool (OrderedJson::*)() const noexcept;
  const OrderedJson* OfType(std::string_view name, IsType is_type, const char* wanted);

  const OrderedJson& json_;
  const std::string where_;
  std::optional<ApiError>* const error_;
  std::vector<std::string_view> taken_;
};

// "list[3]"
std::string ElementPlace(std::string_view list, size_t i);

}  // namespace tally
