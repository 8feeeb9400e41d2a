#include "loaders/gguf_types.h"

#include <iterator>

namespace tally::internal {
namespace {

// By number. Those in the gaps were withdrawn by ggml, but their files are still about.
constexpr std::string_view kGgmlNames[] = {"F32",
                                           "F16",
                                           "Q4_0",
                                           "Q4_1",
                                           "Q4_2 (withdrawn)",
                                           "Q4_3 (withdrawn)",
                                           "Q5_0",
                                           "Q5_1",
                                           "Q8_0",
                                           "Q8_1",
                                           "Q2_K",
                                           "Q3_K",
                                           "Q4_K",
                                           "Q5_K",
                                           "Q6_K",
                                           "Q8_K",
                                           "IQ2_XXS",
                                           "IQ2_XS",
                                           "IQ3_XXS",
                                           "IQ1_S",
                                           "IQ4_NL",
                                           "IQ3_S",
                                           "IQ2_S",
                                           "IQ4_XS",
                                           "I8",
                                           "I16",
                                           "I32",
                                           "I64",
                                           "F64",
                                           "IQ1_M",
                                           "BF16",
                                           "Q4_0_4_4 (withdrawn)",
                                           "Q4_0_4_8 (withdrawn)",
                                           "Q4_0_8_8 (withdrawn)",
                                           "TQ1_0",
                                           "TQ2_0",
                                           "IQ4_NL_4_4 (withdrawn)",
                                           "IQ4_NL_4_8 (withdrawn)",
                                           "IQ4_NL_8_8 (withdrawn)",
                                           "MXFP4"};
static_assert(std::size(kGgmlNames) == 40);

struct Pair {
  DType dtype;
  uint32_t ggml;
};
constexpr Pair kPairs[] = {{DType::kF32, 0},  {DType::kF16, 1},   {DType::kQ4_0, 2},  {DType::kQ8_0, 8},
                           {DType::kI8, 24},  {DType::kI16, 25},  {DType::kI32, 26},  {DType::kI64, 27},
                           {DType::kF64, 28}, {DType::kBF16, 30}, {DType::kMXFP4, 39}};

}  // namespace

std::optional<DType> DTypeFromGgml(uint32_t ggml_type) {
  for (const Pair& p : kPairs) {
    if (p.ggml == ggml_type) return p.dtype;
  }
  return std::nullopt;
}

std::optional<uint32_t> GgmlFromDType(DType dtype) {
  for (const Pair& p : kPairs) {
    if (p.dtype == dtype) return p.ggml;
  }
  return std::nullopt;
}

std::string_view GgmlTypeName(uint32_t ggml_type) {
  return ggml_type < std::size(kGgmlNames) ? kGgmlNames[ggml_type] : std::string_view();
}

}  // namespace tally::internal
