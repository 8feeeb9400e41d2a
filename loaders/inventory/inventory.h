// SPDX-License-Identifier: Apache-2.0
// The contents of a checkpoint in any format: metadata, and name -> {type, shape, place in a file}.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/status.h"

namespace tally {

enum class FileFormat : uint8_t { kGguf, kHuggingFace };

// One metadata value. Arrays are homogeneous. GGUF: keys as in the file ("llama.block_count"). Hugging Face: config.json
// flattened with dots ("rope_scaling.factor"; arrays of scalars stay arrays), generation_config.json under
// "generation_config." and nothing else.
using MetaValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

class Metadata {
 public:
  void Set(std::string key, MetaValue value) { values_[std::move(key)] = std::move(value); }
  const MetaValue* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // Keys that are null in config.json. Look-ups treat them as absent. If a configuration class has a default, null means "none" and
  // absence means the default.
  void SetNull(std::string key) { nulls_.insert(std::move(key)); }
  bool IsNull(std::string_view key) const { return nulls_.find(key) != nulls_.end(); }
  // Keys whose value is no MetaValue: "an object" (its values have their own keys), "an array of arrays or objects". Find treats
  // them as absent; a typed look-up is an error that names the kind. `kind` must outlive the metadata.
  static constexpr std::string_view kObject = "an object";
  void SetOther(std::string key, std::string_view kind) { others_.emplace(std::move(key), kind); }
  bool IsOther(std::string_view key) const { return others_.find(key) != others_.end(); }
  size_t size() const { return values_.size() + nulls_.size() + others_.size(); }  // keys, of any kind
  const std::map<std::string, MetaValue, std::less<>>& values() const { return values_; }
  const std::set<std::string, std::less<>>& nulls() const { return nulls_; }
  const std::map<std::string, std::string_view, std::less<>>& others() const { return others_; }

  // Typed look-ups. nullopt: absent (or JSON null). A value of another type is an error naming key and file.
  // Integers accept any integral value that fits (2048.0 too); GetDouble accepts integers too; an empty
  // array is an empty array of any type. An array of one value for each of `layers`, all equal, is that value.
  Result<std::optional<int64_t>> GetInt(std::string_view key) const;
  Result<std::optional<double>> GetDouble(std::string_view key) const;
  Result<std::optional<bool>> GetBool(std::string_view key) const;
  Result<std::optional<std::string>> GetString(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> GetInts(std::string_view key) const;
  Result<std::optional<std::vector<double>>> GetDoubles(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> GetStrings(std::string_view key) const;
  Result<std::optional<std::vector<bool>>> GetBools(std::string_view key) const;  // integers 0 and 1 too

  // kBadInput: the key is present and is neither an object nor null.
  Status ExpectObject(std::string_view key) const;

  // The file the metadata came from, for messages.
  std::string source;
  int64_t layers = 0;  // GGUF: the layers of the model, for keys that may have a value for each; 0: unknown

 private:
  template <class T, class Convert>
  Result<std::optional<T>> Get(std::string_view key, std::string_view expected, Convert convert) const;
  template <class T, class Convert>
  Result<std::optional<std::vector<T>>> GetArray(std::string_view key, std::string_view expected, Convert convert) const;
  Status WrongType(std::string_view key, std::string_view expected, std::string_view found) const;

  std::map<std::string, MetaValue, std::less<>> values_;
  std::set<std::string, std::less<>> nulls_;
  std::map<std::string, std::string_view, std::less<>> others_;
};

struct StoredTensor {
  std::string name = {};
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape = {};  // outermost first (row-major): a matrix is [rows, cols]; GGUF's ne order is reversed here
  uint32_t file = 0;                 // index into Inventory::files
  uint64_t offset = 0;               // of the first byte, from the start of the file
  uint64_t bytes = 0;
  // The type as the file names it ("F8_E8M0", "ggml type 99") if it is none of DType; else empty. dtype is then kU8, and the offsets of the
  // tensors determine bytes, padding included. Such a tensor is listed and counted; nothing reads or copies it.
  std::string other_type = {};
  std::string_view type_name() const { return other_type.empty() ? DTypeName(dtype) : std::string_view(other_type); }
  uint64_t elements() const {
    uint64_t n = 1;
    for (uint64_t d : shape) n *= d;
    return n;
  }
};

// Identity of a file when its header was read; detects replacement or modification.
struct FileStamp {
  uint64_t device = 0, inode = 0;
  int64_t seconds = 0, nanoseconds = 0;  // of the last modification, since 1970
  bool operator==(const FileStamp&) const = default;
};

struct InventoryFile {
  std::string path = {};
  uint64_t size = 0;
  std::optional<FileStamp> stamp = {};  // nullopt: unknown, and not checked
};

struct PackedHeader;  // packed_header.h
using SideTexts = std::map<std::string, std::string, std::less<>>;

struct Inventory {
  FileFormat format = FileFormat::kGguf;  // of a packed file: its source's
  std::string path = {};                  // as the user gave it
  std::vector<InventoryFile> files = {};  // weight files
  Metadata metadata = {};
  std::vector<StoredTensor> tensors = {};  // in file order
  std::string name_prefix = {};            // Hugging Face: what all tensors' names begin with in the files; `tensors` lack it
  std::string tokenizer_json = {};         // Hugging Face: path of tokenizer.json, empty if there is none
  // Not null: read from a packed file. Files, offsets and sizes then are those of its source, which need not be there.
  std::shared_ptr<const PackedHeader> packed = {};
  // Packed, Hugging Face: the files beside the weights that hold tokenizer and templates, by their names in the directory (side_files.h).
  std::shared_ptr<const SideTexts> side_texts = {};
  const StoredTensor* Find(std::string_view name) const;
  bool HoldsScales(const StoredTensor& t) const;  // of FP8 codes stored beside it: NAME_scale or NAME_scale_inv
  void BuildIndex();                              // after `tensors` is filled

 private:
  std::map<std::string, size_t, std::less<>> index_;
};

namespace internal {

// "an integer", as a message says it.
inline std::string_view KindOf(const MetaValue& value) {
  static constexpr std::string_view kKinds[] = {
      "a boolean",          "an integer",           "an integer",           "a number",
      "a string",           "an array of booleans", "an array of integers", "an array of numbers",
      "an array of strings"};
  static_assert(std::size(kKinds) == std::variant_size_v<MetaValue>);
  return value.valueless_by_exception() ? "nothing" : kKinds[value.index()];
}

// The same, with a number that may explain why another type was expected.
inline std::string Found(const MetaValue& value) {
  std::string found(KindOf(value));
  if (const auto* u = std::get_if<uint64_t>(&value)) found += " (" + std::to_string(*u) + ")";
  if (const auto* d = std::get_if<double>(&value)) found += " (" + std::to_string(*d) + ")";
  return found;
}

// The elements of an array; 0: not an array.
inline size_t LengthOf(const MetaValue& value) {
  return std::visit(
      [](const auto& x) -> size_t {
        if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::string> || !requires { x.begin(); }) {
          return 0;
        } else {
          return x.size();
        }
      },
      value);
}

// The value that all elements of an array have; nullopt: no array, or they differ.
inline std::optional<MetaValue> CommonValue(const MetaValue& value) {
  return std::visit(
      [](const auto& x) -> std::optional<MetaValue> {
        using Array = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<Array, std::string> || !requires { x.begin(); }) {
          return std::nullopt;
        } else {
          if (x.empty() || std::adjacent_find(x.begin(), x.end(), std::not_equal_to<>()) != x.end()) return std::nullopt;
          return MetaValue(typename Array::value_type(x.front()));
        }
      },
      value);
}

// A double counts as an integer if it is one exactly. Beyond 2^53 it may be a rounded one.
inline std::optional<int64_t> IntegralValue(double d) {
  if (!(std::fabs(d) <= 9007199254740992.0) || d != std::trunc(d)) return std::nullopt;
  return static_cast<int64_t>(d);
}

}  // namespace internal

inline const MetaValue* Metadata::Find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

inline Status Metadata::WrongType(std::string_view key, std::string_view expected, std::string_view found) const {
  return BadInput(source + ": key '" + std::string(key) + "': expected " + std::string(expected) + ", found " +
                  std::string(found));
}

inline Status Metadata::ExpectObject(std::string_view key) const {
  if (const MetaValue* value = Find(key)) return WrongType(key, "an object", internal::Found(*value));
  const auto other = others_.find(key);
  const bool object = other == others_.end() || other->second == kObject;
  return object ? Status() : WrongType(key, "an object", other->second);
}

// convert: const MetaValue& -> optional<T>, nullopt if the value is not a T.
template <class T, class Convert>
Result<std::optional<T>> Metadata::Get(std::string_view key, std::string_view expected, Convert convert) const {
  const MetaValue* value = Find(key);
  if (value == nullptr) {
    const auto other = others_.find(key);
    if (other == others_.end()) return std::optional<T>();
    return WrongType(key, expected, other->second);
  }
  std::optional<T> out = convert(*value);
  if (out) return out;
  if (layers > 0 && internal::LengthOf(*value) == static_cast<size_t>(layers)) {
    const std::optional<MetaValue> common = internal::CommonValue(*value);
    if (common) out = convert(*common);
    if (out) return out;
    if (!common)
      return WrongType(key, std::string(expected) + ", the same for all layers", internal::Found(*value) + " that differ");
  }
  return WrongType(key, expected, internal::Found(*value));
}

// convert: element of a stored array -> optional<T>.
template <class T, class Convert>
Result<std::optional<std::vector<T>>> Metadata::GetArray(std::string_view key, std::string_view expected, Convert convert) const {
  return Get<std::vector<T>>(key, expected, [&](const MetaValue& value) {
    return std::visit(
        [&](const auto& array) -> std::optional<std::vector<T>> {
          using Array = std::decay_t<decltype(array)>;
          std::vector<T> out;
          if constexpr (std::is_same_v<Array, std::string> || !requires { array.begin(); }) {
            return std::nullopt;
          } else {
            out.reserve(array.size());
            for (const auto& element : array) {
              std::optional<T> converted = convert(element);
              if (!converted) return std::nullopt;
              out.push_back(std::move(*converted));
            }
            return out;
          }
        },
        value);
  });
}

inline Result<std::optional<int64_t>> Metadata::GetInt(std::string_view key) const {
  return Get<int64_t>(key, "an integer that fits 64 signed bits", [](const MetaValue& v) -> std::optional<int64_t> {
    if (const auto* i = std::get_if<int64_t>(&v)) return *i;
    if (const auto* u = std::get_if<uint64_t>(&v); u != nullptr && *u <= INT64_MAX) return static_cast<int64_t>(*u);
    if (const auto* d = std::get_if<double>(&v)) return internal::IntegralValue(*d);
    return std::nullopt;
  });
}

inline Result<std::optional<double>> Metadata::GetDouble(std::string_view key) const {
  return Get<double>(key, "a number", [](const MetaValue& v) -> std::optional<double> {
    if (const auto* d = std::get_if<double>(&v)) return *d;
    if (const auto* i = std::get_if<int64_t>(&v)) return static_cast<double>(*i);
    if (const auto* u = std::get_if<uint64_t>(&v)) return static_cast<double>(*u);
    return std::nullopt;
  });
}

inline Result<std::optional<bool>> Metadata::GetBool(std::string_view key) const {
  return Get<bool>(key, "a boolean", [](const MetaValue& v) -> std::optional<bool> {
    if (const auto* b = std::get_if<bool>(&v)) return *b;
    return std::nullopt;
  });
}

inline Result<std::optional<std::string>> Metadata::GetString(std::string_view key) const {
  return Get<std::string>(key, "a string", [](const MetaValue& v) -> std::optional<std::string> {
    if (const auto* s = std::get_if<std::string>(&v)) return *s;
    return std::nullopt;
  });
}

inline Result<std::optional<std::vector<int64_t>>> Metadata::GetInts(std::string_view key) const {
  return GetArray<int64_t>(key, "an array of integers", [](const auto& e) -> std::optional<int64_t> {
    using E = std::decay_t<decltype(e)>;
    if constexpr (std::is_same_v<E, int64_t>) return e;
    if constexpr (std::is_same_v<E, double>) return internal::IntegralValue(e);
    return std::nullopt;
  });
}

inline Result<std::optional<std::vector<double>>> Metadata::GetDoubles(std::string_view key) const {
  return GetArray<double>(key, "an array of numbers", [](const auto& e) -> std::optional<double> {
    using E = std::decay_t<decltype(e)>;
    if constexpr (std::is_same_v<E, int64_t> || std::is_same_v<E, double>) return static_cast<double>(e);
    return std::nullopt;
  });
}

inline Result<std::optional<std::vector<std::string>>> Metadata::GetStrings(std::string_view key) const {
  return GetArray<std::string>(key, "an array of strings", [](const auto& e) -> std::optional<std::string> {
    if constexpr (std::is_same_v<std::decay_t<decltype(e)>, std::string>) return e;
    return std::nullopt;
  });
}

inline Result<std::optional<std::vector<bool>>> Metadata::GetBools(std::string_view key) const {
  return GetArray<bool>(key, "an array of booleans", [](const auto& e) -> std::optional<bool> {
    using E = std::decay_t<decltype(e)>;
    if constexpr (std::is_same_v<E, bool>) return e;
    if constexpr (std::is_same_v<E, int64_t>) return e == 0 || e == 1 ? std::optional(e == 1) : std::nullopt;
    return std::nullopt;
  });
}

inline const StoredTensor* Inventory::Find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors[it->second];
}

inline bool Inventory::HoldsScales(const StoredTensor& t) const {
  for (const std::string_view end : {"_scale", "_scale_inv"}) {
    if (!t.name.ends_with(end)) continue;
    const StoredTensor* const codes = Find(std::string_view(t.name).substr(0, t.name.size() - end.size()));
    if (codes != nullptr && codes->dtype == DType::kF8_E4M3) return true;
  }
  return false;
}

inline void Inventory::BuildIndex() {
  index_.clear();
  for (size_t i = 0; i < tensors.size(); ++i) index_.emplace(tensors[i].name, i);
}

}  // namespace tally
