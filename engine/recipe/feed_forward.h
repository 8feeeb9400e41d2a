// SPDX-License-Identifier: Apache-2.0
// The blocks that work on each position alone: a dense feed-forward, and a mixture of experts.
#pragma once

#include <cstdint>

#include "engine/base/kinds.h"

namespace tally {

// What is between the first matrices and the last one, in a dense feed-forward, in experts and in shared experts.
struct Network {
  bool gated = true;  // down(act(gate x) * up x) instead of down(act(up x))
  ActivationKind activation = ActivationKind::kSilu;
  float swiglu_alpha = 1.702f, swiglu_limit = 7.0f;  // kSwigluOai: g = min(g, limit), u clamped, g*sigmoid(alpha g)*(u+1)
  // kXielu. What the checkpoint stores as tensors has its default here: loading sets beta and eps.
  Xielu xielu = {};
  bool stored_xielu = false;                                 // the checkpoint stores the alphas (Hugging Face)
  bool stored_xielu_beta = false, stored_xielu_eps = false;  // and these, which loading sets
  float gate_scale = 1, down_scale = 1;  // multiply the gate before its activation, and the last matrix's input (Falcon-H1)
  bool operator==(const Network&) const = default;
};

struct DenseFeedForward {
  int32_t width = 0;  // F
  bool bias = false;
  bool operator==(const DenseFeedForward&) const = default;
};

struct Experts {
  int32_t n_experts = 0;  // X
  int32_t top_k = 0;      // k
  int32_t width = 0;      // of an expert
  bool bias = false;
  bool ungated = false;  // experts, but for shared ones, have no gate, whatever Network::gated says
  float limit = 0;       // of their SwiGLU: kSwigluLimited (Ling 3); 0: none
  int32_t latent =
      0;  // experts work on a projection of so many elements, and their sum is projected back (Nemotron 3 Super); 0: not

  RoutingRule routing = RoutingRule::kTopKThenSoftmax;
  bool router_bias = false;  // with probabilities or sigmoids of all experts: only the choice sees it
  bool router_norm = false;  // the router reads the residual stream through a norm of its own (Gemma 4)
  // Experts are chosen from the `kept_groups` best of `groups` equal groups; a group is as good as the sum of its `group_best` best
  // experts (DeepSeek-V2 and -V3).
  int32_t groups = 1, kept_groups = 1, group_best = 1;
  float route_scale = 1;         // multiplies the experts' weights
  float route_sum_eps = 0;       // joins the sum that the weights are divided by (LFM2)
  bool weight_scales = false;    // a learned number of each expert multiplies its weight (Gemma 4)
  bool weighted_inputs = false;  // the weights multiply the experts' inputs, not their outputs (Llama 4)

  int32_t shared_width = 0;  // of the shared experts together, which every token uses; 0: none
  bool shared_gate = false;  // their output is multiplied by sigmoid(w x)
  float shared_limit = 0;    // as `limit`
  // Without shared experts: act(x) of the experts' input x is added to their output (llama.cpp, if a file names shared experts but has no
  // tensors for them).
  bool shared_activation = false;
  bool operator==(const Experts&) const = default;
};

}  // namespace tally
