// SPDX-License-Identifier: Apache-2.0
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
#include "models/vision.h"

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
    {Role::kExpertGate, TALLY_FFN "experts.gate_up_proj", Storage::kTransposed, GateRows<ExpertWidth>},
    {Role::kExpertUp, TALLY_FFN "experts.gate_up_proj", Storage::kTransposed, UpRows<ExpertWidth>},
    {Role::kExpertDown, TALLY_FFN "experts.down_proj", Storage::kTransposed},
    {Role::kSharedExpertGate, TALLY_FFN "shared_expert.gate_proj.weight"},
    {Role::kSharedExpertUp, TALLY_FFN "shared_expert.up_proj.weight"},
    {Role::kSharedExpertDown, TALLY_FFN "shared_expert.down_proj.weight"}};
#undef TALLY_FFN

// "llama4" is also GGUF's architecture, with or without a tower.
bool OfSeveralParts(const Config& c) { return c.Is({"Llama4ForConditionalGeneration", "llama4"}); }

// The vision tower (a matrix of the patches without bias, a class embedding, learned positions, LayerNorms before and after the
// layers, two matrices that take four patches as one) and the projector (a matrix) that a configuration describes.
void AddVision(const Config& c, ModelSpec& spec) {
  const std::optional<VisionEncoder> v = ReadVisionEncoder(c);
  const auto in = VisionNumber(c, "projector_input_dim"), out = VisionNumber(c, "projector_output_dim"),
             seen = VisionNumber(c, "vision_output_dim");
  if (!v || !in || !out || !seen) return spec.parts_not_run.push_back({"vision_model and projector", std::nullopt});
  const uint64_t embedding = (v->patch + 1 + v->patches + 1) * v->width, adapter = v->d_ff * *in + *out * *out;
  spec.parts_not_run.push_back({"vision_model", embedding + v->LayerParameters() + 2 * 2 * v->width + adapter});
  spec.parts_not_run.push_back({"multi_modal_projector", *seen * static_cast<uint64_t>(spec.recipe.d_model)});
}

void ReadMixture(Config& c, Recipe& r) {
  ReadExperts(c, r, "num_local_experts", "intermediate_size");
  r.all.experts.shared_width = r.all.experts.width;
  r.all.experts.routing = RoutingRule::kTopKThenSigmoid;
  r.all.experts.weighted_inputs = true;
  constexpr std::string_view kStep = "interleave_moe_layer_step";
  const int32_t step = c.gguf() ? c.Int(kStep, 1, kMaxLayers) : c.Int(kStep, 1, kMaxLayers, 1);
  const bool told = c.Has("moe_layers");
  const std::vector<int64_t> listed = c.Ints("moe_layers");
  for (int32_t i = 0; i < static_cast<int32_t>(r.layers.size()); ++i) {
    SetSparse(r.layers[i], told ? std::ranges::find(listed, i) != listed.end() : (i + 1) % step == 0);
  }
}

// Without layer_types, the layers with rope have chunks.
void ReadChunks(Config& c, Recipe& r) {
  constexpr std::string_view kWindow = "attention.sliding_window";
  if (c.gguf() && c.Int(kWindow, 0, kMaxContext, 8192) != 8192) c.Unsupported(kWindow, "other than 8192");
  const int32_t chunk = c.IsNull("attention_chunk_size") ? 0 : c.Int("attention_chunk_size", 1, kMaxContext, 8192);
  const std::vector<std::string> types = c.Strings("layer_types");
  if (!types.empty() && types.size() != r.layers.size()) {
    return c.Fail("layer_types lists " + std::to_string(types.size()) + " layers of " + std::to_string(r.layers.size()));
  }
  for (size_t i = 0; i < r.layers.size(); ++i) {
    const bool chunked = types.empty() ? r.layers[i].attention.rope != LayerRope::kNone : types[i] == "chunked_attention";
    if (!types.empty() && !chunked && types[i] != "full_attention") c.Unsupported("layer_types", Quote(types[i]));
    r.layers[i].attention.chunk = chunked ? chunk : 0;
  }
}

// Published checkpoints have true, or a number.
void ReadTemperature(Config& c, Recipe& r) {
  const std::string prefix = !c.gguf() && c.inventory().metadata.IsOther("text_config") ? "text_config." : "";
  const auto number = c.inventory().metadata.GetInt(prefix + "attn_temperature_tuning");
  const bool tuned = number.ok() && number->has_value() ? **number != 0 : c.Bool("attn_temperature_tuning", true);
  if (tuned) r.all.attention.temperature.scale = static_cast<float>(c.Positive("attn_scale", 0.1));
  r.all.attention.temperature.floor = static_cast<float>(c.Positive("floor_scale", 8192));
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  EnterTextModel(c, spec, {"vision_model.", "multi_modal_projector."});
  r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .n_kv_heads = 8,
               .head_dim = 128,
               .n_heads = 40,
               .context = 131072,
               .vocab = 202048,
               .rope_theta = 500000});
  if (OfSeveralParts(c) && c.inventory().tensors.empty()) AddVision(c, spec);
  r.all.ffn.width = c.gguf() ? c.Int("feed_forward_length", 1, kMaxWidth) : c.Int("intermediate_size_mlp", 1, kMaxWidth, 16384);
  ExpectSilu(c);
  ReadMixture(c, r);
  ReadNoRopeLayers(c, r);
  ReadChunks(c, r);
  ReadTemperature(c, r);
  // GGUF has no key for the norm; the published model of 128 experts has none.
  const bool qk_norm = c.gguf() ? r.all.experts.n_experts != 128 : c.Bool("use_qk_norm", true);
  if (qk_norm) r.all.attention.qk_norm = QkNormKind::kUnweighted;
  const bool bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("attention_bias", false);
  SetBiases(r, bias, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kOBias) : bias);
  r.rope.freq_factors = c.gguf() && IsStored(c.inventory(), GgufName(Role::kRopeFactors, -1));
}

}  // namespace

extern constinit const Family kLlama4Family = {"llama4", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
