// SPDX-License-Identifier: Apache-2.0
#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/format.h"

namespace tally {
namespace {

// Calls f with each part of "a|b|c" until it returns true.
template <class F>
void ForEachKey(std::string_view keys, F f) {
  while (true) {
    const size_t bar = keys.find('|');
    if (f(keys.substr(0, bar)) || bar == std::string_view::npos) return;
    keys.remove_prefix(bar + 1);
  }
}

}  // namespace

std::string NumberText(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

Config::Config(const Inventory& inventory, std::string architecture)
    : inventory_(inventory), architecture_(std::move(architecture)), prefix_(gguf() ? architecture_ + "." : "") {}

void Config::Fail(std::string what) {
  if (status_.ok()) status_ = BadInput(inventory_.metadata.source + ": " + std::move(what));
}

void Config::Note(const std::string& what) { notes_.push_back(inventory_.metadata.source + ": " + what); }

void Config::Unsupported(std::string_view key, std::string what) {
  Fail(prefix_ + std::string(key) + " " + std::move(what) + " is not supported");
}

std::string Config::Present(std::string_view keys) const {
  std::string found;
  ForEachKey(keys, [&](std::string_view key) {
    std::string full = prefix_ + std::string(key);
    asked_.insert(full);
    if (!inventory_.metadata.Has(full) && !inventory_.metadata.IsOther(full)) return false;
    found = std::move(full);
    return true;
  });
  return found;
}

bool Config::Unread(std::string_view key) const {
  const std::string full = prefix_ + std::string(key);
  return inventory_.metadata.Has(full) && !asked_.contains(full);
}

void Config::Missing(std::string_view keys) {
  Fail("required key " + prefix_ + std::string(keys.substr(0, keys.find('|'))) + " is missing");
}

template <class T>
bool Config::Take(Result<std::optional<T>> got, T& value) {
  if (!got.ok()) {
    if (status_.ok()) status_ = got.status();
    return false;
  }
  if (!got->has_value()) return false;
  value = **got;
  return true;
}

int32_t Config::GetInt(std::string_view keys, int64_t min, int64_t max, const int64_t* otherwise) {
  if (!ok()) return 1;
  const std::string key = Present(keys);
  int64_t value = 0;
  if (key.empty() || !Take(inventory_.metadata.GetInt(key), value)) {
    if (!ok()) return 1;
    if (otherwise != nullptr) return static_cast<int32_t>(*otherwise);
    Missing(keys);
    return 1;
  }
  if (value < min || value > max) {
    Fail(key + " is " + std::to_string(value) + "; expected " + std::to_string(min) + " to " + std::to_string(max));
    return 1;
  }
  return static_cast<int32_t>(value);
}

double Config::GetPositive(std::string_view keys, const double* otherwise) {
  if (!ok()) return 1;
  const std::string key = Present(keys);
  double value = 0;
  if (key.empty() || !Take(inventory_.metadata.GetDouble(key), value)) {
    if (!ok()) return 1;
    if (otherwise != nullptr) return *otherwise;
    Missing(keys);
    return 1;
  }
  // Also as f32, which is what kernels get.
  if (!std::isfinite(value) || !(static_cast<float>(value) > 0) || !std::isfinite(static_cast<float>(value))) {
    Fail(key + " is " + NumberText(value) + "; expected a positive finite number");
    return 1;
  }
  return value;
}

double Config::Double(std::string_view keys, double otherwise) {
  const std::string key = Present(keys);
  double value = 0;
  return !key.empty() && ok() && Take(inventory_.metadata.GetDouble(key), value) ? value : otherwise;
}

bool Config::Bool(std::string_view keys, bool otherwise) {
  const std::string key = Present(keys);
  bool value = false;
  return !key.empty() && ok() && Take(inventory_.metadata.GetBool(key), value) ? value : otherwise;
}

std::string Config::String(std::string_view keys, std::string_view otherwise) {
  const std::string key = Present(keys);
  std::string value;
  return !key.empty() && ok() && Take(inventory_.metadata.GetString(key), value) ? value : std::string(otherwise);
}

std::vector<std::string> Config::Strings(std::string_view key) {
  const std::string full = Present(key);
  std::vector<std::string> value;
  if (!full.empty() && ok()) Take(inventory_.metadata.GetStrings(full), value);
  return value;
}

std::vector<int64_t> Config::Ints(std::string_view key) {
  const std::string full = Present(key);
  std::vector<int64_t> value;
  if (!full.empty() && ok()) Take(inventory_.metadata.GetInts(full), value);
  return value;
}

}  // namespace tally
