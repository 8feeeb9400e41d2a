// The kinds of building block that recipes name and kernels implement.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tally {

// Names stand in the order of the values, for records and reports.
enum class NormKind : uint8_t { kRms, kLayer };
inline constexpr std::array<std::string_view, 2> kNormKindNames = {"rms", "layer"};
enum class ActivationKind : uint8_t { kNone, kGeluTanh, kGeluErf, kSilu, kSwigluOai };
inline constexpr std::array<std::string_view, 5> kActivationKindNames = {"none", "gelu_tanh", "gelu_erf", "silu", "swiglu_oai"};
enum class RopeStyle : uint8_t { kNone, kRotateHalf, kAdjacentPair };
inline constexpr std::array<std::string_view, 3> kRopeStyleNames = {"none", "rotate_half", "adjacent_pair"};
enum class RopeScalingKind : uint8_t { kNone, kLinear, kLlama3, kYarn };
// How a router turns logits into weights.
enum class RoutingRule : uint8_t {
  kTopKThenSoftmax,          // gpt-oss: top-k of the logits, softmax over the k
  kSoftmaxThenTopK,          // softmax over all, top-k, weights as they are
  kSoftmaxThenTopKRenormed,  // the same, weights divided by their sum
  kSigmoidThenTopKRenormed,  // DeepSeek-V3: sigmoid of each, top-k of sigmoid + router bias, weights without it, divided by their sum
};
inline constexpr std::array<std::string_view, 4> kRoutingRuleNames = {"topk_then_softmax", "softmax_then_topk",
                                                                      "softmax_then_topk_renormed", "sigmoid_then_topk_renormed"};
// RMSNorm of queries and keys before rope: none, of each head with one weight for all (Qwen3), of all heads together (OLMoE).
enum class QkNormKind : uint8_t { kNone, kHead, kWhole };

// Choices of whoever loads a model or makes an engine.

// What activations are quantised to. kAuto goes by the weight: F32, F16 -> f32; BF16 -> bf16 where the target has a bf16 dot
// product, else f32; quantised -> int8. A choice applies to the weight types that can take it; the others go by kAuto, but for
// kF32, which every type takes. The router is always multiplied in f32.
enum class ActivationMode : uint8_t { kAuto, kF32, kBF16, kInt8 };
// What keys and values are stored as.
enum class KvType : uint8_t { kF32, kF16 };
inline constexpr std::array<std::string_view, 2> kKvTypeNames = {"f32", "f16"};
// kRef: the scalar references. kBlas: OpenBLAS for matrices where it can: loaded then, its own threads switched off, both for the
// whole process; the bits may then depend on the number of threads. OpenBLAS starts those threads nonetheless unless the
// environment has OPENBLAS_NUM_THREADS=1 (the command sets it), and switching them off may be felt by others who use it.
enum class ImplChoice : uint8_t { kAuto, kRef, kBlas };

}  // namespace tally
