// SPDX-License-Identifier: Apache-2.0
// Reads the members of a JSON object in a body: checks types and ranges, and names what is ignored. Internal to serve.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/api_error.h"
#include "engine/serve/api_fields.h"

namespace tally {

// The result of reading a body, shared by all objects in it: the first error, and the names that were ignored.
class ApiReading {
 public:
  // `endpoint`: selects the rows of the table of fields; nullopt: there is no table, and a name that is not read is an error. `strict`: a
  // field that would be ignored is an error.
  explicit ApiReading(std::optional<ApiEndpoint> endpoint = {}, bool strict = false) : endpoint_(endpoint), strict_(strict) {}

  std::optional<ApiError> error = {};  // the first
  std::optional<ApiEndpoint> endpoint() const { return endpoint_; }
  bool strict() const { return strict_; }
  // Adds a name to those that are ignored: what is not printable, and commas, become "?".
  void Ignore(std::string_view name);
  // Each once, at most kMostIgnored, and "..." if there were more.
  const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  const std::optional<ApiEndpoint> endpoint_;
  const bool strict_;
  std::vector<std::string> ignored_;
};
inline constexpr size_t kMostIgnored = 40;

// One JSON object. After the first error, which is kept, every member reads as absent. A member that is null is absent. With a table of
// fields, the constructor reports the refused fields, and only fields of kTaken can be read.
class ApiObject {
 public:
  // An error if `json` is no object. `where`: its place in the body, "messages[2]"; empty: it is the body. `json` and `reading` must
  // outlive this.
  ApiObject(const OrderedJson& json, std::string where, ApiReading* reading);

  bool ok() const { return !reading_->error.has_value(); }
  ApiReading* reading() const { return reading_; }  // for objects within this one
  // "messages[2].content"
  std::string Place(std::string_view name) const;
  // "PLACE MESSAGE"
  void Fail(std::string_view name, const std::string& message, const char* code = "invalid_value");

  // Takes a member, so that End accepts it; null: it is absent.
  const OrderedJson* Take(std::string_view name);
  bool HasTaken(std::string_view name) const;
  std::optional<std::string> Text(std::string_view name);
  std::optional<bool> Flag(std::string_view name);
  std::optional<int64_t> Whole(std::string_view name, int64_t least, int64_t most);
  std::optional<double> Number(std::string_view name, double least, double most = std::numeric_limits<double>::infinity());
  // An object or an array, whatever it holds.
  const OrderedJson* Object(std::string_view name);
  const OrderedJson* Array(std::string_view name);
  // Accepts these members as they are: nothing is made of them here.
  void Skip(std::initializer_list<std::string_view> names);
  // Adds `what`, a value that is left out ("tools[web_search]"), to the ignored names. If the reading is strict: the error `message` of
  // the member `name`.
  void LeaveOut(const std::string& what, std::string_view name, const std::string& message);
  // Names the members that were not taken among what is ignored. An error instead if the reading is strict, or has no table.
  void End();

 private:
  using IsType = bool (OrderedJson::*)() const noexcept;
  const OrderedJson* OfType(std::string_view name, IsType is_type, const char* wanted);
  // The row of a member; null: there is none.
  const ApiField* FieldOf(std::string_view name) const;
  void RefuseFields();

  const OrderedJson& json_;
  const std::string where_;
  ApiReading* const reading_;
  std::span<const ApiField> fields_;
  std::vector<std::string_view> taken_;
};

// "list[3]"
std::string ElementPlace(std::string_view list, size_t i);

}  // namespace tally
