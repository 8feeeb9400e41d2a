// SPDX-License-Identifier: Apache-2.0
// The kinds of building block that recipes name and kernels implement.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tally {

// Names stand in the order of the values, for records and reports.
enum class NormKind : uint8_t { kRms, kLayer, kL2 };
inline constexpr std::array<std::string_view, 3> kNormKindNames = {"rms", "layer", "l2"};
// kRelu2: relu(x)^2 (Nemotron). Two take a gate and an up value: kSwigluOai (gpt-oss), kSwigluLimited (Ling 3). kXielu has numbers of its
// own (Apertus).
enum class ActivationKind : uint8_t {
  kNone,
  kGeluTanh,
  kGeluErf,
  kSilu,
  kSwigluOai,
  kRelu,
  kRelu2,
  kSigmoid,
  kSwigluLimited,
  kXielu
};
inline constexpr std::array<std::string_view, 10> kActivationKindNames = {
    "none", "gelu_tanh", "gelu_erf", "silu", "swiglu_oai", "relu", "relu2", "sigmoid", "swiglu_limited", "xielu"};
constexpr bool TakesTwo(ActivationKind a) { return a == ActivationKind::kSwigluOai || a == ActivationKind::kSwigluLimited; }
// xIELU (Huang & Schlag 2024): beta x + alpha_p x^2 for x > 0, else beta x + alpha_n (e^min(x, eps) - 1 - x).
struct Xielu {
  float alpha_n = 0, alpha_p = 0, beta = 0.5f, eps = -1e-6f;
  bool operator==(const Xielu&) const = default;
};
enum class RopeStyle : uint8_t { kNone, kRotateHalf, kAdjacentPair };
inline constexpr std::array<std::string_view, 3> kRopeStyleNames = {"none", "rotate_half", "adjacent_pair"};
// kDynamic (dynamic NTK) and kLongRope choose the frequencies by the context that an engine is made for.
enum class RopeScalingKind : uint8_t { kNone, kLinear, kLlama3, kYarn, kDynamic, kLongRope };
// How a router chooses experts and turns logits into their weights.
enum class RoutingRule : uint8_t {
  kTopKThenSoftmax,          // gpt-oss: top-k of the logits, softmax over the k
  kSoftmaxThenTopK,          // softmax over all, top-k; the weights are the probabilities
  kSoftmaxThenTopKRenormed,  // the same, weights divided by their sum
  kTopKThenSigmoid,          // Llama 4: top-k of the logits, sigmoid of each
  kSigmoidThenTopK,          // top-k of sigmoid + router bias; the weights are the sigmoids
  kSigmoidThenTopKRenormed,  // DeepSeek-V3: the same, weights divided by their sum
};
inline constexpr std::array<std::string_view, 6> kRoutingRuleNames = {"topk_then_softmax",          "softmax_then_topk",
                                                                      "softmax_then_topk_renormed", "topk_then_sigmoid",
                                                                      "sigmoid_then_topk",          "sigmoid_then_topk_renormed"};
constexpr bool SoftmaxOfAll(RoutingRule r) {
  return r == RoutingRule::kSoftmaxThenTopK || r == RoutingRule::kSoftmaxThenTopKRenormed;
}
constexpr bool SigmoidOfAll(RoutingRule r) {
  return r == RoutingRule::kSigmoidThenTopK || r == RoutingRule::kSigmoidThenTopKRenormed;
}
constexpr bool Renormed(RoutingRule r) {
  return r == RoutingRule::kSoftmaxThenTopKRenormed || r == RoutingRule::kSigmoidThenTopKRenormed;
}
// Norm of queries and keys.
//   kHead        RMSNorm of each head before rope, with one weight for all heads (Qwen3)
//   kWhole       RMSNorm of all heads as one vector, before rope (OLMoE)
//   kEachHead    LayerNorm without bias of each head before rope, each head with a weight of its own (Cohere)
//   kUnweighted  RMSNorm of each head without weights, after rope, in layers that have rope (Llama 4)
enum class QkNormKind : uint8_t { kNone, kHead, kWhole, kEachHead, kUnweighted };

// The following are options of LoadModel and NewEngine.

// Type of the activations in matrix products. kAuto: f32 for F32 and F16 weights; bf16 for BF16 and FP8 weights if the target has a bf16
// dot product, else f32; int8 for the other quantised weights. kF32 applies to every weight type. kBF16 applies to BF16 and FP8 weights,
// kInt8 to the other quantised ones; all other weights follow kAuto. The router is always multiplied in f32.
enum class ActivationMode : uint8_t { kAuto, kF32, kBF16, kInt8 };
// Type of stored keys and values.
enum class KvType : uint8_t { kF32, kF16, kBF16, kQ8_0 };
inline constexpr std::array<std::string_view, 4> kKvTypeNames = {"f32", "f16", "bf16", "q8_0"};
// kRef: the scalar references. kBlas: OpenBLAS for f32 matrix products; results may depend on the number of threads. The first use
// loads OpenBLAS and sets it to one thread, both for the whole process, other users of OpenBLAS included. OpenBLAS starts its
// threads at loading unless the environment has OPENBLAS_NUM_THREADS=1 (the tally command sets it).
enum class ImplChoice : uint8_t { kAuto, kRef, kBlas };

}  // namespace tally
