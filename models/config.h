// SPDX-License-Identifier: Apache-2.0
// Reads and checks hyper-parameters. The first error is kept, and later look-ups return harmless values (1), so a family reads
// all its keys without looking at the status.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/recipe/check_recipe.h"
#include "loaders/inventory/inventory.h"
#include "models/binding.h"

namespace tally {

std::string NumberText(double x);  // "0.25", for messages

class Config {
 public:
  // `architecture`: GGUF's general.architecture, which is the prefix of its keys, or the name from config.json's architectures or
  // model_type.
  Config(const Inventory& inventory, std::string architecture);

  bool gguf() const { return inventory_.format == FileFormat::kGguf; }
  // The key or name for the file's format.
  std::string_view Pick(std::string_view of_gguf, std::string_view of_hf) const { return gguf() ? of_gguf : of_hf; }
  // True if the architecture is one of these names.
  bool Is(std::initializer_list<std::string_view> names) const { return std::ranges::find(names, architecture_) != names.end(); }
  // From now on keys are prefixed with `part` ("text_config.").
  void Enter(std::string_view part) { prefix_ = part; }

  // The value of the first of the keys ("a|b|c") that is present; else the default, or an error naming key and file.
  int32_t Int(std::string_view keys, int64_t min, int64_t max) { return GetInt(keys, min, max, nullptr); }
  int32_t Int(std::string_view keys, int64_t min, int64_t max, int64_t otherwise) { return GetInt(keys, min, max, &otherwise); }
  double Positive(std::string_view keys) { return GetPositive(keys, nullptr); }  // finite and > 0
  double Positive(std::string_view keys, double otherwise) { return GetPositive(keys, &otherwise); }
  double Double(std::string_view keys, double otherwise);  // any finite number
  bool Bool(std::string_view keys, bool otherwise);
  std::string String(std::string_view keys, std::string_view otherwise);
  std::vector<std::string> Strings(std::string_view key);  // empty: absent
  std::vector<int64_t> Ints(std::string_view key);         // empty: absent
  std::vector<bool> Bools(std::string_view key);           // empty: absent, or no array
  std::vector<double> Doubles(std::string_view key);       // empty: absent; finite
  bool Has(std::string_view keys) const { return !Present(keys).empty(); }
  // Refuses the key if it is present and is neither an object nor null.
  void ExpectObject(std::string_view key);
  // Refuses the key if it is present with another value.
  void ExpectBool(std::string_view key, bool value);
  void ExpectText(std::string_view key, std::string_view value);
  void ExpectNumber(std::string_view key, double value);
  // JSON null means "none" if the configuration class has a default; an absent key means the default.
  bool IsNull(std::string_view key) const { return inventory_.metadata.IsNull(prefix_ + std::string(key)); }
  // True if the key is present and no look-up has asked for it.
  bool Unread(std::string_view key) const;
  // The keys that have a value right below a prefix ("rope_scaling."), without it.
  std::vector<std::string> Below(std::string_view prefix) const;
  // Null: absent, or no MetaValue.
  const MetaValue* Find(std::string_view keys) const { return inventory_.metadata.Find(Present(keys)); }

  // Keeps the first error. Fail: "FILE: WHAT"; Unsupported: "FILE: KEY WHAT is not supported".
  void Fail(std::string_view what);
  void Unsupported(std::string_view key, std::string what);

  // A note for the user: something is read differently from what the files say. One clause.
  void Note(std::string what) { notes_.push_back(std::move(what)); }
  // The notes, and one for each key that no look-up has asked for and that looks like a misspelt one of the missing keys.
  std::vector<std::string> Notes() const;
  // Hugging Face: the keys that are missing, with the published defaults used for them ("vocab_size (32000)"); empty: none.
  std::string Defaults() const;

  std::string tensor_prefix;            // what '~' in names of tensors stands for
  std::span<const RoleName> own_names;  // the family's own, for the file's format

  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  const Inventory& inventory() const { return inventory_; }

 private:
  std::string Present(std::string_view keys) const;  // full name of the first key present; empty: none
  int32_t GetInt(std::string_view keys, int64_t min, int64_t max, const int64_t* otherwise);
  double GetPositive(std::string_view keys, const double* otherwise);
  void Missing(std::string_view keys);
  void TakeDefault(std::string_view keys, const std::string& value);
  // A key that no look-up has asked for and that looks like this full name; empty: none.
  std::string Misspelt(std::string_view full) const;
  template <class T>
  bool Take(Result<std::optional<T>> got, T& value);  // false: error (kept) or absent

  const Inventory& inventory_;
  std::string architecture_, prefix_;
  mutable std::set<std::string, std::less<>> asked_, missing_;  // full names of keys; missing_: no look-up found them or another
  std::vector<std::pair<std::string, std::string>> defaults_;   // keys and values, in the order of reading
  std::vector<std::string> notes_;
  Status status_;
};

}  // namespace tally
