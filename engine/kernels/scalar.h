// SPDX-License-Identifier: Apache-2.0
// The operations of scalar references, for float. A reference is a template over its scalar type S and calls these unqualified, so
// that a type that counts its operations is found by argument-dependent look-up.
//
// S has construction from float, + - * /, < and >, negation, and the functions below. Counting: + - * < > 1, Fma 2, Max and Min
// 1; Exp Expm1 Tanh Erf Sqrt Rsqrt Log Sin Cos and / one special each; Log1p, log(1 + x), 1 and one special; negation, Abs, Choose and
// ToF32 0.
#pragma once

#include <cmath>

namespace tally {

inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float Sqrt(float x) { return std::sqrt(x); }
inline float Rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline float Exp(float x) { return std::exp(x); }
inline float Expm1(float x) { return std::expm1(x); }
inline float Tanh(float x) { return std::tanh(x); }
inline float Erf(float x) { return std::erf(x); }
inline float Log(float x) { return std::log(x); }
inline float Log1p(float x) { return std::log1p(x); }
inline float Sin(float x) { return std::sin(x); }
inline float Cos(float x) { return std::cos(x); }
inline float Abs(float x) { return std::fabs(x); }
// A NaN in the first argument is kept.
inline float Max(float a, float b) { return a < b ? b : a; }
inline float Min(float a, float b) { return b < a ? b : a; }
// `a` where x > 0, else b.
inline float Choose(float x, float a, float b) { return x > 0 ? a : b; }
inline float ToF32(float x) { return x; }

}  // namespace tally
