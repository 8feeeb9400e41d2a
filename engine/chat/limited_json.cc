// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/limited_json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace tally {
namespace {

// Keeps kOrderedJsonLimits, and takes keys that repeat.
class WithinLimits final : public nlohmann::json_sax<OrderedJson> {
 public:
  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(int64_t) override { return Count(); }
  bool number_unsigned(uint64_t) override { return Count(); }
  bool number_float(double, const std::string&) override { return Count(); }
  bool string(std::string&) override { return Count(); }
  bool binary(OrderedJson::binary_t&) override { return false; }
  bool start_object(size_t) override { return Begin(); }
  bool start_array(size_t) override { return Begin(); }
  bool key(std::string&) override { return ++members_.back() <= kOrderedJsonLimits.members; }
  bool end_object() override { return End(); }
  bool end_array() override { return End(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  bool Count() { return ++values_ <= kOrderedJsonLimits.values; }
  bool Begin() {
    members_.push_back(0);
    return Count() && members_.size() <= static_cast<size_t>(kOrderedJsonLimits.depth);
  }
  bool End() {
    members_.pop_back();
    return true;
  }
  std::vector<size_t> members_;  // of each open object and array
  size_t values_ = 0;
};

// Numbers beyond the largest double become that one.
std::string WithinRange(std::string_view text) {
  constexpr std::string_view kBegin = "-0123456789", kNumber = "+-.eE0123456789", kLargest = "1.7976931348623157e308";
  std::string within;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (text[at] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    } else if (kBegin.find(text[at]) != kBegin.npos) {
      end = std::min(text.find_first_not_of(kNumber, at), text.size());
      const double value = std::strtod(std::string(text.substr(at, end - at)).c_str(), nullptr);
      if (std::isinf(value)) {
        within += (value < 0 ? "-" : "") + std::string(kLargest);
        at = end;
      }
    }
    within += text.substr(at, end - at);
    at = end;
  }
  return within;
}

}  // namespace

std::optional<OrderedJson> ParseArguments(const std::string& text) {
  const std::string within = WithinRange(text);
  WithinLimits limits;
  if (text.find('\0') != text.npos || !OrderedJson::sax_parse(within, &limits)) return std::nullopt;
  OrderedJson json = OrderedJson::parse(within, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  return json;
}

}  // namespace tally
