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

// Null, or a value that the field's row says asks for nothing.
bool AsksNothing(const ApiField& field, const OrderedJson& value) {
  if (value.is_null()) return true;
  if (*field.nothing == '\0') return false;
  const OrderedJson list = OrderedJson::parse(field.nothing);
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

void ApiReading::Ignore(std::string_view name) {
  constexpr size_t kLongest = 80;
  std::string shown(name.substr(0, kLongest));
  for (char& c : shown) {
    if (c < ' ' || c > '~' || c == ',') c = '?';
  }
  if (name.size() > kLongest) shown += "...";
  if (std::find(ignored_.begin(), ignored_.end(), shown) != ignored_.end()) return;
  if (ignored_.size() < kMostIgnored)
    ignored_.push_back(std::move(shown));
  else if (ignored_.size() == kMostIgnored)
    ignored_.emplace_back("...");
}

ApiError ShuttingDown() {
  return {.status = 503, .message = "the server is shutting down", .type = "server_error", .code = "shutting_down"};
}

ApiError ApiErrorOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kBadInput: return {.message = status.message()};
    case StatusCode::kNoRoom: return {.status = 503, .message = status.message(), .type = "server_error", .code = "no_room"};
    case StatusCode::kUnreadable:
      return {.status = 500, .message = status.message(), .type = "server_error", .code = "weights_unreadable"};
    default: return {.status = 500, .message = status.message(), .type = "server_error"};
  }
}

OrderedJson ErrorJson(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); };
  return {{"error",
           {{"message", error.message}, {"type", error.type}, {"param", or_null(error.param)}, {"code", or_null(error.code)}}}};
}

std::string ElementPlace(std::string_view list, size_t i) { return std::string(list) + "[" + std::to_string(i) + "]"; }

ApiObject::ApiObject(const OrderedJson& json, std::string where, ApiReading* reading)
    : json_(json), where_(std::move(where)), reading_(reading) {
  if (reading_->endpoint()) fields_ = ApiFieldsOf(where_);
  if (!json.is_object() && ok()) {
    reading_->error = ApiError{
        .message = (where_.empty() ? "the body" : where_) + " must be an object", .param = where_, .code = "invalid_type"};
  }
  RefuseFields();
}

const ApiField* ApiObject::FieldOf(std::string_view name) const {
  for (const ApiField& field : fields_) {
    if (name == field.name && (field.endpoints & EndpointBit(*reading_->endpoint())) != 0) return &field;
  }
  return nullptr;
}

void ApiObject::RefuseFields() {
  if (!ok() || fields_.empty()) return;
  for (const auto& [name, value] : json_.items()) {
    const ApiField* const field = FieldOf(name);
    if (field == nullptr || field->use != FieldUse::kRefused || AsksNothing(*field, value)) continue;
    return Fail(name, std::string("is not supported: ") + field->why, field->code);
  }
}

std::string ApiObject::Place(std::string_view name) const { return (where_.empty() ? "" : where_ + ".") + Printable(name, 100); }

void ApiObject::Fail(std::string_view name, const std::string& message, const char* code) {
  if (!ok()) return;
  const std::string place = Place(name);
  reading_->error = ApiError{.message = place + " " + message, .param = place, .code = code};
}

const OrderedJson* ApiObject::Take(std::string_view name) {
  if (!ok()) return nullptr;
  const auto at = json_.find(name);
  if (at == json_.end()) return nullptr;
  if (reading_->endpoint()) {
    const ApiField* const field = FieldOf(name);
    if (field == nullptr || field->use != FieldUse::kTaken) return nullptr;
  }
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

bool ApiObject::HasTaken(std::string_view name) const { return std::find(taken_.begin(), taken_.end(), name) != taken_.end(); }

void ApiObject::Skip(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) (void)Take(name);
}

void ApiObject::LeaveOut(const std::string& what, std::string_view name, const std::string& message) {
  if (reading_->strict()) return Fail(name, message, "unsupported_value");
  if (ok()) reading_->Ignore(what);
}

void ApiObject::End() {
  if (!ok()) return;
  for (const auto& [name, value] : json_.items()) {
    if (HasTaken(name)) continue;
    const ApiField* const field = reading_->endpoint() ? FieldOf(name) : nullptr;
    if (field != nullptr && (field->use == FieldUse::kRefused || AsksNothing(*field, value))) continue;
    if (!reading_->endpoint() || (reading_->strict() && field == nullptr)) {
      return Fail(name, "is not a field that is known here", "unknown_parameter");
    }
    if (reading_->strict()) {
      return Fail(name, std::string("is ignored") + (*field->why == '\0' ? "" : ": ") + field->why + " (--strict)",
                  "unsupported_parameter");
    }
    reading_->Ignore((where_.empty() ? "" : PlaceWithoutIndices(where_) + ".") + name);
  }
}

}  // namespace tally
