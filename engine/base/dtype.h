// SPDX-License-Identifier: Apache-2.0
// Element types of stored tensors: the weight formats (formats.inc), and the types that files may hold beside them
// (stored_types.inc).
//
// A quantised type stores blocks of block_size consecutive elements of a row.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally {

enum class DType : uint8_t {
#define TALLY_FORMAT(name, elements, bytes, use) k##name,
#include "engine/base/formats.inc"
#undef TALLY_FORMAT
#define TALLY_STORED(name, elements, bytes) k##name,
#include "engine/base/stored_types.inc"
#undef TALLY_STORED
};

// The types that matrices can be multiplied in, in formats.inc's order.
inline constexpr std::array kWeightTypes = {
#define TALLY_FORMAT(name, elements, bytes, use) DType::k##name,
#include "engine/base/formats.inc"
#undef TALLY_FORMAT
};
// All types, in the order of their values: the weight types first.
inline constexpr std::array kDTypes = {
#define TALLY_FORMAT(name, elements, bytes, use) DType::k##name,
#include "engine/base/formats.inc"
#undef TALLY_FORMAT
#define TALLY_STORED(name, elements, bytes) DType::k##name,
#include "engine/base/stored_types.inc"
#undef TALLY_STORED
};
inline constexpr bool IsWeightType(DType t) { return static_cast<size_t>(t) < kWeightTypes.size(); }

// Which tensors of a published model are stored in a format: formats.inc.
enum class FormatUse : uint8_t { kNone, kEverything, kMatrices, kExperts };

struct DTypeInfo {
  std::string_view name = {};  // as people write it: "BF16"
  uint32_t block_size = 0;     // elements in a block (1: not quantised)
  uint32_t block_bytes = 0;
  bool quantised = false;
  FormatUse use = FormatUse::kNone;  // kNone: no weight format
};

inline constexpr DTypeInfo GetDTypeInfo(DType t) {
  switch (t) {
#define TALLY_FORMAT(name, elements, bytes, use) \
  case DType::k##name:                           \
    return {#name, elements, bytes, (elements) > 1, FormatUse::use};
#include "engine/base/formats.inc"
#undef TALLY_FORMAT
#define TALLY_STORED(name, elements, bytes) \
  case DType::k##name:                      \
    return {#name, elements, bytes, (elements) > 1, FormatUse::kNone};
#include "engine/base/stored_types.inc"
#undef TALLY_STORED
  }
  return {"?", 1, 1, false, FormatUse::kNone};
}
inline constexpr bool IsOfExperts(DType t) { return GetDTypeInfo(t).use == FormatUse::kExperts; }

inline constexpr std::string_view DTypeName(DType t) { return GetDTypeInfo(t).name; }

// Bytes of `n` consecutive elements, or nullopt if `n` is not a whole number of blocks or the product overflows.
inline constexpr std::optional<uint64_t> StoredBytes(DType t, uint64_t n) {
  const DTypeInfo i = GetDTypeInfo(t);
  if (n % i.block_size != 0) return std::nullopt;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(n / i.block_size, uint64_t{i.block_bytes}, &bytes)) return std::nullopt;
  return bytes;
}

// The weight types by name, for people: "F32, F16 or BF16" and so on, with `last` before the last one.
inline std::string WeightTypeNames(std::string_view last = " or ") {
  std::string text;
  for (size_t i = 0; i < kWeightTypes.size(); ++i) {
    text += i == 0 ? std::string_view() : i + 1 < kWeightTypes.size() ? std::string_view(", ") : last;
    text += DTypeName(kWeightTypes[i]);
  }
  return text;
}

// Element types that weights can be written and counted in, by name ("Q8_0", case ignored). kBadInput lists them.
TALLY_API Result<DType> ParseWeightType(std::string_view name);

}  // namespace tally
