// SPDX-License-Identifier: Apache-2.0
#include "loaders/gguf_types.h"

#include <iterator>

namespace tally::internal {
namespace {

struct GgmlType {
  std::string_view name;
  // general.file_type of a file whose matrices are mostly of the type (llama.cpp's enumeration, its medium mix); -1: none.
  int file_type = -1;
};

// By number. ggml has withdrawn some types, but files with them exist.
constexpr GgmlType kGgmlTypes[] = {
    {"F32", 0},
    {"F16", 1},
    {"Q4_0", 2},
    {"Q4_1", 3},
    {"Q4_2 (withdrawn)"},
    {"Q4_3 (withdrawn)"},
    {"Q5_0", 8},
    {"Q5_1", 9},
    {"Q8_0", 7},
    {"Q8_1"},
    {"Q2_K", 10},
    {"Q3_K", 12},
    {"Q4_K", 15},
    {"Q5_K", 17},
    {"Q6_K", 18},
    {"Q8_K"},
    {"IQ2_XXS", 19},
    {"IQ2_XS", 20},
    {"IQ3_XXS", 23},
    {"IQ1_S", 24},
    {"IQ4_NL", 25},
    {"IQ3_S", 26},
    {"IQ2_S", 28},
    {"IQ4_XS", 30},
    {"I8"},
    {"I16"},
    {"I32"},
    {"I64"},
    {"F64"},
    {"IQ1_M", 31},
    {"BF16", 32},
    {"Q4_0_4_4 (withdrawn)"},
    {"Q4_0_4_8 (withdrawn)"},
    {"Q4_0_8_8 (withdrawn)"},
    {"TQ1_0", 36},
    {"TQ2_0", 37},
    {"IQ4_NL_4_4 (withdrawn)"},
    {"IQ4_NL_4_8 (withdrawn)"},
    {"IQ4_NL_8_8 (withdrawn)"},
    {"MXFP4", 38},
    {"NVFP4", 39},
    {"Q1_0", 40},
    {"Q2_0", 41},
};
static_assert(std::size(kGgmlTypes) == 43);

}  // namespace

std::optional<uint32_t> GgmlFromDType(DType dtype) {
  for (uint32_t i = 0; i < std::size(kGgmlTypes); ++i) {
    if (kGgmlTypes[i].name == DTypeName(dtype)) return i;
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromGgml(uint32_t ggml_type) {
  for (const DType t : kDTypes) {
    if (DTypeName(t) == GgmlTypeName(ggml_type)) return t;
  }
  return std::nullopt;
}

std::string_view GgmlTypeName(uint32_t ggml_type) {
  return ggml_type < std::size(kGgmlTypes) ? kGgmlTypes[ggml_type].name : std::string_view();
}

}  // namespace tally::internal

namespace tally {

int GgufFileType(DType dtype) {
  const std::optional<uint32_t> type = internal::GgmlFromDType(dtype);
  return type ? internal::kGgmlTypes[*type].file_type : -1;
}

}  // namespace tally
