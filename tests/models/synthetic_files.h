// SPDX-License-Identifier: Apache-2.0
// The checkpoints of synthetic.h as files, their tensors all zero.
#pragma once

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "loaders/gguf_types.h"
#include "tests/loaders/raw_files.h"
#include "tests/models/synthetic.h"

namespace tally::synthetic {

// A metadata value as a GGUF key of the usual type.
inline std::string GgufKey(const std::string& key, const MetaValue& value) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        Bytes b;
        if constexpr (std::is_same_v<T, bool>) return Key(key, 7, b.U8(v));
        if constexpr (std::is_same_v<T, int64_t>) return Key(key, 4, b.U32(static_cast<uint32_t>(v)));
        if constexpr (std::is_same_v<T, uint64_t>) return Key(key, 10, b.U64(v));
        if constexpr (std::is_same_v<T, double>) return Key(key, 6, b.Le(static_cast<float>(v)));
        if constexpr (std::is_same_v<T, std::string>) return Key(key, 8, b.Str(v));
        if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          b.U32(5).U64(v.size());
          for (const int64_t e : v) b.Le(static_cast<int32_t>(e));
          return Key(key, 9, b);
        }
        if constexpr (std::is_same_v<T, std::vector<double>>) {
          b.U32(6).U64(v.size());
          for (const double e : v) b.Le(static_cast<float>(e));
          return Key(key, 9, b);
        }
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          b.U32(8).U64(v.size());
          for (const std::string& e : v) b.Str(e);
          return Key(key, 9, b);
        }
        return "";
      },
      value);
}

inline RawGguf GgufOf(const Inventory& inventory) {
  RawGguf g;
  for (const auto& [key, value] : inventory.metadata.values()) g.keys.push_back(GgufKey(key, value));
  for (const StoredTensor& t : inventory.tensors) {
    g.data_bytes = (g.data_bytes + 31) / 32 * 32;
    const uint32_t type = t.other_type.empty() ? internal::GgmlFromDType(t.dtype).value_or(0) : 99;
    g.tensors.push_back({t.name, {t.shape.rbegin(), t.shape.rend()}, type, g.data_bytes});
    g.data_bytes += t.bytes;
  }
  return g;
}

// A tensor and a key of every type that a value can have.
inline RawGguf EveryKeyType() {
  RawGguf g;
  g.keys = {Key("general.alignment", 4, Bytes().U32(32)),
            Key("split.count", 2, Bytes().Le(uint16_t{1})),
            Key("flag", 7, Bytes().U8(1)),
            Key("i", 11, Bytes().Le(int64_t{-1})),
            Key("f", 12, Bytes().Le(0.5)),
            Key("bools", 9, Bytes().U32(7).U64(2).U8(1).U8(0)),
            Key("words", 9, Bytes().U32(8).U64(2).Str("a").Str("")),
            Key("u", 9, Bytes().U32(10).U64(1).U64(7))};
  g.tensors = {{"a", {3, 2}, 0, 0}, {"b", {64, 5}, 8, 32}, {"c", {32, 1, 2}, 39, 384}};
  g.data_bytes = 384 + 34;
  return g;
}

struct SafetensorsHeader {
  std::string json;
  size_t data_bytes;
};

inline std::string SafetensorsOf(const SafetensorsHeader& header) { return Safetensors(header.json, header.data_bytes); }

// Of the tensors [begin, end).
inline SafetensorsHeader HeaderOf(const Inventory& inventory, size_t begin, size_t end) {
  nlohmann::json json = nlohmann::json::object();
  uint64_t at = 0;
  for (size_t i = begin; i < end; ++i) {
    const StoredTensor& t = inventory.tensors[i];
    json[t.name] = {{"dtype", t.type_name()}, {"shape", t.shape}, {"data_offsets", {at, at + t.bytes}}};
    at += t.bytes;
  }
  return {json.dump(), static_cast<size_t>(at)};
}

// Tensors before `half` in a.safetensors, the others in b.safetensors.
inline std::string IndexOf(const Inventory& inventory, size_t half) {
  nlohmann::json map = nlohmann::json::object();
  for (size_t i = 0; i < inventory.tensors.size(); ++i) {
    map[inventory.tensors[i].name] = i < half ? "a.safetensors" : "b.safetensors";
  }
  return nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump();
}

// Nested keys with dots, as they are in the metadata: the reader takes both.
inline std::string ConfigOf(const Inventory& inventory) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& entry : inventory.metadata.values()) {
    std::visit([&](const auto& value) { json[entry.first] = value; }, entry.second);
  }
  return json.dump(1);
}

}  // namespace tally::synthetic
