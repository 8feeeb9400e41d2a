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
// How a router chooses experts and turns logits into their weights.
enum class RoutingRule : uint8_t {
  kTopKThenSoftmax,          // gpt-oss: top-k of the logits, softmax over the k
  kSoftmaxThenTopK,          // softmax over all, top-k; the weights are the probabilities
  kSoftmaxThenTopKRenormed,  // the same, weights divided by their sum
  kSigmoidThenTopKRenormed,  // DeepSeek-V3: top-k of sigmoid + router bias; weights: the sigmoids divided by their sum
};
inline constexpr std::array<std::string_view, 4> kRoutingRuleNames = {"topk_then_softmax", "softmax_then_topk",
                                                                      "softmax_then_topk_renormed", "sigmoid_then_topk_renormed"};
// RMSNorm of queries and keys before rope. kHead: of each head, with one weight for all heads (Qwen3). kWhole: of all heads as one
// vector (OLMoE).
enum class QkNormKind : uint8_t { kNone, kHead, kWhole };

// The following are options of LoadModel and NewEngine.

// Type of the activations in matrix products. kAuto: f32 for F32 and F16 weights; bf16 for BF16 weights where the target has a bf16
// dot product, else f32; int8 for quantised weights. kF32 applies to every weight type. kBF16 applies to BF16 weights, kInt8 to
// quantised ones; all other weights follow kAuto. The router is always multiplied in f32.
enum class ActivationMode : uint8_t { kAuto, kF32, kBF16, kInt8 };
// Type of stored keys and values.
enum class KvType : uint8_t { kF32, kF16 };
inline constexpr std::array<std::string_view, 2> kKvTypeNames = {"f32", "f16"};
// kRef: the scalar references. kBlas: OpenBLAS for f32 matrix products; results may depend on the number of threads. The first use
// loads OpenBLAS and sets it to one thread, both for the whole process, other users of OpenBLAS included. OpenBLAS starts its
// threads at loading unless the environment has OPENBLAS_NUM_THREADS=1 (the tally command sets it).
enum class ImplChoice : uint8_t { kAuto, kRef, kBlas };

}  // namespace tally
