// SPDX-License-Identifier: Apache-2.0
// Qwen3 (Qwen team 2025): Llama's decoder with RMSNorm of each head's query and key; and its mixture of experts. GGUF has no key for
// dividing the chosen experts' weights by their sum: a file of the mixture implies it. Qwen3-VL (2025), text: the same. Its text has one
// position for all sections of M-RoPE, of which the pairs that no section has turn with the time; its vision tower is not run. Hugging Face
// stores its experts' matrices as [in, out], gate and up as one tensor, gate first.
#include "models/family.h"
#include "models/gate_up_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"qwen3", "qwen3moe"};
constexpr std::string_view kHf[] = {"Qwen3ForCausalLM", "Qwen3MoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"qwen3", "qwen3_moe"};
constexpr std::string_view kVlGguf[] = {"qwen3vl", "qwen3vlmoe"};
constexpr std::string_view kVlHf[] = {"Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"};
constexpr std::string_view kVlHfTypes[] = {"qwen3_vl", "qwen3_vl_moe"};

constexpr std::string_view kGateUp = "~model.layers.#.mlp.experts.gate_up_proj";
constexpr RoleName kVlNames[] = {{Role::kExpertGate, kGateUp, Storage::kTransposed, GateRows<ExpertWidth>},
                                 {Role::kExpertUp, kGateUp, Storage::kTransposed, UpRows<ExpertWidth>},
                                 {Role::kExpertDown, "~model.layers.#.mlp.experts.down_proj", Storage::kTransposed}};

// With a mixture, all layers have it (transformers, modeling_qwen3_moe.py).
void ReadWindow(Config& c, Recipe& r) {
  if (c.gguf() || !c.Bool("use_sliding_window", false) || c.IsNull("sliding_window")) return;
  const int32_t window = c.Int("sliding_window", 1, kMaxContext, 4096);
  for (LayerRecipe& layer : r.layers) layer.attention.window = window;
}

void ReadWith(Config& c, ModelSpec& spec, const DecoderDefaults& defaults, bool mixture, bool normed) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, defaults);
  ReadFeedForwardWidth(c, r);
  r.all.attention.qk_norm = QkNormKind::kHead;
  if (mixture) {
    r.family += "-moe";
    ReadExperts(c, r, "num_experts|num_local_experts", "moe_intermediate_size");
    r.all.experts.routing = SoftmaxRule(c, normed);
    ReadQwenSparseLayers(c, r);
    ReadWindow(c, r);
  } else {
    ReadQwenWindows(c, r);
  }
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  ExpectSilu(c);
}

void Read(Config& c, ModelSpec& spec) {
  const bool mixture = c.Is({"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe"});
  ReadWith(c, spec,
           {.norm_eps = 1e-6, .n_kv_heads = mixture ? 4 : 32, .head_dim = mixture ? 0 : 128, .context = 32768, .vocab = 151936},
           mixture, /*normed=*/c.gguf());
}

void ReadVl(Config& c, ModelSpec& spec) {
  const bool mixture = c.Is({"qwen3vlmoe", "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"});
  if (!c.gguf() && c.inventory().tensors.empty()) spec.parts_not_run.push_back({"visual", std::nullopt});
  EnterTextModel(c, spec, {"visual."});
  std::vector<int64_t> sections = {24, 20, 20};  // the class's default
  for (const char* p : {"rope_scaling.", "rope_parameters."}) {
    if (!c.gguf()) c.ExpectBool(p + std::string("mrope_interleaved"), true);
    if (!c.gguf() && c.Has(p + std::string("mrope_section"))) sections = c.Ints(p + std::string("mrope_section"));
  }
  if (c.gguf() && c.Has("rope.dimension_sections")) sections = c.Ints("rope.dimension_sections");
  c.ExpectBool("norm_topk_prob", true);
  ReadWith(c, spec,
           {.norm_eps = 1e-6,
            .n_kv_heads = mixture ? 16 : 32,
            .head_dim = mixture ? 0 : 128,
            .n_heads = mixture ? 16 : 32,
            .context = 128000,
            .vocab = 151936,
            .rope_theta = 5e6},
           mixture, /*normed=*/true);
  SetSections(c, sections, /*interleaved=*/true, spec.recipe);
}

}  // namespace

extern constinit const Family kQwen3Family = {"qwen3", kGguf, kHf, kHfTypes, Read};
extern constinit const Family kQwen3VlFamily = {"qwen3-vl", kVlGguf, kVlHf, kVlHfTypes, ReadVl, kVlNames};

}  // namespace tally
