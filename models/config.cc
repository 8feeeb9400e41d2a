// SPDX-License-Identifier: Apache-2.0
#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/edit_distance.h"
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

// The name by which messages call the keys: the first that is not below another.
std::string_view NameOf(std::string_view keys) {
  std::string_view name = keys.substr(0, keys.find('|'));
  ForEachKey(keys, [&](std::string_view key) {
    const bool flat = key.find('.') == key.npos;
    if (flat) name = key;
    return flat;
  });
  return name;
}

// True if one name may be the other, misspelt.
bool AreAlike(std::string_view a, std::string_view b) {
  constexpr size_t kShort = 8, kShortest = 4, kLongest = 64;  // letters of a name; without what it is below, but for the longest
  const auto letters = [](std::string_view key) { return key.size() - (key.rfind('.') + 1); };
  const size_t length = std::min(letters(a), letters(b)), most = length >= kShort ? 2 : 1;
  const auto [less, more] = std::minmax({a.size(), b.size()});
  if (length < kShortest || more > kLongest || more - less > most) return false;
  return EditDistance(a, b) <= most;
}

}  // namespace

std::string NumberText(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

Config::Config(const Inventory& inventory, std::string architecture)
    : inventory_(inventory), architecture_(std::move(architecture)), prefix_(gguf() ? architecture_ + "." : "") {}

void Config::Fail(std::string_view what) {
  if (status_.ok()) status_ = BadInput(inventory_.metadata.source + ": " + Printable(what));  // it may hold keys of the file
}

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
  if (!found.empty()) return found;
  ForEachKey(keys, [&](std::string_view key) {
    missing_.insert(prefix_ + std::string(key));
    return false;
  });
  return found;
}

std::vector<std::string> Config::Below(std::string_view prefix) const {
  const std::string full = prefix_ + std::string(prefix);
  std::vector<std::string> keys;
  const auto& values = inventory_.metadata.values();
  for (auto at = values.lower_bound(full); at != values.end() && at->first.starts_with(full); ++at) {
    if (at->first.find('.', full.size()) == std::string::npos) keys.push_back(at->first.substr(full.size()));
  }
  return keys;
}

std::string Config::Misspelt(std::string_view full) const {
  constexpr size_t kMostKeys = 2048;  // no model has as many, and they would take long
  if (inventory_.metadata.size() > kMostKeys) return "";
  for (const auto& [key, value] : inventory_.metadata.values()) {
    if (!asked_.contains(key) && AreAlike(key, full)) return key;
  }
  return "";
}

std::vector<std::string> Config::Notes() const {
  std::vector<std::string> notes = notes_;
  for (const std::string& full : missing_) {
    if (inventory_.metadata.IsNull(full)) continue;
    const std::string key = Misspelt(full);
    if (key.empty()) continue;
    const auto taken = std::ranges::find(defaults_, full, [](const auto& d) { return d.first; });
    notes.push_back("its key " + Printable(key) + " is unknown and not read; " + full + ", which it looks like, is missing" +
                    (taken == defaults_.end() ? "" : " and taken to be " + taken->second));
  }
  return notes;
}

std::string Config::Defaults() const {
  std::string text;
  for (const auto& [key, value] : defaults_) text += (text.empty() ? "" : ", ") + key + " (" + value + ")";
  return text;
}

void Config::TakeDefault(std::string_view keys, const std::string& value) {
  if (gguf()) return;  // its converters leave out what a model does not have
  bool null = false;   // the file has a key with null
  ForEachKey(keys, [&](std::string_view k) { return null = IsNull(k); });
  if (null) return;
  std::string key = prefix_ + std::string(NameOf(keys));
  if (std::ranges::find(defaults_, key, [](const auto& d) { return d.first; }) == defaults_.end()) {
    defaults_.emplace_back(std::move(key), value);
  }
}

void Config::ExpectObject(std::string_view key) {
  if (const Status object = inventory_.metadata.ExpectObject(prefix_ + std::string(key)); ok()) status_ = object;
}

void Config::ExpectBool(std::string_view key, bool value) {
  if (Has(key) && Bool(key, value) != value) Unsupported(key, value ? "false" : "true");
}

void Config::ExpectText(std::string_view key, std::string_view value) {
  if (!Has(key)) return;
  if (const std::string found = String(key, value); found != value) Unsupported(key, Quote(found));
}

void Config::ExpectNumber(std::string_view key, double value) {
  if (Has(key) && Double(key, value) != value) Unsupported(key, "other than " + NumberText(value));
}

bool Config::Unread(std::string_view key) const {
  const std::string full = prefix_ + std::string(key);
  return inventory_.metadata.Has(full) && !asked_.contains(full);
}

void Config::Missing(std::string_view keys) {
  const std::string full = prefix_ + std::string(keys.substr(0, keys.find('|'))), like = Misspelt(full);
  Fail("required key " + full + " is missing" + (like.empty() ? "" : " (" + Printable(like) + " is there)"));
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
    if (otherwise != nullptr) {
      TakeDefault(keys, std::to_string(*otherwise));
      return static_cast<int32_t>(*otherwise);
    }
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
    if (otherwise != nullptr) {
      TakeDefault(keys, NumberText(*otherwise));
      return *otherwise;
    }
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
  double value = otherwise;
  if (key.empty()) {
    TakeDefault(keys, NumberText(otherwise));
  } else if (ok() && Take(inventory_.metadata.GetDouble(key), value) && !std::isfinite(value)) {
    Fail(key + " is " + NumberText(value) + "; expected a finite number");
    return otherwise;
  }
  return value;
}

bool Config::Bool(std::string_view keys, bool otherwise) {
  const std::string key = Present(keys);
  bool value = otherwise;
  if (key.empty()) {
    TakeDefault(keys, otherwise ? "true" : "false");
  } else if (ok()) {
    Take(inventory_.metadata.GetBool(key), value);
  }
  return value;
}

std::string Config::String(std::string_view keys, std::string_view otherwise) {
  const std::string key = Present(keys);
  std::string value(otherwise);
  if (key.empty()) {
    if (!otherwise.empty()) TakeDefault(keys, value);
  } else if (ok()) {
    Take(inventory_.metadata.GetString(key), value);
  }
  return value;
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

std::vector<bool> Config::Bools(std::string_view key) {
  const std::string full = Present(key);
  const MetaValue* const found = full.empty() ? nullptr : inventory_.metadata.Find(full);
  std::vector<bool> value;
  if (found != nullptr && internal::LengthOf(*found) > 0 && ok()) Take(inventory_.metadata.GetBools(full), value);
  return value;
}

std::vector<double> Config::Doubles(std::string_view key) {
  const std::string full = Present(key);
  std::vector<double> value;
  if (full.empty() || !ok() || !Take(inventory_.metadata.GetDoubles(full), value)) return {};
  if (!std::ranges::all_of(value, [](double x) { return std::isfinite(x); })) Fail(full + ": expected finite numbers");
  return value;
}

}  // namespace tally
