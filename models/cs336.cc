// SPDX-License-Identifier: Apache-2.0
// The language model of Stanford's course CS336 (assignment 1, 2025): Llama's decoder with adjacent-pair rope, an eps of 1e-5, as
// many key-value heads as heads, head not tied. config.json has the names of the model's arguments and model_type "cs336".
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kHfTypes[] = {"cs336"};

#define TALLY_LAYER "layers.#."
constexpr RoleName kHfNames[] = {
    {Role::kTokenEmbedding, "token_embeddings.weight"}, {Role::kOutputNorm, "ln_final.weight"},
    {Role::kAttnNorm, TALLY_LAYER "ln1.weight"},        {Role::kFfnNorm, TALLY_LAYER "ln2.weight"},
    {Role::kQ, TALLY_LAYER "attn.q_proj.weight"},       {Role::kK, TALLY_LAYER "attn.k_proj.weight"},
    {Role::kV, TALLY_LAYER "attn.v_proj.weight"},       {Role::kO, TALLY_LAYER "attn.output_proj.weight"},
    {Role::kGate, TALLY_LAYER "ffn.w1.weight"},         {Role::kUp, TALLY_LAYER "ffn.w3.weight"},
    {Role::kDown, TALLY_LAYER "ffn.w2.weight"},
};
#undef TALLY_LAYER

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .hf_layers = "num_layers",
               .hf_width = "d_model",
               .hf_heads = "num_heads",
               .hf_context = "context_length"});
  r.all.ffn.width = c.Int("d_ff", 1, kMaxWidth);
  if (!c.Has("rope_theta")) c.Fail("required key rope_theta is missing");
}

}  // namespace

extern constinit const Family kCs336Family = {"cs336", {}, {}, kHfTypes, Read, kHfNames};

}  // namespace tally
