// The kinds of building block that recipes name and kernels implement.
#pragma once

#include <cstdint>

namespace tally {

enum class NormKind : uint8_t { kRms, kLayer };
enum class ActivationKind : uint8_t { kNone, kGeluTanh, kGeluErf, kSilu, kSwigluOai };
enum class RopeStyle : uint8_t { kNone, kRotateHalf, kAdjacentPair };
enum class RopeScalingKind : uint8_t { kNone, kLinear, kLlama3, kYarn };
// How a router turns logits into weights.
enum class RoutingRule : uint8_t {
  kTopKThenSoftmax,          // gpt-oss: top-k of the logits, softmax over the k
  kSoftmaxThenTopK,          // softmax over all, top-k, weights as they are
  kSoftmaxThenTopKRenormed,  // the same, weights divided by their sum
  kSigmoidThenTopKRenormed,  // DeepSeek-V3: sigmoid of each, top-k of sigmoid + router bias, weights without it, divided by their sum
};
// RMSNorm of queries and keys before rope: none, of each head with one weight for all (Qwen3), of all heads together (OLMoE).
enum class QkNormKind : uint8_t { kNone, kHead, kWhole };

}  // namespace tally
