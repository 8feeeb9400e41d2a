// SPDX-License-Identifier: Apache-2.0
// What training a counted model with AdamW takes, by the rules of the courses. N: all parameters; n: those that a token uses.
//
// Memory, in bytes a parameter:
//   F32      weights 4, gradients 4, AdamW's two moments 8 (CS336, assignment 1, adamwAccounting)
//   mixed    weights 2, gradients 2 (BF16), an F32 copy of the weights 4, moments 8 (ZeRO, arXiv 1910.02054, section 3.1)
// Activations are not counted: they depend on what is kept for the backward pass and what is computed again.
//
// FLOPs of a step:
//   forward  matrix products, the head at every position: Count::prefill (course text "Transformer LM Resource Accounting")
//   backward twice the forward pass (Kaplan et al., arXiv 2001.08361, section 2.1; Hoffmann et al., arXiv 2203.15556, appendix F)
//   update   AdamW of a parameter, 12 and 2 special (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, constants of the step made
//            once): m = b1 m + (1 - b1) g: 3; v = b2 v + (1 - b2) g g: 4; w = w - a m / (sqrt(v) + eps): 3, special 2; w = w - c w: 2
// Estimates of a token, forward and backward:
//   6 n                 n without embedding and head (Kaplan et al., section 2.1): active(none)
//   6 n + 12 L H D P    n with them; attention of P positions (PaLM, arXiv 2204.02311, appendix B): active(all)
#pragma once

#include <array>
#include <cstdint>

#include "counters/books/model_count.h"
#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally::books {

struct TrainingMemory {  // bytes
  uint64_t weights = 0, gradients = 0, copy = 0, moments = 0;
  uint64_t total() const { return weights + gradients + copy + moments; }
};

struct TrainingCount {
  TrainingMemory f32 = {}, mixed = {};
  uint64_t sequences = 0, positions = 0;                // of a step: CountOptions::batch, prompt
  std::array<uint64_t, 2> forward = {}, backward = {};  // FlopsView::kFullSquare, kCausal
  uint64_t update = 0, update_special = 0;
  uint64_t kaplan = 0, palm = 0;  // the estimates
};

// kBadInput: a figure does not fit 64 bits.
TALLY_API Result<TrainingCount> CountTraining(const Count& count);

}  // namespace tally::books
