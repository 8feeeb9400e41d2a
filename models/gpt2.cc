// GPT-2 (Radford et al. 2019): LayerNorm before each block, learned positions, fused q, k, v, tanh-GELU, head
// tied to the embedding. Hugging Face stores the Conv1D matrices as [in, out]; the release files carry no
// prefix and keep the causal masks.
#include <algorithm>

#include "engine/base/format.h"
#include "models/binding.h"
#include "models/config.h"
#include "models/families.h"
#include "models/names.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"gpt2"};
constexpr std::string_view kHf[] = {"GPT2LMHeadModel"};
constexpr std::string_view kHfTypes[] = {"gpt2"};

// clang-format off
constexpr RoleName kHfNames[] = {  // ~: the optional prefix "transformer."
    {Role::kTokenEmbedding, "~wte.weight"},   {Role::kPositionEmbedding, "~wpe.weight"},
    {Role::kOutputNorm, "~ln_f.weight"},      {Role::kOutputNormBias, "~ln_f.bias"},
    {Role::kHead, "lm_head.weight"},
    {Role::kAttnNorm, "~h.#.ln_1.weight"},    {Role::kAttnNormBias, "~h.#.ln_1.bias"},
    {Role::kFfnNorm, "~h.#.ln_2.weight"},     {Role::kFfnNormBias, "~h.#.ln_2.bias"},
    {Role::kQkvBias, "~h.#.attn.c_attn.bias"}, {Role::kQkv, "~h.#.attn.c_attn.weight", Storage::kTransposed},
    {Role::kOBias, "~h.#.attn.c_proj.bias"},   {Role::kO, "~h.#.attn.c_proj.weight", Storage::kTransposed},
    {Role::kUpBias, "~h.#.mlp.c_fc.bias"},     {Role::kUp, "~h.#.mlp.c_fc.weight", Storage::kTransposed},
    {Role::kDownBias, "~h.#.mlp.c_proj.bias"}, {Role::kDown, "~h.#.mlp.c_proj.weight", Storage::kTransposed},
};
// clang-format on

ActivationKind ReadActivation(Config& c) {
  const std::string name = c.String("activation_function", "gelu_new");
  if (name == "gelu") return ActivationKind::kGeluErf;
  if (name != "gelu_new" && name != "gelu_pytorch_tanh" && name != "gelu_fast") c.Unsupported("activation_function", Quote(name));
  return ActivationKind::kGeluTanh;
}

void SetShape(Config& c, Recipe& r) {  // what all GPT-2 have in common
  r.family = "gpt2";
  r.norm = NormKind::kLayer;
  r.learned_positions = r.fused_qkv = r.ffn_bias = true;
  r.q_bias = r.k_bias = r.v_bias = r.o_bias = true;  // a file without them is not whole, and is refused
  r.gated_ffn = false;
  r.n_kv_heads = r.n_heads;
  r.head_dim = EvenHeadDim(c, r);
  r.layers.resize(r.n_layers);
  UsualAttentionScale(r);
}

Result<ModelSpec> ReadGgufFile(const Inventory& inventory) {
  ModelSpec spec;
  Recipe& r = spec.recipe;
  Config c(inventory, "gpt2.");
  r.n_layers = c.Int("block_count", 1, kMaxLayers);
  r.d_model = c.Int("embedding_length", 1, kMaxWidth);
  r.n_heads = c.Int("attention.head_count", 1, kMaxHeads);
  r.context = c.Int("context_length", 1, kMaxContext);
  r.d_ff = c.Int("feed_forward_length", 1, kMaxWidth, 4 * int64_t{r.d_model});
  r.norm_eps = static_cast<float>(c.Positive("attention.layer_norm_epsilon"));
  r.vocab = GgufVocabulary(c);
  r.activation = ActivationKind::kGeluTanh;
  SetShape(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  r.tied_head = !IsStored(inventory, "output.weight");
  return Finish(c, std::move(spec), {GgufNames()});
}

Result<ModelSpec> ReadHfDirectory(const Inventory& inventory) {
  ModelSpec spec;
  Recipe& r = spec.recipe;
  Config c(inventory, "");
  r.n_layers = c.Int("n_layer|num_hidden_layers", 1, kMaxLayers);
  r.d_model = c.Int("n_embd|hidden_size", 1, kMaxWidth);
  r.n_heads = c.Int("n_head|num_attention_heads", 1, kMaxHeads);
  r.context = c.Int("n_positions|max_position_embeddings|n_ctx", 1, kMaxContext);
  r.vocab = c.Int("vocab_size", 1, kMaxVocab);
  r.d_ff = c.Int("n_inner", 1, kMaxWidth, 4 * int64_t{r.d_model});
  r.norm_eps = static_cast<float>(c.Positive("layer_norm_epsilon", 1e-5));
  r.activation = ReadActivation(c);
  if (c.Bool("add_cross_attention", false)) c.Unsupported("add_cross_attention", "true");
  SetShape(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  const bool scaled = c.Bool("scale_attn_weights", true), by_layer = c.Bool("scale_attn_by_inverse_layer_idx", false);
  for (int32_t i = 0; i < r.n_layers; ++i) {
    float& scale = r.layers[i].attention_scale;
    if (!scaled) scale = 1;
    if (by_layer) scale /= static_cast<float>(i + 1);
  }
  const bool prefixed =
      std::ranges::any_of(inventory.tensors, [](const StoredTensor& t) { return t.name.starts_with("transformer."); });
  const std::string prefix = prefixed ? "transformer." : "";
  for (int32_t i = 0; i < r.n_layers; ++i) {
    for (const char* mask : {".attn.bias", ".attn.masked_bias"}) {  // the causal mask and its value
      const std::string name = prefix + "h." + std::to_string(i) + mask;
      if (IsStored(inventory, name)) spec.buffers.push_back(name);
    }
  }
  ReadHfTying(c, true, spec);
  return Finish(c, std::move(spec), {kHfNames}, prefix);
}

Result<ModelSpec> Read(const Inventory& inventory) {
  return inventory.format == FileFormat::kGguf ? ReadGgufFile(inventory) : ReadHfDirectory(inventory);
}

}  // namespace

constinit const Family kGpt2Family = {"gpt2", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
