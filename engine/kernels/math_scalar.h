// SPDX-License-Identifier: Apache-2.0
// Scalar activation functions, the reference for engine/kernels/math-inl.h. Templates over the scalar type (scalar.h).
// Sources: SiLU (Elfwing et al. 2017), GELU exact and by tanh (Hendrycks & Gimpel 2016), clamped SwiGLU (openai/gpt-oss),
// squared ReLU (So et al. 2021), xIELU (Huang & Schlag 2024), limited SwiGLU (inclusionAI, Ling 3.0).
#pragma once

#include <cstdint>

#include "engine/base/kinds.h"
#include "engine/kernels/scalar.h"

namespace tally {

inline constexpr float kSqrt2OverPi = 0.797884560802865356f;
inline constexpr float kSqrtHalf = 0.707106781186547524f;
inline constexpr float kGeluCubic = 0.044715f;

template <class S>
S Sigmoid(S x) {
  return S(1.0f) / (S(1.0f) + Exp(-x));
}

// x * sigmoid(x)
template <class S>
S Silu(S x) {
  return x / (S(1.0f) + Exp(-x));
}

// max(x, 0)^2
template <class S>
S Relu2(S x) {
  const S positive = Max(x, S(0.0f));
  return positive * positive;
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
template <class S>
S GeluTanh(S x) {
  const S inner = S(kSqrt2OverPi) * Fma(S(kGeluCubic) * x * x, x, x);
  return (S(0.5f) * x) * (S(1.0f) + Tanh(inner));
}

// 0.5 x (1 + erf(x / sqrt 2))
template <class S>
S GeluErf(S x) {
  return (S(0.5f) * x) * (S(1.0f) + Erf(S(kSqrtHalf) * x));
}

// g sigmoid(alpha g) (u + 1), where g is clamped from above only and u from both sides.
template <class S>
S SwigluOai(S g, S u, S alpha, S limit) {
  g = Min(g, limit);
  u = Max(Min(u, limit), -limit);
  return g / (S(1.0f) + Exp(-(alpha * g))) * (u + S(1.0f));
}

// silu(g) u, where silu(g) is limited from above only and u on both sides.
template <class S>
S SwigluLimited(S g, S u, S limit) {
  return Min(Silu(g), limit) * Max(Min(u, limit), -limit);
}

// kinds.h
template <class S>
S XieluOf(S x, const Xielu& n) {
  const S above = S(n.alpha_p) * x * x;
  const S below = S(n.alpha_n) * (Expm1(Min(x, S(n.eps))) - x);
  return S(n.beta) * x + Choose(x, above, below);
}

// kNone gives x. So do the kinds that take two values or have numbers of their own; the ops' Validate refuses them.
template <class S>
S Activate(ActivationKind kind, S x) {
  switch (kind) {
    case ActivationKind::kGeluTanh: return GeluTanh(x);
    case ActivationKind::kGeluErf: return GeluErf(x);
    case ActivationKind::kSilu: return Silu(x);
    case ActivationKind::kRelu: return Max(x, S(0.0f));
    case ActivationKind::kRelu2: return Relu2(x);
    case ActivationKind::kSigmoid: return Sigmoid(x);
    case ActivationKind::kNone:
    case ActivationKind::kXielu:
    case ActivationKind::kSwigluLimited:
    case ActivationKind::kSwigluOai: break;
  }
  return x;
}

// act(g) * u, or the function of both.
template <class S>
S ActivateGated(ActivationKind kind, S g, S u, S alpha, S limit) {
  if (kind == ActivationKind::kSwigluOai) return SwigluOai(g, u, alpha, limit);
  if (kind == ActivationKind::kSwigluLimited) return SwigluLimited(g, u, limit);
  return Activate(kind, g) * u;
}

// Cost of one call (counters/cost/cost.h); math_test compares it with a counting scalar.
struct ElementCost {
  uint64_t flops = 0, special = 0;
  bool operator==(const ElementCost&) const = default;
};
constexpr ElementCost ActivateCost(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kGeluTanh: return {8, 1};
    case ActivationKind::kGeluErf: return {4, 1};
    case ActivationKind::kSilu:
    case ActivationKind::kSigmoid: return {1, 2};
    case ActivationKind::kRelu: return {1, 0};
    case ActivationKind::kRelu2: return {2, 0};
    case ActivationKind::kXielu: return {7, 1};
    case ActivationKind::kNone:
    case ActivationKind::kSwigluLimited:
    case ActivationKind::kSwigluOai: break;
  }
  return {};
}
constexpr ElementCost ActivateGatedCost(ActivationKind kind) {
  if (kind == ActivationKind::kSwigluOai) return {7, 2};
  if (kind == ActivationKind::kSwigluLimited) return {5, 2};
  return {ActivateCost(kind).flops + 1, ActivateCost(kind).special};
}

}  // namespace tally
