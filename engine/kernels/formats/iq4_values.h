// SPDX-License-Identifier: Apache-2.0
// The 16 values of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl).
#pragma once

#include <cstdint>

#include "engine/kernels/formats/scale_search.h"

namespace tally {

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Levels for scale_search.h.
struct Iq4Levels {
  static constexpr float kEnds[] = {-127, 113}, kStep = 1;
  static int Code(float x) {  // of the nearest value; NaN gives 0
    int code = 0;
    for (int i = 1; i < 16; ++i) code += 2 * x > static_cast<float>(kIq4Values[i - 1] + kIq4Values[i]) ? 1 : 0;
    return code;
  }
  static Floats4 Nearest4(Floats4 x) {
    Floats4 level = Floats4{} + static_cast<float>(kIq4Values[0]);
    for (int i = 1; i < 16; ++i) {
      const Floats4 step = Floats4{} + static_cast<float>(kIq4Values[i] - kIq4Values[i - 1]),
                    middle = Floats4{} + 0.5f * static_cast<float>(kIq4Values[i - 1] + kIq4Values[i]);
      level += x > middle ? step : Floats4{};
    }
    return level;
  }
};

}  // namespace tally
