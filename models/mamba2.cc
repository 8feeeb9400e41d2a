// SPDX-License-Identifier: Apache-2.0
// Mamba-2 (Dao & Gu 2024): layers of a norm and a recurrence, without attention and feed-forwards. With several groups the output of a
// layer is normalised by group, as in the authors' code (mamba_ssm), with which Codestral was trained, and in llama.cpp; transformers
// normalises it as a whole. Defaults are those of transformers.
#include "models/family.h"
#include "models/mamba.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"mamba2"};
constexpr std::string_view kHf[] = {"Mamba2ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"mamba2"};

constexpr RoleName kGgufNames[] = {TALLY_MAMBA_GGUF};
constexpr RoleName kHfNames[] = {{Role::kTokenEmbedding, "backbone.embeddings.weight"},
                                 {Role::kTokenEmbedding, "backbone.embedding.weight"},
                                 {Role::kOutputNorm, "backbone.norm_f.weight"},
                                 {Role::kAttnNorm, "backbone.layers.#.norm.weight"},
                                 TALLY_MAMBA_HF("backbone.layers.#.mixer.")};

constexpr int32_t kContext = 1 << 20;  // if a configuration has none; llama.cpp's converter writes it

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .context = kContext,
               .vocab = 32768,
               .hf_eps = "layer_norm_epsilon",
               .attention = false,
               .rope = false,
               .hf_context = c.Has("max_position_embeddings") ? "max_position_embeddings" : ""});
  for (LayerRecipe& layer : r.layers) {
    layer.mixers = Mixer::kMamba2;
    layer.feed_forward = {};
  }
  ReadMamba2(c, r,
             {.heads = "num_heads",
              .head_dim = "head_dim",
              .state_dim = "state_size",
              .groups = "n_groups",
              .taps = "conv_kernel",
              .conv_bias = "use_conv_bias",
              .proj_bias = "use_bias",
              .dim = 64,
              .n_state = 128,
              .n_groups = 8});
  r.all.mamba.norm_groups = r.all.mamba.groups;
  c.ExpectBool("rms_norm", true);
  c.ExpectText("hidden_act", "silu");
}

}  // namespace

extern constinit const Family kMamba2Family = {"mamba2", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
