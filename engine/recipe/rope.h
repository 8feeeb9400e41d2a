// SPDX-License-Identifier: Apache-2.0
// Rotary positions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/base/kinds.h"

namespace tally {

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;
  double original_context = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: floor and ceil the correction bounds
  double attention_factor = 1;  // yarn, longrope: cos and sin are multiplied by it (yarn: 0.1 ln(factor) + 1)
  // longrope: divisors of the frequencies, [dim / 2], up to original_context positions, and beyond. Empty: stored in the checkpoint.
  std::vector<double> short_factors = {}, long_factors = {};
  bool operator==(const RopeScaling&) const = default;
};

struct Rope {
  RopeStyle style = RopeStyle::kNone;
  int32_t dim = 0;     // dimensions of a head that rotate
  int32_t turned = 0;  // so many of the dim / 2 pairs, the first ones, rotate (Gemma 4's proportional rope); 0: all
  double theta = 10000;
  RopeScaling scaling = {};
  // M-RoPE (Qwen2-VL): so many of the dim / 2 pairs turn by time, height and width, one section after another; with
  // `sections_interleaved` (Qwen3-VL) pair i turns by the height if i % 3 = 1 and i < 3 sections[1], by the width if i % 3 = 2 and
  // i < 3 sections[2], else by the time. All 0: by the one position that text has.
  std::array<int32_t, 3> sections = {};
  bool sections_interleaved = false;
  bool freq_factors = false;  // the checkpoint stores divisors of the frequencies (GGUF rope_freqs.weight)
  bool stored_long_factors =
      false;  // the checkpoint stores longrope's (GGUF rope_factors_short.weight, rope_factors_long.weight)
  bool operator==(const Rope&) const = default;
};

}  // namespace tally
