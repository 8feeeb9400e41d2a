// SPDX-License-Identifier: Apache-2.0
// Vector math against double-precision libm, on every Highway target, and the scalar twins' operation counts.
#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/math_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// out[i] = f(a[i]), or f(a[i], b[i]) for `gated`; n a multiple of 16 lanes.
enum Function { kExp, kTanh, kErf, kSigmoid, kSilu, kGeluTanh, kGeluErf, kRelu2, kGated };

void Evaluate(int function, const float* a, const float* b, size_t n, float* out) {
  const hn::CappedTag<float, 16> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, a + i);
    auto y = x;
    switch (function) {
      case kExp: y = Exp(d, x); break;
      case kTanh: y = Tanh(d, x); break;
      case kErf: y = Erf(d, x); break;
      case kSigmoid: y = Activate(d, ActivationKind::kSigmoid, x); break;
      case kSilu: y = Activate(d, ActivationKind::kSilu, x); break;
      case kGeluTanh: y = Activate(d, ActivationKind::kGeluTanh, x); break;
      case kGeluErf: y = Activate(d, ActivationKind::kGeluErf, x); break;
      case kRelu2: y = Activate(d, ActivationKind::kRelu2, x); break;
      case kGated: y = ActivateGated(d, ActivationKind::kSwigluOai, x, hn::LoadU(d, b + i), 1.702f, 7.0f); break;
    }
    hn::StoreU(y, d, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "tests/kernels/harness.h"
#include "tests/support/counting_scalar.h"

namespace tally {
namespace {

HWY_EXPORT(Evaluate);
enum Function { kExp, kTanh, kErf, kSigmoid, kSilu, kGeluTanh, kGeluErf, kRelu2, kGated };

// Every 16381st bit pattern (a prime: all exponents, signs, subnormals), and a sweep of [-110, 110].
std::vector<float> Arguments() {
  std::vector<float> v;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 16381) v.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (int i = -220000; i <= 220000; ++i) v.push_back(static_cast<float>(i) * 5e-4f);
  for (int i = -50000; i <= 50000; ++i) v.push_back(static_cast<float>(i) * 2e-5f);
  const float inf = std::numeric_limits<float>::infinity();
  for (float x : {0.0f, -0.0f, inf, -inf, 88.72283f, 88.72284f, -87.33655f, -103.97208f, -103.98f, -104.0f, 3.4e38f, -3.4e38f,
                  std::numeric_limits<float>::quiet_NaN(), 1e-45f, -1e-45f, 0.92f, 10.0f, 4.0f}) {
    v.push_back(x);
  }
  while (v.size() % 16 != 0) v.push_back(1.0f);
  return v;
}

std::vector<float> Compute(int function, const std::vector<float>& a, const std::vector<float>& b = {}) {
  std::vector<float> out(a.size());
  HWY_DYNAMIC_DISPATCH(Evaluate)(function, a.data(), b.data(), a.size(), out.data());
  return out;
}

struct Worst {
  double error = 0;
  float at = 0;
};
// error(x, got): the measure; prints and returns the greatest.
template <class Error>
Worst Measure(const char* name, int function, const std::vector<float>& args, const Error& error) {
  const std::vector<float> got = Compute(function, args);
  Worst worst;
  for (size_t i = 0; i < args.size(); ++i) {
    const double e = error(args[i], got[i]);
    if (e > worst.error) worst = {e, args[i]};
  }
  std::printf("%-9s %-9s worst %.3g at %.9g\n", std::string(HwyTargetName()).c_str(), name, worst.error, worst.at);
  return worst;
}

double TrueErf(double x) { return std::erf(x); }
double TrueSigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(VectorMath, ExpWithinOneAndAHalfUlp) {
  const std::vector<float> args = Arguments();
  ForEachTarget([&] {
    const Worst w = Measure("exp", kExp, args, [](float x, float y) { return UlpDistance(y, std::exp(static_cast<double>(x))); });
    EXPECT_LE(w.error, 1.5) << "at " << w.at;
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> edges = {0.0f, -0.0f, inf, -inf, -104.0f, -1e30f, 89.0f, 1e30f};
    std::vector<float> padded = edges;
    padded.resize(16);
    const std::vector<float> got = Compute(kExp, padded);
    const float want[] = {1, 1, inf, 0, 0, 0, inf, inf};
    for (size_t i = 0; i < edges.size(); ++i) EXPECT_EQ(got[i], want[i]) << "exp(" << edges[i] << ")";
  });
}

TEST(VectorMath, TanhWithinThreeUlpAndErfWithinTwo) {
  const std::vector<float> args = Arguments();
  ForEachTarget([&] {
    Worst w = Measure("tanh", kTanh, args, [](float x, float y) { return UlpDistance(y, std::tanh(static_cast<double>(x))); });
    EXPECT_LE(w.error, 3) << "at " << w.at;
    w = Measure("erf", kErf, args, [](float x, float y) { return UlpDistance(y, TrueErf(x)); });
    EXPECT_LE(w.error, 2) << "at " << w.at;
    std::vector<float> zeros(16, -0.0f);
    EXPECT_TRUE(std::signbit(Compute(kTanh, zeros)[0]));
    EXPECT_TRUE(std::signbit(Compute(kErf, zeros)[0]));
  });
}

// Relative errors: of the result; for GELU of |x|, since 1 + tanh and 1 + erf cancel, as they do in published
// code.
TEST(VectorMath, Activations) {
  std::vector<float> args;
  for (float x : Arguments()) {
    if (!std::isinf(x)) args.push_back(x);  // -inf gives -inf/inf or 0*inf, NaN in published code too
  }
  while (args.size() % 16 != 0) args.push_back(0.5f);
  auto relative = [](double got, double want, double scale) {
    if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : HUGE_VAL;
    return std::fabs(got - want) / std::max(scale, 1e-37);
  };
  ForEachTarget([&] {
    Worst w = Measure("sigmoid", kSigmoid, args, [&](float x, float y) {
      if (x < -88.7f && y == 0) return TrueSigmoid(x) < 3e-39 ? 0 : HUGE_VAL;  // exp(-x) is inf
      return relative(y, TrueSigmoid(x), TrueSigmoid(x));
    });
    EXPECT_LE(w.error, 3e-7) << "at " << w.at;
    w = Measure("silu", kSilu, args, [&](float x, float y) {
      const double want = static_cast<double>(x) * TrueSigmoid(x);
      if (x < -88.7f && y == 0) return std::fabs(want) < 3e-37 ? 0 : HUGE_VAL;
      return relative(y, want, std::fabs(want));
    });
    EXPECT_LE(w.error, 3e-7) << "at " << w.at;
    w = Measure("gelu_tanh", kGeluTanh, args, [&](float x, float y) {
      const double v = x, u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
      return relative(y, v * TrueSigmoid(2 * u), std::fabs(v));
    });
    EXPECT_LE(w.error, 2e-7) << "at " << w.at;
    w = Measure("gelu_erf", kGeluErf, args, [&](float x, float y) {
      const double v = x;
      return relative(y, 0.5 * v * std::erfc(-v * M_SQRT1_2), std::fabs(v));
    });
    EXPECT_LE(w.error, 2e-7) << "at " << w.at;
    w = Measure("relu2", kRelu2, args, [&](float x, float y) {
      const float positive = x < 0 ? 0 : x;
      return relative(y, positive * positive, 1);  // one rounding: the same bits
    });
    EXPECT_EQ(w.error, 0) << "at " << w.at;
  });
}

TEST(VectorMath, SwigluOaiClampsAsGptOssDoes) {
  Random random(20240817);
  SCOPED_TRACE(random.Trace());
  std::vector<float> g(4096), u(4096);
  random.Fill(g.data(), 4096, 6);
  random.Fill(u.data(), 4096, 6);
  g[0] = -30, u[0] = 2;  // no lower clamp on g
  g[1] = 9, u[1] = 9;    // both at the limit
  g[2] = 1, u[2] = -50;  // u from below
  g[3] = std::nanf(""), u[3] = 1;
  g[4] = 1, u[4] = std::nanf("");
  ForEachTarget([&] {
    const std::vector<float> got = Compute(kGated, g, u);
    EXPECT_TRUE(std::isnan(got[3]));
    EXPECT_TRUE(std::isnan(got[4]));
    for (size_t i = 0; i < g.size(); ++i) {
      if (i == 3 || i == 4) continue;
      const double gg = std::min<double>(g[i], 7), uu = std::clamp<double>(u[i], -7, 7);
      const double want = gg / (1 + std::exp(-static_cast<double>(1.702f) * gg)) * (uu + 1);
      // u + 1 may cancel: its rounding is relative to |u| + 1
      const double scale = std::fabs(gg / (1 + std::exp(-1.702 * gg))) * (std::fabs(uu) + 1);
      // alpha * g is rounded before exp, so exp's relative error grows with |alpha g|
      ASSERT_NEAR(got[i], want, (4e-7 + 0x1p-24 * std::fabs(1.702 * gg)) * scale) << "g " << g[i] << ", u " << u[i];
      ASSERT_NEAR(tally::SwigluOai(g[i], u[i], 1.702f, 7.0f), want, (4e-7 + 0x1p-24 * std::fabs(1.702 * gg)) * scale);
    }
  });
}

// The scalar twins, on the same ranges and by the same measure as the vectors above.
TEST(ScalarMath, ActivationsAreThoseOfTheDefinitions) {
  for (const float x : Arguments()) {
    if (!std::isfinite(x)) continue;
    const double v = x, sigmoid = TrueSigmoid(x), u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    if (x > -88) {
      EXPECT_NEAR(tally::Silu(x), v * sigmoid, 3e-7 * std::fabs(v * sigmoid) + 1e-44) << x;
    }
    EXPECT_NEAR(tally::GeluTanh(x), v * TrueSigmoid(2 * u), 2e-7 * std::fabs(v) + 1e-44) << x;
    EXPECT_NEAR(tally::Activate(ActivationKind::kSigmoid, x), sigmoid, 3e-7 * sigmoid + 3e-39) << x;
    EXPECT_EQ(tally::Activate(ActivationKind::kRelu2, x), x > 0 ? x * x : 0) << x;
    EXPECT_NEAR(tally::GeluErf(x), 0.5 * v * std::erfc(-v * M_SQRT1_2), 2e-7 * std::fabs(v) + 1e-44) << x;
  }
}

TEST(ScalarMath, CountsWhatItSays) {
  using K = ActivationKind;
  for (K kind :
       {K::kNone, K::kGeluTanh, K::kGeluErf, K::kSilu, K::kSwigluOai, K::kRelu, K::kRelu2, K::kSigmoid, K::kSwigluLimited}) {
    const OpCounts gate = CountOf([&] { (void)Activate(kind, Counting(0.3f)); });
    EXPECT_EQ((ElementCost{gate.flops, gate.special}), ActivateCost(kind)) << static_cast<int>(kind);
    const OpCounts both =
        CountOf([&] { (void)ActivateGated(kind, Counting(0.3f), Counting(0.4f), Counting(1.702f), Counting(7.0f)); });
    EXPECT_EQ((ElementCost{both.flops, both.special}), ActivateGatedCost(kind)) << static_cast<int>(kind);
  }
  for (const float x : {-0.3f, 0.3f}) {
    const OpCounts xielu = CountOf([&] { (void)XieluOf(Counting(x), Xielu{.alpha_n = 0.7f, .alpha_p = 0.8f}); });
    EXPECT_EQ((ElementCost{xielu.flops, xielu.special}), ActivateCost(K::kXielu)) << x;
  }
}

}  // namespace
}  // namespace tally
#endif
