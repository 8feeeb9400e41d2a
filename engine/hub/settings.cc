// SPDX-License-Identifier: Apache-2.0
// The variables as huggingface_hub reads them (its constants.py and utils/_auth.py).
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "engine/base/format.h"
#include "engine/hub/hub.h"
#include "engine/hub/url.h"
#include "loaders/inventory/file_reader.h"

namespace tally::hub {
namespace {

constexpr uint64_t kMaxTokenBytes = 4096;

std::string Get(const Environment& environment, const char* variable) {
  const char* value = environment(variable);
  return value == nullptr ? "" : value;
}

bool IsTrue(std::string value) {
  for (char& c : value) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string Join(const std::string& folder, const char* name) { return (std::filesystem::path(folder) / name).string(); }

std::string Stripped(std::string_view text) {
  const char* const space = " \t\r\n";
  const size_t begin = text.find_first_not_of(space), end = text.find_last_not_of(space);
  return begin == text.npos ? "" : std::string(text.substr(begin, end + 1 - begin));
}

}  // namespace

Result<Settings> ReadSettings(const Environment& environment) {
  Settings settings;
  const std::string user = Get(environment, "HOME");
  const auto expanded = [&](const std::string& path) {
    return path == "~" || path.starts_with("~/") ? user + path.substr(1) : path;
  };
  const auto first = [&](std::initializer_list<const char*> variables) {
    for (const char* v : variables) {
      if (const std::string value = Get(environment, v); !value.empty()) return expanded(value);
    }
    return std::string();
  };
  std::string home = first({"HF_HOME"});
  if (home.empty()) {
    std::string caches = first({"XDG_CACHE_HOME"});
    if (caches.empty() && !user.empty()) caches = Join(user, ".cache");
    if (!caches.empty()) home = Join(caches, "huggingface");
  }
  settings.cache = first({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  if (settings.cache.empty()) {
    if (home.empty()) return BadInput("no folder for models: HOME, XDG_CACHE_HOME, HF_HOME and HF_HUB_CACHE are not set");
    settings.cache = Join(home, "hub");
  }
  settings.offline = IsTrue(first({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}));
  settings.ca_file = first({"CURL_CA_BUNDLE", "SSL_CERT_FILE"});

  if (std::string endpoint = Stripped(Get(environment, "HF_ENDPOINT")); !endpoint.empty()) {
    while (endpoint.ends_with('/')) endpoint.pop_back();
    if (endpoint.find_first_of("?#") != endpoint.npos)
      return BadInput("HF_ENDPOINT: an address with '?' or '#' in it is not taken");
    const Result<Url> url = ParseUrl(endpoint);
    if (!url.ok()) return BadInput("HF_ENDPOINT: " + url.status().message());
    settings.endpoint = std::move(endpoint);
  }
  // Every token of the environment is an implicit one.
  if (IsTrue(Get(environment, "HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return settings;
  settings.token = Stripped(first({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}));
  std::string source = "HF_TOKEN";
  if (settings.token.empty()) {
    std::string path = first({"HF_TOKEN_PATH"});
    if (path.empty() && !home.empty()) path = Join(home, "token");
    std::error_code ignored;
    if (!path.empty() && std::filesystem::is_regular_file(path, ignored)) {
      const Result<std::string> text = ReadTextFile(path, kMaxTokenBytes);
      settings.token_status = text.status();
      if (text.ok()) settings.token = Stripped(*text);
      source = Printable(path);
    }
  }
  // The token becomes a header. A line break in it would start another one.
  if (settings.token.size() > kMaxTokenBytes ||
      !std::all_of(settings.token.begin(), settings.token.end(), [](char c) { return c > 0x20 && c < 0x7f; })) {
    settings.token.clear();
    settings.token_status =
        BadInput(source + ": a token is one word of at most " + std::to_string(kMaxTokenBytes) + " ASCII characters");
  }
  return settings;
}

}  // namespace tally::hub
