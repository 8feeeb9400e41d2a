// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/limited_json.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/base/format.h"

namespace tally {
namespace {

constexpr size_t kMaxJsonDepth = 64;
constexpr size_t kMaxJsonMembers = 4096;

// Reads without building anything.
class JsonLimits : public nlohmann::json_sax<OrderedJson> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(OrderedJson::binary_t&) override { return true; }
  bool start_array(size_t) override { return Begin(); }
  bool end_array() override { return End(); }
  bool start_object(size_t) override { return Begin(); }
  bool end_object() override { return End(); }
  bool key(std::string&) override {
    if (++members_.back() <= kMaxJsonMembers) return true;
    exceeded_ = "an object of more than " + std::to_string(kMaxJsonMembers) + " members";
    return false;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ...": the part for people
    if (const size_t end = what.find("] "); what.starts_with('[') && end != what.npos) what.remove_prefix(end + 2);
    exceeded_ = "not valid JSON: " + Printable(what.empty() ? "at byte " + std::to_string(at) : std::string(what), 300);
    return false;
  }
  const std::string& exceeded() const { return exceeded_; }

 private:
  bool Begin() {
    members_.push_back(0);
    if (members_.size() <= kMaxJsonDepth) return true;
    exceeded_ = "nested deeper than " + std::to_string(kMaxJsonDepth);
    return false;
  }
  bool End() {
    members_.pop_back();
    return true;
  }

  std::vector<size_t> members_;  // of the open objects and arrays
  std::string exceeded_;
};

}  // namespace

Result<OrderedJson> ParseLimitedJson(const std::string& text, const std::string& where) {
  JsonLimits limits;
  if (!OrderedJson::sax_parse(text, &limits)) return BadInput(where + ": " + limits.exceeded());
  return OrderedJson::parse(text, nullptr, false);
}

}  // namespace tally
