// Element types of stored tensors: the weight formats (formats.inc) and the plain types that files may hold beside them.
//
// A quantised type stores blocks of block_size consecutive elements of a row; engine/kernels/formats/ has their bytes.
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
  kF64,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kBool
};

// The types that matrices can be multiplied in, in formats.inc's order.
inline constexpr std::array kWeightTypes = {
#define TALLY_FORMAT(name, elements, bytes, use) DType::k##name,
#include "engine/base/formats.inc"
#undef TALLY_FORMAT
};
inline constexpr bool IsWeightType(DType t) { return static_cast<size_t>(t) < kWeightTypes.size(); }

// Which tensors of a published model are stored in a format: formats.inc.
enum class FormatUse : uint8_t { kNone, kEverything, kMatrices, kExperts };

struct DTypeInfo {
  std::string_view name;  // as people write it: "BF16"
  uint32_t block_size;    // elements in a block (1: not quantised)
  uint32_t block_bytes;   // bytes of a block
  bool quantised;
  FormatUse use;  // kNone: no weight format
};

inline constexpr DTypeInfo GetDTypeInfo(DType t) {
  const auto plain = [](std::string_view name, uint32_t bytes) { return DTypeInfo{name, 1, bytes, false, FormatUse::kNone}; };
  switch (t) {
#define TALLY_FORMAT(name, elements, bytes, use) \
  case DType::k##name:                           \
    return {#name, elements, bytes, (elements) > 1, FormatUse::use};
#include "engine/base/formats.inc"
#undef TALLY_FORMAT
    case DType::kF64: return plain("F64", 8);
    case DType::kI8: return plain("I8", 1);
    case DType::kI16: return plain("I16", 2);
    case DType::kI32: return plain("I32", 4);
    case DType::kI64: return plain("I64", 8);
    case DType::kU8: return plain("U8", 1);
    case DType::kU16: return plain("U16", 2);
    case DType::kU32: return plain("U32", 4);
    case DType::kU64: return plain("U64", 8);
    case DType::kBool: return plain("BOOL", 1);
  }
  return plain("?", 1);
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
