// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_object.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "engine/base/format.h"

namespace tally {
namespace {

std::string NumberText(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

}  // namespace

ApiError ApiErrorOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kBadInput: return {.message = status.message()};
    case StatusCode::kNoRoom: return {.status = 503, .message = status.message(), .type = "server_error", .code = "no_room"};
    default: return {.status = 500, .message = status.message(), .type = "server_error"};
  }
}

OrderedJson ErrorJson(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); };
  return {{"error",
           {{"message", error.message}, {"type", error.type}, {"param", or_null(error.param)}, {"code", or_null(error.code)}}}};
}

std::string ElementPlace(std::string_view list, size_t i) { return std::string(list) + "[" + std::to_string(i) + "]"; }

ApiObject::ApiObject(const OrderedJson& json, std::string where, std::optional<ApiError>* error)
    : json_(json), where_(std::move(where)), error_(error) {
  if (!json.is_object() && ok()) {
    *error_ = ApiError{
        .message = (where_.empty() ? "the body" : where_) + " must be an object", .param = where_, .code = "invalid_type"};
  }
}

std::string ApiObject::Place(std::string_view name) const { return (where_.empty() ? "" : where_ + ".") + Printable(name, 100); }

void ApiObject::Fail(std::string_view name, const std::string& message, const char* code) {
  if (!ok()) return;
  const std::string place = Place(name);
  *error_ = ApiError{.message = place + " " + message, .param = place, .code = code};
}

const OrderedJson* ApiObject::Take(std::string_view name) {
  if (!ok()) return nullptr;
  const auto at = json_.find(name);
  if (at == json_.end()) return nullptr;
  taken_.push_back(name);
  return at->is_null() ? nullptr : &*at;
}

const OrderedJson* ApiObject::OfType(std::string_view name, IsType is_type, const char* wanted) {
  const OrderedJson* const value = Take(name);
  if (value == nullptr || ((*value).*is_type)()) return value;
  Fail(name, std::string("must be ") + wanted, "invalid_type");
  return nullptr;
}

const OrderedJson* ApiObject::Object(std::string_view name) { return OfType(name, &OrderedJson::is_object, "an object"); }
const OrderedJson* ApiObject::Array(std::string_view name) { return OfType(name, &OrderedJson::is_array, "an array"); }

std::optional<std::string> ApiObject::Text(std::string_view name) {
  const OrderedJson* const value = OfType(name, &OrderedJson::is_string, "a string");
  return value != nullptr ? std::optional(value->get<std::string>()) : std::nullopt;
}

std::optional<bool> ApiObject::Flag(std::string_view name) {
  const OrderedJson* const value = OfType(name, &OrderedJson::is_boolean, "true or false");
  return value != nullptr ? std::optional(value->get<bool>()) : std::nullopt;
}

std::optional<int64_t> ApiObject::Whole(std::string_view name, int64_t least, int64_t most) {
  const OrderedJson* const value = OfType(name, &OrderedJson::is_number, "a whole number");
  if (value == nullptr) return std::nullopt;
  const bool beyond = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (value->is_number_integer() && !beyond) {
    const int64_t n = value->get<int64_t>();
    if (n >= least && n <= most) return n;
  } else if (const double x = value->get<double>(); !beyond && x == std::floor(x) && std::fabs(x) < 0x1p53) {
    const auto n = static_cast<int64_t>(x);  // 1.0, as some clients write 1
    if (n >= least && n <= most) return n;
  }
  Fail(name, "must be a whole number from " + std::to_string(least) + " to " + std::to_string(most) + ", not " +
                 Printable(value->dump(), 40));
  return std::nullopt;
}

std::optional<double> ApiObject::Number(std::string_view name, double least, double most) {
  const OrderedJson* const value = OfType(name, &OrderedJson::is_number, "a number");
  if (value == nullptr) return std::nullopt;
  const double x = value->get<double>();
  if (std::isfinite(x) && x >= least && x <= most) return x;
  Fail(name,
       "must be a number " +
           (std::isinf(most) ? "of at least " + NumberText(least) : "from " + NumberText(least) + " to " + NumberText(most)) +
           ", not " + Printable(value->dump(), 40));
  return std::nullopt;
}

void ApiObject::Ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) (void)Take(name);
}

void ApiObject::End() {
  if (!ok()) return;
  for (const auto& [name, value] : json_.items()) {
    if (std::find(taken_.begin(), taken_.end(), name) != taken_.end()) continue;
    return Fail(name, "is not a field that is known here", "unknown_parameter");
  }
}

}  // namespace tally
