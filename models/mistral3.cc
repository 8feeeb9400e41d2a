// SPDX-License-Identifier: Apache-2.0
// Mistral Small 3 and Ministral 3 (Mistral AI 2025), text: Llama's decoder. Ministral's queries grow with their position, in every layer,
// and its rope is YaRN's. A checkpoint with a vision tower has its text model below text_config; its model_type there says which of the
// two it is. GGUF permutes q and k as it does Llama's.
#include "engine/base/format.h"
#include "engine/recipe/rope_freqs.h"
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"mistral3"};
constexpr std::string_view kHf[] = {"Mistral3ForConditionalGeneration", "Ministral3ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"mistral3", "ministral3"};

void ReadBiases(Config& c, Recipe& r) {
  const Inventory& files = c.inventory();
  r.rope.freq_factors = IsStored(files, GgufName(Role::kRopeFactors, -1));
  SetBiases(r, AnyLayerHas(files, r, Role::kQBias), AnyLayerHas(files, r, Role::kOBias));
  r.all.ffn.bias = AnyLayerHas(files, r, Role::kUpBias);
  if (c.Int("expert_count", 0, kMaxExperts, 0) > 0) c.Unsupported("expert_count", "other than 0, in this architecture,");
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  bool mistral = false;  // Mistral Small 3: MistralConfig's defaults
  if (c.gguf()) {
    r.rope.style = RopeStyle::kAdjacentPair;
  } else {
    EnterTextModel(c, spec, {"vision_tower.", "multi_modal_projector."});
  }
  if (!c.gguf() && !c.Is({"Ministral3ForCausalLM", "ministral3"}) && c.inventory().metadata.IsOther("text_config")) {
    if (c.inventory().tensors.empty()) spec.parts_not_run.push_back({"vision_tower and projector", std::nullopt});
    const std::string type = c.String("model_type", "mistral");
    mistral = type == "mistral";
    if (!mistral && type != "ministral3") c.Unsupported("text_config.model_type", Quote(type));
  }
  ReadMistralDecoder(c, spec,
                     mistral
                         ? DecoderDefaults{.norm_eps = 1e-6, .n_kv_heads = 8, .n_heads = 32, .context = 131072, .vocab = 32000}
                         : DecoderDefaults{.norm_eps = 1e-5,
                                           .n_kv_heads = 8,
                                           .head_dim = 128,
                                           .n_heads = 32,
                                           .context = 262144,
                                           .vocab = 131072,
                                           .rope_theta = 1e6},
                     !mistral);
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  if (c.gguf()) {
    ReadBiases(c, r);
    const double all = c.Double("rope.scaling.yarn_log_multiplier", 0);  // Hugging Face's mscale_all_dim, beside an mscale of 1
    if (all != 0 && c.ok()) r.rope.scaling.attention_factor /= YarnMagnitude(r.rope.scaling.factor, all);
  } else if (!c.IsNull("sliding_window") && (mistral || c.Has("sliding_window"))) {
    const int32_t window = c.Int("sliding_window", 1, kMaxContext, 4096);
    for (LayerRecipe& layer : r.layers) layer.attention.window = window;
  }
}

}  // namespace

extern constinit const Family kMistral3Family = {"mistral3", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
