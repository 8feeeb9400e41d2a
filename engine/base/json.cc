// SPDX-License-Identifier: Apache-2.0
#include "engine/base/json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/base/hash.h"

namespace tally {
namespace {

// Keys that are remembered at one time to find duplicates: each takes some ten times its bytes.
constexpr size_t kMaxOpenKeys = size_t{1} << 21;

struct NonFinite {
  size_t number;  // which of the document's numbers
  double value;
};

// Replaces each NaN, Infinity and -Infinity in the place of a number by a zero of the same length, and returns them in order. Numbers are
// counted as a parser counts them, up to where the text is no JSON.
std::vector<NonFinite> TakeNonFinite(std::string& text) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr std::pair<std::string_view, double> kNames[] = {
      {"NaN", std::numeric_limits<double>::quiet_NaN()}, {"Infinity", kInfinity}, {"-Infinity", -kInfinity}};
  const auto is = [&](std::string_view set, size_t at) { return set.find(text[at]) != set.npos; };
  constexpr std::string_view kBefore = " \t\r\n:,[", kAfter = " \t\r\n,]}", kDigits = "0123456789";
  std::vector<NonFinite> found;
  size_t numbers = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
      ++at;
      continue;
    }
    const auto* const name = std::ranges::find_if(kNames, [&](const auto& n) {
      const size_t end = at + n.first.size();
      return text.compare(at, n.first.size(), n.first) == 0 && (at == 0 || is(kBefore, at - 1)) &&
             (end == text.size() || is(kAfter, end));
    });
    if (name != std::end(kNames)) {
      found.push_back({numbers++, name->second});
      text.replace(at, name->first.size(), "0." + std::string(name->first.size() - 2, '0'));
      at += name->first.size();
    } else if (text[at] == '-' || is(kDigits, at)) {
      ++numbers;
      while (at < text.size() && (is(kDigits, at) || is("+-.eE", at))) ++at;
    } else {
      ++at;
    }
  }
  return found;
}

// Turns nlohmann's callbacks into a JsonHandler's and keeps the limits.
class Adapter : public nlohmann::json_sax<nlohmann::json> {
 public:
  Adapter(const JsonLimits& limits, JsonHandler& handler, std::vector<NonFinite> non_finite)
      : limits_(limits), handler_(handler), non_finite_(std::move(non_finite)) {}
  const Status& status() const { return status_; }

  bool null() override { return Scalar(nullptr); }
  bool boolean(bool value) override { return Scalar(value); }
  bool number_integer(int64_t value) override { return Number(value); }
  bool number_unsigned(uint64_t value) override { return Number(value); }
  bool number_float(double value, const std::string&) override { return Number(value); }
  bool string(std::string& value) override { return Scalar(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) override { return Keep(InternalError("binary data in JSON")); }
  bool start_object(size_t) override { return Begin(true); }
  bool start_array(size_t) override { return Begin(false); }
  bool end_object() override { return End(); }
  bool end_array() override { return End(); }

  bool key(std::string& key) override {
    StringSet& keys = keys_.back();
    if (keys.size() == limits_.members) {
      return Keep(BadInput("an object of more than " + std::to_string(limits_.members) + " members"));
    }
    if (++open_keys_ > kMaxOpenKeys) return Keep(BadInput("more than " + std::to_string(kMaxOpenKeys) + " keys"));
    if (!keys.insert(key).second) return Keep(BadInput("the key " + Quote(key) + " appears twice"));
    return Keep(handler_.Key(std::move(key)));
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ...": the part for people.
    std::string_view what = error.what();
    if (const size_t end = what.find("] "); what.starts_with('[') && end != std::string_view::npos) what.remove_prefix(end + 2);
    constexpr size_t kMaxText = 240;  // it quotes the last token, which may be as long as the file
    return Keep(BadInput("not valid JSON: " + Printable(what, kMaxText)));
  }

 private:
  bool Keep(Status status) {
    if (status.ok()) return true;
    status_ = std::move(status);
    return false;
  }
  bool Count() {
    return ++values_ <= limits_.values || Keep(BadInput("more than " + std::to_string(limits_.values) + " values"));
  }
  bool Scalar(JsonScalar value) {
    if (keys_.empty() && limits_.object) return Keep(BadInput("expected a JSON object"));
    return Count() && Keep(handler_.Scalar(std::move(value)));
  }
  bool Number(JsonScalar value) {
    const size_t number = numbers_++;
    if (next_ == non_finite_.size() || non_finite_[next_].number != number) return Scalar(std::move(value));
    return Scalar(non_finite_[next_++].value);
  }
  bool Begin(bool object) {
    if (keys_.empty() && limits_.object && !object) return Keep(BadInput("expected a JSON object, found an array"));
    if (static_cast<int>(keys_.size()) == limits_.depth) {
      return Keep(BadInput("nested more than " + std::to_string(limits_.depth) + " deep"));
    }
    keys_.emplace_back();
    return Count() && Keep(handler_.Begin(object));
  }
  bool End() {
    open_keys_ -= keys_.back().size();
    keys_.pop_back();
    return Keep(handler_.End());
  }

  const JsonLimits limits_;
  JsonHandler& handler_;
  std::vector<StringSet> keys_;  // of each open object (an array's stay empty)
  size_t open_keys_ = 0;
  size_t values_ = 0;
  const std::vector<NonFinite> non_finite_;
  size_t numbers_ = 0, next_ = 0;  // the text's numbers so far; the next of non_finite_
  Status status_;
};

class Nobody : public JsonHandler {
 public:
  Status Key(std::string) override { return {}; }
  Status Scalar(JsonScalar) override { return {}; }
  Status Begin(bool) override { return {}; }
  Status End() override { return {}; }
};

}  // namespace

Status ParseJson(const std::string& place, std::string_view text, const JsonLimits& limits, JsonHandler& handler) {
  // The parser takes a zero byte for the end of the text.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return BadInput(place + ": not valid JSON: a zero byte at byte " + std::to_string(zero));
  }
  std::string finite;
  std::vector<NonFinite> non_finite;
  if (limits.non_finite && (text.find("NaN") != text.npos || text.find("Infinity") != text.npos)) {
    finite = text;
    non_finite = TakeNonFinite(finite);
    text = finite;
  }
  Adapter adapter(limits, handler, std::move(non_finite));
  const bool ok = nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &adapter);
  if (ok) return {};
  if (adapter.status().ok()) return InternalError(place + ": the JSON parser stopped without a reason");
  return Status(adapter.status().code(), place + ": " + adapter.status().message());
}

Status CheckJson(const std::string& place, std::string_view text, const JsonLimits& limits) {
  Nobody nobody;
  return ParseJson(place, text, limits, nobody);
}

}  // namespace tally
