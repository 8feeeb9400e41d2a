// SPDX-License-Identifier: Apache-2.0
// How the blocks of a layer meet the residual stream x.
#pragma once

#include <cstdint>

namespace tally {

//   kSequential       x += attention(norm(x)); x += feed_forward(norm(x))
//   kParallel         x += attention(attn_norm(x)) + feed_forward(ffn_norm(x)), both norms of the layer's input (GPT-NeoX)
//   kParallelOneNorm  the same with y = attn_norm(x) for both (GPT-J, Phi, Cohere)
enum class Residual : uint8_t { kSequential, kParallel, kParallelOneNorm };

struct ResidualRule {
  Residual kind = Residual::kSequential;
  float scale = 1;            // multiplies what a block adds to x (Granite, MiniCPM)
  bool pre_norms = true;      // false: the blocks' inputs are not normalised (OLMo 2)
  bool stream_norms = false;  // the norms are of x after a block is added to it, not of the blocks' inputs (OPT-350M)
  bool post_norms = false;    // norms of the outputs of mixer and feed-forward, before they are added to x (Gemma 2 and 3)
  float post_norm_eps = 0;    // of those norms; 0: Recipe::norm_eps
  bool layer_scale = false;   // a learned number multiplies what the layer leaves in x (Gemma 4)
  // True if a block has an output of its own, which is brought into x by an op of its own.
  bool own_output() const { return post_norms || scale != 1; }
  bool operator==(const ResidualRule&) const = default;
};

}  // namespace tally
