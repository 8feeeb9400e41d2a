// SPDX-License-Identifier: Apache-2.0
// Granite 4.0-H (IBM 2025): Granite's factors and feed-forwards, dense or a mixture beside a shared expert, in layers of Mamba-2 and few of
// attention, mostly without rope. Bamba (IBM 2024): the same without factors, dense, with rope of half a head. GGUF has both as one
// architecture, says 0 key-value heads of a layer of Mamba-2, and permutes q and k as it does Llama's. Hugging Face stores gate and up as
// one tensor, gate first, and the dense feed-forward as the shared expert.
#include <algorithm>

#include "engine/base/format.h"
#include "models/family.h"
#include "models/gate_up_rows.h"
#include "models/mamba.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"granitehybrid"};
constexpr std::string_view kHf[] = {"GraniteMoeHybridForCausalLM", "BambaForCausalLM"};
constexpr std::string_view kHfTypes[] = {"granitemoehybrid", "bamba"};

#define TALLY_LAYER "model.layers.#."
#define TALLY_MOE TALLY_LAYER "block_sparse_moe."
#define TALLY_SHARED TALLY_LAYER "shared_mlp."
#define TALLY_BAMBA TALLY_LAYER "feed_forward."
constexpr RoleName kHfNames[] = {
    TALLY_MAMBA_HF(TALLY_LAYER "mamba."),
    {Role::kRouter, TALLY_MOE "router.layer.weight"},
    {Role::kExpertGate, TALLY_MOE "input_linear.weight", Storage::kPlain, GateRows<ExpertWidth>},
    {Role::kExpertUp, TALLY_MOE "input_linear.weight", Storage::kPlain, UpRows<ExpertWidth>},
    {Role::kExpertDown, TALLY_MOE "output_linear.weight"},
    {Role::kSharedExpertGate, TALLY_SHARED "input_linear.weight", Storage::kPlain, GateRows<SharedWidth>},
    {Role::kSharedExpertUp, TALLY_SHARED "input_linear.weight", Storage::kPlain, UpRows<SharedWidth>},
    {Role::kSharedExpertDown, TALLY_SHARED "output_linear.weight"},
    {Role::kGate, TALLY_SHARED "input_linear.weight", Storage::kPlain, GateRows<DenseWidth>},
    {Role::kUp, TALLY_SHARED "input_linear.weight", Storage::kPlain, UpRows<DenseWidth>},
    {Role::kDown, TALLY_SHARED "output_linear.weight"},
    {Role::kGate, TALLY_BAMBA "gate_proj.weight"},
    {Role::kUp, TALLY_BAMBA "up_proj.weight"},
    {Role::kDown, TALLY_BAMBA "down_proj.weight"},
    {Role::kFfnNorm, TALLY_LAYER "post_attention_layernorm.weight"},
    {Role::kFfnNorm, TALLY_LAYER "pre_ff_layernorm.weight"},
    {Role::kOutputNorm, "model.norm.weight"},
    {Role::kOutputNorm, "model.final_layernorm.weight"},
};
#undef TALLY_BAMBA
#undef TALLY_SHARED
#undef TALLY_MOE
#undef TALLY_LAYER
constexpr RoleName kGgufNames[] = {TALLY_MAMBA_GGUF};

std::vector<bool> ReadAttends(Config& c, const Recipe& r, bool bamba) {
  std::vector<bool> attends;
  if (c.gguf()) {
    for (const int32_t n : ReadOfLayers(c, r, "attention.head_count_kv", kMaxHeads)) attends.push_back(n > 0);
  } else if (bamba) {
    attends.resize(r.layers.size());
    for (const int64_t layer : c.Ints("attn_layer_indices")) {
      if (layer < 0 || layer >= r.n_layers) {
        c.Fail("attn_layer_indices names layer " + std::to_string(layer) + " of " + std::to_string(r.n_layers));
        break;
      }
      attends[static_cast<size_t>(layer)] = true;
    }
  } else {
    for (const std::string& type : c.Strings("layer_types")) {
      attends.push_back(type == "attention" || type == "full_attention");
      if (!attends.back() && type != "mamba" && type != "linear_attention") c.Unsupported("layer_types", Quote(type));
    }
    if (attends.empty()) attends.resize(r.layers.size());
  }
  if (attends.size() != r.layers.size()) {
    c.Fail("layer_types lists " + std::to_string(attends.size()) + " layers of " + std::to_string(r.layers.size()));
  }
  attends.resize(r.layers.size());
  return attends;
}

void ReadFactors(Config& c, Recipe& r) {
  const auto factor = [&](std::string_view gguf, std::string_view hf) {
    return c.gguf() ? ReadGgufFactor(c, gguf) : c.Positive(hf, 1);
  };
  r.embedding_scale = static_cast<float>(factor("embedding_scale", "embedding_multiplier"));
  r.all.residual.scale = static_cast<float>(factor("residual_scale", "residual_multiplier"));
  r.logit_scale = static_cast<float>(1 / factor("logit_scale", "logits_scaling"));
  if (!c.gguf()) SetAttentionScale(r, c.Positive("attention_multiplier", 1));
}

// Experts beside a shared one, or the dense feed-forward alone.
void ReadGraniteFeedForward(Config& c, Recipe& r) {
  const std::string_view count = c.Pick("expert_count", "num_local_experts");
  const std::string_view shared = c.Pick("expert_shared_feed_forward_length", "shared_intermediate_size");
  if (c.Int(count, 0, kMaxExperts, c.gguf() ? 0 : 8) == 0) {
    if (c.gguf()) return ReadFeedForwardWidth(c, r);
    r.all.ffn.width = c.Int(shared, 1, kMaxWidth, 1024);
    return;
  }
  r.family = "granite-hybrid-moe";
  ReadExperts(c, r, "num_local_experts", "intermediate_size");
  r.all.experts.routing = RoutingRule::kTopKThenSoftmax;
  r.all.experts.shared_width = c.Int(shared, 0, kMaxWidth, c.gguf() ? 0 : 1024);
  for (LayerRecipe& layer : r.layers) SetSparse(layer, true);
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool bamba = c.Is({"BambaForCausalLM", "bamba"});
  if (c.gguf()) r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec,
              {.norm_eps = bamba ? 1e-5 : 1e-6,
               .n_kv_heads = bamba ? 8 : 0,
               .n_heads = 32,
               .context = bamba ? 262144 : 2048,
               .vocab = bamba ? 128000 : 32000,
               .rotated = bamba ? 0.5 : 1,
               .gguf_attention_scale = true,
               .gguf_absent_heads = true});
  const std::vector<bool> attends = ReadAttends(c, r, bamba);
  const bool rope =
      bamba || (c.gguf() ? c.Bool("rope.scaling.finetuned", true) : c.String("position_embedding_type", "") == "rope");
  for (size_t i = 0; i < r.layers.size(); ++i) {
    r.layers[i].mixers = attends[i] ? Mixer::kAttention : Mixer::kMamba2;
    if (!rope) r.layers[i].attention.rope = LayerRope::kNone;
  }
  if (AnyLayer(r, &LayerRecipe::recurrent)) ReadMamba2(c, r, {});
  if (bamba) {
    ReadFeedForwardWidth(c, r);
  } else {
    ReadFactors(c, r);
    ReadGraniteFeedForward(c, r);
    const bool bias = !c.gguf() && c.Bool("attention_bias", false);
    SetBiases(r, bias, bias);
  }
  if (!c.gguf()) c.ExpectBool("mlp_bias", false);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kGraniteHybridFamily = {"granite-hybrid", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
