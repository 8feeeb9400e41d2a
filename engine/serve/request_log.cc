// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/request_log.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <utility>

namespace tally {
namespace {

// Of a text of the client's, or of an error that repeats one.
constexpr size_t kLongestText = 300;

std::string Cut(std::string_view text) {
  return std::string(text.substr(0, kLongestText)) + (text.size() > kLongestText ? "..." : "");
}

// ASCII: everything else is escaped.
std::string JsonText(const OrderedJson& json) { return json.dump(-1, ' ', true, OrderedJson::error_handler_t::replace); }

bool IsPlain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("-_.:+/=@[]").find(c) != std::string_view::npos;
}

// As it is, or as a string of JSON.
std::string Word(std::string_view text) {
  if (!text.empty() && text.size() <= kLongestText && std::ranges::all_of(text, IsPlain)) return std::string(text);
  return JsonText(OrderedJson(Cut(text)));
}

// As many as have `most` bytes with separators, and "..." for the others.
std::vector<std::string> FirstOf(const std::vector<std::string>& names, size_t most) {
  std::vector<std::string> first;
  size_t bytes = 0;
  for (const std::string& name : names) {
    bytes += name.size() + 2;
    if (bytes > most) {
      first.emplace_back("...");
      break;
    }
    first.push_back(name);
  }
  return first;
}

std::string SecondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", seconds);
  return text;
}

std::string PlainLine(const RequestRecord& r) {
  std::string line = UtcText(r.time) + " " + Word(r.client) + " " + Word(r.method) + " " + Word(r.path) + " " +
                     std::to_string(r.status) + " " + SecondsText(r.seconds) + "s";
  const auto add = [&](const char* name, std::string_view value) {
    if (!value.empty()) line += " " + std::string(name) + "=" + Word(value);
  };
  add("key", r.key);
  add("model", r.model);
  if (r.usage) {
    line += " prompt=" + std::to_string(r.usage->prompt_tokens) + " cached=" + std::to_string(r.usage->cached_tokens) +
            " generated=" + std::to_string(r.usage->completion_tokens);
  }
  add("id", r.id);
  if (!r.ignored.empty()) line += " ignored=" + JsonText(JoinNames(r.ignored));
  if (!r.notes.empty()) line += " notes=" + JsonText(JoinNames(r.notes));
  if (!r.error.empty()) line += " error=" + JsonText(Cut(r.error));
  return line;
}

OrderedJson OrNull(const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(Cut(text)); }

std::string JsonRecord(const RequestRecord& r) {
  OrderedJson json = {{"time", UtcText(r.time)},
                      {"client", Cut(r.client)},
                      {"key", OrNull(r.key)},
                      {"method", Cut(r.method)},
                      {"path", Cut(r.path)},
                      {"status", r.status},
                      {"seconds", std::round(r.seconds * 1000) / 1000},
                      {"id", r.id},
                      {"model", OrNull(r.model)}};
  if (r.usage) {
    json["prompt_tokens"] = r.usage->prompt_tokens;
    json["cached_tokens"] = r.usage->cached_tokens;
    json["completion_tokens"] = r.usage->completion_tokens;
  }
  if (!r.ignored.empty()) json["ignored"] = FirstOf(r.ignored, kLongestNames);
  if (!r.notes.empty()) json["notes"] = FirstOf(r.notes, kLongestNames);
  if (!r.error.empty()) json["error"] = Cut(r.error);
  return JsonText(json);
}

}  // namespace

std::string LogLine(const RequestRecord& record, LogForm form) {
  std::string line = form == LogForm::kJson ? JsonRecord(record) : PlainLine(record);
  if (line.size() <= kLongestLogLine) return line;
  RequestRecord less = record;  // a hostile one
  less.path = less.method = less.error = "...";
  less.ignored = less.notes = {};
  return LogLine(less, form);
}

std::string JoinNames(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : FirstOf(names, kLongestNames)) joined += (joined.empty() ? "" : ", ") + name;
  return joined;
}

std::string RequestId(const HttpRequest& head, ApiIds& ids) {
  constexpr size_t kLongest = 128;
  constexpr std::string_view kName = "x-request-id";
  const std::string_view given = FindHeader(head.headers, kName).value_or("");
  const auto is_safe = [](char c) { return IsPlain(c) && c != '[' && c != ']'; };
  if (!given.empty() && given.size() <= kLongest && std::ranges::all_of(given, is_safe) &&
      std::ranges::count(head.headers, kName, &std::pair<std::string, std::string>::first) == 1) {
    return std::string(given);
  }
  return ids.Next("req_");
}

std::string UtcText(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm utc{};
  char text[32] = "";
  if (::gmtime_r(&time, &utc) != nullptr) (void)std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace tally
