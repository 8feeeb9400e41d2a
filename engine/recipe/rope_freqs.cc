// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/rope_freqs.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace tally {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

bool Positive(double x) { return std::isfinite(x) && x > 0; }

// Llama 3.1: wavelengths up to context/high stay, those beyond context/low are stretched by `factor`, between
// them the two are mixed by how many turns fit into the original context.
double Llama3(double inv, const RopeScaling& s) {
  const double turns = s.original_context * inv / kTwoPi;  // within the original context
  if (turns >= s.high_freq_factor) return inv;
  if (turns < s.low_freq_factor) return inv / s.factor;
  const double keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - keep) * inv / s.factor + keep * inv;
}

// The (real-valued) index of the frequency that makes `turns` turns within the original context:
// theta^(-2i/dim) * context = 2 pi turns, solved for i.
double YarnIndex(double turns, const Rope& rope) {
  return rope.dim / 2.0 * std::log(rope.scaling.original_context / (kTwoPi * turns)) / std::log(rope.theta);
}

Status CheckDivisors(const Rope& rope, const std::vector<double>& divisors) {
  if (divisors.size() != static_cast<size_t>(rope.dim / 2)) {
    return BadInput("rope: " + std::to_string(divisors.size()) + " frequency factors; need " + std::to_string(rope.dim / 2));
  }
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (!Positive(divisors[i])) return BadInput("rope: frequency factor " + std::to_string(i) + " is not a positive number");
  }
  return {};
}

Status Check(const Rope& rope) {
  const RopeScaling& s = rope.scaling;
  if (rope.dim <= 0 || rope.dim % 2 != 0)
    return BadInput("rope: " + std::to_string(rope.dim) + " rotated dimensions; need an even number");
  if (!Positive(rope.theta)) return BadInput("rope: theta must be a positive number");
  if (s.kind == RopeScalingKind::kNone) return {};
  if (!Positive(s.factor)) return BadInput("rope: the scaling factor must be a positive number");
  if (s.kind == RopeScalingKind::kLinear) return {};
  if (!Positive(s.original_context)) return BadInput("rope: the scaling's original context must be a positive number");
  if (s.kind == RopeScalingKind::kLlama3 &&
      !(Positive(s.low_freq_factor) && Positive(s.high_freq_factor) && s.low_freq_factor <= s.high_freq_factor)) {
    return BadInput("rope: need 0 < low_freq_factor <= high_freq_factor");
  }
  if (s.kind == RopeScalingKind::kYarn) {
    if (!(Positive(s.beta_fast) && Positive(s.beta_slow))) return BadInput("rope: YaRN's betas must be positive numbers");
    if (s.beta_slow > s.beta_fast) return BadInput("rope: YaRN's beta_slow is more than its beta_fast");
    if (rope.theta <= 1) return BadInput("rope: YaRN needs theta > 1");
  }
  if (s.kind == RopeScalingKind::kDynamic && rope.dim <= 2) return BadInput("rope: dynamic scaling needs more than 2 dimensions");
  if (!Positive(s.attention_factor)) return BadInput("rope: the attention factor must be a positive number");
  return {};
}

// The divisors of the frequencies for a context; empty: none.
Result<std::vector<double>> Divisors(const Rope& rope, const StoredRopeFactors& stored, int64_t context) {
  const RopeScaling& s = rope.scaling;
  const auto doubles = [](std::span<const float> x) { return std::vector<double>(x.begin(), x.end()); };
  std::vector<double> divisors = doubles(stored.all);
  bool needed = rope.freq_factors;
  if (s.kind == RopeScalingKind::kLongRope) {
    const bool far = static_cast<double>(context) > s.original_context;
    divisors = rope.stored_long_factors ? doubles(far ? stored.of_long : stored.of_short)
               : far                    ? s.long_factors
                                        : s.short_factors;
    needed = true;
  }
  if (divisors.empty() && needed) return BadInput("rope: the checkpoint's frequency factors are missing");
  if (!divisors.empty()) TALLY_RETURN_IF_ERROR(CheckDivisors(rope, divisors));
  return divisors;
}

// Dynamic NTK: beyond the original context theta grows with the context.
double Theta(const Rope& rope, int64_t context) {
  const RopeScaling& s = rope.scaling;
  if (s.kind != RopeScalingKind::kDynamic || static_cast<double>(context) <= s.original_context) return rope.theta;
  const double stretch = s.factor * static_cast<double>(context) / s.original_context - (s.factor - 1);
  return rope.theta * std::pow(stretch, rope.dim / (rope.dim - 2.0));
}

}  // namespace

namespace {

std::vector<uint8_t> Axes(const Rope& rope) {
  const auto& [times, heights, widths] = rope.sections;
  std::vector<uint8_t> axes;
  if (times == 0 && heights == 0 && widths == 0) return axes;
  for (int32_t i = 0; i < rope.dim / 2; ++i) {
    const bool height = rope.sections_interleaved ? i % 3 == 1 && i < 3 * heights : i >= times && i < times + heights;
    const bool width = rope.sections_interleaved ? i % 3 == 2 && i < 3 * widths : i >= times + heights;
    axes.push_back(height ? 1 : width ? 2 : 0);
  }
  return axes;
}

}  // namespace

double YarnMagnitude(double factor, double mscale) { return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1; }

Result<RopeFrequencies> MakeRopeFrequencies(const Rope& rope, const StoredRopeFactors& stored, int64_t context) {
  RopeFrequencies out;
  if (rope.style == RopeStyle::kNone) return out;
  TALLY_RETURN_IF_ERROR(Check(rope));
  TALLY_ASSIGN_OR_RETURN(const std::vector<double> divisors, Divisors(rope, stored, context));
  const RopeScaling& s = rope.scaling;
  double low = 0, high = 1;  // YaRN's ramp: 0 up to `low` (frequency kept), 1 from `high` on (interpolated)
  if (s.kind == RopeScalingKind::kYarn) {
    low = YarnIndex(s.beta_fast, rope);
    high = YarnIndex(s.beta_slow, rope);
    if (s.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, rope.dim - 1.0);
    if (high == low) high += 0.001;  // the published guard against a division by zero
  }
  if (s.kind == RopeScalingKind::kYarn || s.kind == RopeScalingKind::kLongRope) {
    out.magnitude = static_cast<float>(s.attention_factor);
  }
  const double theta = Theta(rope, context);
  out.inv_freq.resize(rope.dim / 2);
  for (int32_t i = 0; i < rope.dim / 2; ++i) {
    double inv = std::pow(theta, -2.0 * i / rope.dim);
    if (!divisors.empty()) inv /= divisors[static_cast<size_t>(i)];
    switch (s.kind) {
      case RopeScalingKind::kNone:
      case RopeScalingKind::kDynamic:
      case RopeScalingKind::kLongRope: break;
      case RopeScalingKind::kLinear: inv /= s.factor; break;
      case RopeScalingKind::kLlama3: inv = Llama3(inv, s); break;
      case RopeScalingKind::kYarn: {
        const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
        inv = inv * (1 - ramp) + inv / s.factor * ramp;
        break;
      }
    }
    out.inv_freq[i] = rope.turned > 0 && i >= rope.turned ? 0 : static_cast<float>(inv);
  }
  out.axes = Axes(rope);
  return out;
}

}  // namespace tally
