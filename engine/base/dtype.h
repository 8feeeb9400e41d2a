// Element types of stored tensors.
//
// A quantised type stores blocks of kBlockSize consecutive elements of a row; see quant_blocks.h for their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tally {

enum class DType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kMXFP4, kF64, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kBool };

struct DTypeInfo {
  std::string_view name;  // as people write it: "Q8_0"
  uint32_t block_size;    // elements in a block (1: not quantised)
  uint32_t block_bytes;   // bytes of a block
  bool quantised;
};

inline constexpr DTypeInfo GetDTypeInfo(DType t) {
  switch (t) {
    case DType::kF32: return {"F32", 1, 4, false};
    case DType::kF16: return {"F16", 1, 2, false};
    case DType::kBF16: return {"BF16", 1, 2, false};
    case DType::kQ8_0: return {"Q8_0", 32, 34, true};
    case DType::kQ4_0: return {"Q4_0", 32, 18, true};
    case DType::kMXFP4: return {"MXFP4", 32, 17, true};
    case DType::kF64: return {"F64", 1, 8, false};
    case DType::kI8: return {"I8", 1, 1, false};
    case DType::kI16: return {"I16", 1, 2, false};
    case DType::kI32: return {"I32", 1, 4, false};
    case DType::kI64: return {"I64", 1, 8, false};
    case DType::kU8: return {"U8", 1, 1, false};
    case DType::kU16: return {"U16", 1, 2, false};
    case DType::kU32: return {"U32", 1, 4, false};
    case DType::kU64: return {"U64", 1, 8, false};
    case DType::kBool: return {"BOOL", 1, 1, false};
  }
  return {"?", 1, 1, false};
}

inline constexpr std::string_view DTypeName(DType t) { return GetDTypeInfo(t).name; }

// Bytes of `n` consecutive elements, or nullopt if `n` is not a whole number of blocks or the product overflows.
inline constexpr std::optional<uint64_t> StoredBytes(DType t, uint64_t n) {
  const DTypeInfo i = GetDTypeInfo(t);
  if (n % i.block_size != 0) return std::nullopt;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(n / i.block_size, uint64_t{i.block_bytes}, &bytes)) return std::nullopt;
  return bytes;
}

}  // namespace tally
