// SPDX-License-Identifier: Apache-2.0
// The numbers GGUF and ggml give their types (ggml/docs/gguf.md, ggml.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/base/dtype.h"

namespace tally::internal {

inline constexpr uint32_t kGgufVersion = 3;  // written; 2 is read too (the same layout)
inline constexpr uint64_t kGgufDefaultAlignment = 32;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr uint32_t kGgufMaxDims = 4;
inline constexpr uint64_t kGgufMaxKeyBytes = 65535;

enum GgufType : uint32_t {
  kGgufU8 = 0,
  kGgufI8 = 1,
  kGgufU16 = 2,
  kGgufI16 = 3,
  kGgufU32 = 4,
  kGgufI32 = 5,
  kGgufF32 = 6,
  kGgufBool = 7,
  kGgufString = 8,
  kGgufArray = 9,
  kGgufU64 = 10,
  kGgufI64 = 11,
  kGgufF64 = 12,
};

// Bytes of a value; of a string the least it can take (its length). 0: no such type, or an array.
constexpr uint64_t GgufValueBytes(uint32_t type) {
  switch (type) {
    case kGgufU8:
    case kGgufI8:
    case kGgufBool: return 1;
    case kGgufU16:
    case kGgufI16: return 2;
    case kGgufU32:
    case kGgufI32:
    case kGgufF32: return 4;
    case kGgufString:
    case kGgufU64:
    case kGgufI64:
    case kGgufF64: return 8;
    default: return 0;
  }
}

// The type of a stored tensor; nullopt: not one that Tally knows the layout of.
std::optional<DType> DTypeFromGgml(uint32_t ggml_type);
// nullopt: GGUF has no such type.
std::optional<uint32_t> GgmlFromDType(DType dtype);
// The name ggml gives the type, whether or not Tally can read it; empty for an unknown number.
std::string_view GgmlTypeName(uint32_t ggml_type);

}  // namespace tally::internal
