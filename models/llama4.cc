// Llama 4 (Meta 2025), text: adjacent-pair rope and attention in chunks on three layers of four, then a layer that sees all of
// the past, without rope, whose queries grow with their position; RMSNorm without weights of queries and keys after rope. Experts
// are chosen by their logits, whose sigmoids multiply the experts' inputs; beside them is a shared expert. Maverick has dense and
// sparse layers in turn. Hugging Face stores the experts' matrices as [in, out], gate and up as one tensor, gate first. A
// checkpoint with a vision tower has its text model below text_config and language_model. GGUF has no keys for chunks and
// temperature.
#include <algorithm>

#include "engine/base/format.h"
#include "models/family.h"
#include "models/gate_up_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"llama4"};
constexpr std::string_view kHf[] = {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"};
constexpr std::string_view kHfTypes[] = {"llama4_text", "llama4"};

#define TALLY_FFN "~model.layers.#.feed_forward."
constexpr RoleName kHfNames[] = {
    {Role::kGate, TALLY_FFN "gate_proj.weight"},
    {Role::kUp, TALLY_FFN "up_proj.weight"},
    {Role::kDown, TALLY_FFN "down_proj.weight"},
    {Role::kRouter, TALLY_FFN "router.weight"},
    {Role::kExpertGate, TALLY_FFN "experts.gate_up_proj", Storage::kTransposed, GateRows<&Recipe::d_expert>},
    {Role::kExpertUp, TALLY_FFN "experts.gate_up_proj", Storage::kTransposed, UpRows<&Recipe::d_expert>},
    {Role::kExpertDown, TALLY_FFN "experts.down_proj", Storage::kTransposed},
    {Role::kSharedExpertGate, TALLY_FFN "shared_expert.gate_proj.weight"},
    {Role::kSharedExpertUp, TALLY_FFN "shared_expert.up_proj.weight"},
    {Role::kSharedExpertDown, TALLY_FFN "shared_expert.down_proj.weight"}};
#undef TALLY_FFN

// Selects the text model of a checkpoint with a vision tower. Returns what stands before the keys.
std::string EnterText(Config& c, ModelSpec& spec) {
  if (c.gguf() || !c.Is({"Llama4ForConditionalGeneration", "llama4"})) return "";
  c.Enter("text_config.");
  c.tensor_prefix = "language_model.";
  for (const char* part : {"vision_model.", "multi_modal_projector."}) AddNotRun(c, spec, part);
  return "text_config.";
}

void ReadMixture(Config& c, Recipe& r) {
  ReadExperts(c, r, "num_local_experts", "intermediate_size");
  r.d_shared = r.d_expert;
  r.routing = RoutingRule::kTopKThenSigmoid;
  r.weighted_expert_inputs = true;
  constexpr std::string_view kStep = "interleave_moe_layer_step";
  const int32_t step = c.gguf() ? c.Int(kStep, 1, kMaxLayers) : c.Int(kStep, 1, kMaxLayers, 1);
  const bool told = c.Has("moe_layers");
  const std::vector<int64_t> listed = c.Ints("moe_layers");
  for (int32_t i = 0; i < static_cast<int32_t>(r.layers.size()); ++i) {
    r.layers[i].sparse = told ? std::ranges::find(listed, i) != listed.end() : (i + 1) % step == 0;
  }
}

// Where no layer_types say which layers have chunks, those with rope do.
void ReadChunks(Config& c, Recipe& r) {
  constexpr std::string_view kWindow = "attention.sliding_window";
  if (c.gguf() && c.Int(kWindow, 0, kMaxContext, 8192) != 8192) c.Unsupported(kWindow, "other than 8192");
  const int32_t chunk = c.IsNull("attention_chunk_size") ? 0 : c.Int("attention_chunk_size", 1, kMaxContext, 8192);
  const std::vector<std::string> types = c.Strings("layer_types");
  if (!types.empty() && types.size() != r.layers.size()) {
    return c.Fail("layer_types lists " + std::to_string(types.size()) + " layers of " + std::to_string(r.layers.size()));
  }
  for (size_t i = 0; i < r.layers.size(); ++i) {
    const bool chunked = types.empty() ? r.layers[i].rope != LayerRope::kNone : types[i] == "chunked_attention";
    if (!types.empty() && !chunked && types[i] != "full_attention") c.Unsupported("layer_types", Quote(types[i]));
    r.layers[i].chunk = chunked ? chunk : 0;
  }
}

// `prefix` stands before the keys. Published checkpoints have true, or a number.
void ReadTemperature(Config& c, Recipe& r, const std::string& prefix) {
  const auto number = c.inventory().metadata.GetInt(prefix + "attn_temperature_tuning");
  const bool tuned = number.ok() && number->has_value() ? **number != 0 : c.Bool("attn_temperature_tuning", true);
  if (tuned) r.temperature_scale = static_cast<float>(c.Positive("attn_scale", 0.1));
  r.temperature_floor = static_cast<float>(c.Positive("floor_scale", 8192));
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const std::string prefix = EnterText(c, spec);
  r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .n_kv_heads = 8,
               .head_dim = 128,
               .n_heads = 40,
               .context = 131072,
               .vocab = 202048,
               .rope_theta = 500000});
  r.d_ff = c.gguf() ? c.Int("feed_forward_length", 1, kMaxWidth) : c.Int("intermediate_size_mlp", 1, kMaxWidth, 16384);
  ExpectSilu(c);
  ReadMixture(c, r);
  ReadNoRopeLayers(c, r);
  ReadChunks(c, r);
  ReadTemperature(c, r, prefix);
  // GGUF has no key for the norm; the published model of 128 experts has none.
  const bool qk_norm = c.gguf() ? r.n_experts != 128 : c.Bool("use_qk_norm", true);
  if (qk_norm) r.qk_norm = QkNormKind::kUnweighted;
  const bool bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("attention_bias", false);
  SetBiases(r, bias, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kOBias) : bias);
  r.rope.freq_factors = c.gguf() && IsStored(c.inventory(), GgufName(Role::kRopeFactors, -1));
}

}  // namespace

extern constinit const Family kLlama4Family = {"llama4", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
