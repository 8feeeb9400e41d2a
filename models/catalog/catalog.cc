// Shapes from the configurations that the makers publish beside the weights: openai/gpt-2 hparams.json; of openai (gpt-oss), Qwen,
// mistralai, allenai, deepseek-ai, moonshotai, zai-org, meta-llama, TinyLlama (the chat model), HuggingFaceTB and google the
// config.json on the Hugging Face hub. What such a file leaves out has the default of transformers' configuration class. `context`
// of Qwen2 and Qwen2.5 is the base model's.
#include "models/catalog/catalog.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/format.h"
#include "engine/recipe/rope_freqs.h"

namespace tally {
namespace {

// Properties shared by models of one make.
struct Make {
  std::string_view family;
  DType type = DType::kBF16, expert_type = DType::kBF16;
  NormKind norm = NormKind::kRms;
  float eps = 1e-6f;
  RopeStyle rope = RopeStyle::kRotateHalf;
  double theta = 10000, rotated = 1;  // rotated: the rotated fraction of a head
  RopeScaling scaling = {};
  double mscale_all_dim = 0;  // DeepSeek's YaRN: q.k is multiplied by the square of the magnitude that this gives
  bool qkv_bias = false, o_bias = false, ffn_bias = false, expert_bias = false, router_bias = false;
  QkNormKind qk_norm = QkNormKind::kNone;
  bool gated = true, tied = false, sinks = false, post_norms = false, shared_gate = false;
  ActivationKind activation = ActivationKind::kSilu;
  RoutingRule routing = RoutingRule::kSoftmaxThenTopKRenormed;
  LatentAttention latent = {};
  int32_t window = 0, global_every = 1;  // global_every: period of full-attention layers (the last of each period)
  int32_t query_scalar = 0;              // q.k is divided by its square root; 0: of head_dim
  int32_t mtp_layers = 0;
  double local_theta = 0;         // rope theta of window layers; 0: as global
  bool scaled_embedding = false;  // multiplied by sqrt(d_model)
};

// clang-format off
constexpr Make kGpt2 = {.family = "gpt2", .type = DType::kF32, .expert_type = DType::kF32, .norm = NormKind::kLayer,
    .eps = 1e-5f, .rope = RopeStyle::kNone, .qkv_bias = true, .o_bias = true, .ffn_bias = true, .gated = false, .tied = true,
    .activation = ActivationKind::kGeluTanh};
// The course text (its pitfalls mention rope) names neither eps, theta, kind of GELU nor trained length.
constexpr Make kMiniGpt = {.family = "mini-gpt", .type = DType::kF32, .expert_type = DType::kF32, .norm = NormKind::kLayer,
    .eps = 1e-5f, .ffn_bias = true, .gated = false, .tied = true, .activation = ActivationKind::kGeluErf};
// YaRN of the published checkpoint does not round its bounds.
constexpr Make kGptOss = {.family = "gpt-oss", .expert_type = DType::kMXFP4, .eps = 1e-5f, .theta = 150000,
    .scaling = {.kind = RopeScalingKind::kYarn, .factor = 32, .original_context = 4096, .truncate = false}, .qkv_bias = true,
    .o_bias = true, .expert_bias = true, .router_bias = true, .sinks = true, .activation = ActivationKind::kSwigluOai,
    .routing = RoutingRule::kTopKThenSoftmax, .window = 128, .global_every = 2};
constexpr Make kQwen2 = {.family = "qwen2", .theta = 1e6, .qkv_bias = true};
constexpr Make kQwen2Large = {.family = "qwen2", .eps = 1e-5f, .theta = 1e6, .qkv_bias = true};
constexpr Make kQwen2Moe = {.family = "qwen2-moe", .theta = 1e6, .qkv_bias = true, .shared_gate = true,
    .routing = RoutingRule::kSoftmaxThenTopK};
constexpr Make kQwen3 = {.family = "qwen3", .theta = 1e6, .qk_norm = QkNormKind::kHead};
constexpr Make kQwen3Tied = {.family = "qwen3", .theta = 1e6, .qk_norm = QkNormKind::kHead, .tied = true};
constexpr Make kQwen3Moe = {.family = "qwen3-moe", .theta = 1e6, .qk_norm = QkNormKind::kHead};
constexpr Make kMixtral = {.family = "mixtral", .eps = 1e-5f, .theta = 1e6, .routing = RoutingRule::kTopKThenSoftmax};
constexpr Make kOlmoe = {.family = "olmoe", .eps = 1e-5f, .qk_norm = QkNormKind::kWhole,
    .routing = RoutingRule::kSoftmaxThenTopK};

constexpr LatentAttention Latent(int32_t q_rank) { return {512, q_rank, 128, 64, 128}; }
constexpr RopeScaling DeepseekYarn(double factor, double beta_fast) {
  return {.kind = RopeScalingKind::kYarn, .factor = factor, .original_context = 4096, .beta_fast = beta_fast};
}
constexpr Make kDeepseek = {.family = "deepseek", .routing = RoutingRule::kSoftmaxThenTopK};
constexpr Make DeepseekV2(int32_t q_rank) {
  return {.family = "deepseek-v2",
          .rope = RopeStyle::kAdjacentPair,
          .scaling = DeepseekYarn(40, 32),
          .mscale_all_dim = 0.707,
          .routing = RoutingRule::kSoftmaxThenTopK,
          .latent = Latent(q_rank)};
}
constexpr Make kDeepseekV2 = DeepseekV2(1536), kDeepseekV2Lite = DeepseekV2(0);
constexpr Make kDeepseekV3 = {.family = "deepseek-v3", .rope = RopeStyle::kAdjacentPair, .scaling = DeepseekYarn(40, 32),
    .mscale_all_dim = 1, .router_bias = true, .routing = RoutingRule::kSigmoidThenTopKRenormed, .latent = Latent(1536),
    .mtp_layers = 1};
constexpr Make kKimi = {.family = "deepseek-v3", .rope = RopeStyle::kAdjacentPair, .theta = 50000,
    .scaling = DeepseekYarn(32, 1), .mscale_all_dim = 1, .router_bias = true, .routing = RoutingRule::kSigmoidThenTopKRenormed,
    .latent = Latent(1536)};
constexpr Make Glm(QkNormKind qk_norm) {
  return {.family = "glm4-moe",
          .eps = 1e-5f,
          .theta = 1e6,
          .rotated = 0.5,
          .qkv_bias = true,
          .router_bias = true,
          .qk_norm = qk_norm,
          .routing = RoutingRule::kSigmoidThenTopKRenormed,
          .mtp_layers = 1};
}
constexpr Make kGlm = Glm(QkNormKind::kHead), kGlmAir = Glm(QkNormKind::kNone);

constexpr Make Llama(double theta, double factor, bool tied, DType type = DType::kBF16) {
  Make m = {.family = "llama", .type = type, .expert_type = type, .eps = 1e-5f, .theta = theta, .tied = tied};
  if (factor > 1) m.scaling = {.kind = RopeScalingKind::kLlama3, .factor = factor, .original_context = 8192};
  return m;
}
constexpr Make kLlama2 = Llama(10000, 1, false, DType::kF16), kTinyLlama = Llama(10000, 1, false),
    kSmol = Llama(100000, 1, true), kLlama31 = Llama(500000, 8, false), kLlama32 = Llama(500000, 32, true);

// Global layers turn by this theta and scaling; local ones by 10,000, unscaled.
constexpr Make Gemma3(int32_t window, double factor, int32_t query_scalar) {
  Make m = {.family = "gemma3",
            .theta = 1e6,
            .qk_norm = QkNormKind::kHead,
            .tied = true,
            .post_norms = true,
            .activation = ActivationKind::kGeluTanh,
            .window = window,
            .global_every = 6,
            .query_scalar = query_scalar,
            .local_theta = 10000,
            .scaled_embedding = true};
  if (factor > 1) m.scaling = {.kind = RopeScalingKind::kLinear, .factor = factor};
  return m;
}
constexpr Make kGemma1 = Gemma3(512, 1, 256), kGemma = Gemma3(1024, 8, 256), kGemma27 = Gemma3(1024, 8, 168);

struct Experts {
  int32_t n = 0, top_k = 0, width = 0;
  int32_t shared = 0;  // width of the shared ones together
  int32_t dense_layers = 0;
};

struct Row {
  std::string_view name;
  const Make* make;
  int32_t layers, d_model, heads, kv_heads, head_dim, d_ff, vocab, context;
  Experts experts;
  PublishedClaim claim;
  std::string_view note = {};
};

constexpr std::string_view kGpt2Source = "openai/gpt-2 DEVELOPERS.md", kCard = "model card",
                           kGemmaSource = "arXiv 2503.19786, Table 1",
                           kText = "text part: the vision tower is not counted",
                           kFp8 = "published in FP8, a type that Tally does not have";

// The table's columns: layers, d_model, heads, key-value heads, head_dim, d_ff, vocabulary, context; experts; claim.
constexpr Row kRows[] = {
    {"gpt2", &kGpt2, 12, 768, 12, 12, 64, 3072, 50257, 1024, {}, {"124M", "", "", kGpt2Source}},
    {"gpt2-medium", &kGpt2, 24, 1024, 16, 16, 64, 4096, 50257, 1024, {}, {"355M", "", "", kGpt2Source}},
    {"gpt2-large", &kGpt2, 36, 1280, 20, 20, 64, 5120, 50257, 1024, {}, {"774M", "", "", kGpt2Source}},
    {"gpt2-xl", &kGpt2, 48, 1600, 25, 25, 64, 6400, 50257, 1024, {},
     {"1558M", "", "", "karpathy/nanoGPT transformer_sizing.ipynb"}},
    {"gpt-oss-20b", &kGptOss, 24, 2880, 64, 8, 64, 0, 201088, 131072, {32, 4, 2880},
     {"20.91B", "3.61B", "", "arXiv 2508.10925, Table 1"}},
    {"gpt-oss-120b", &kGptOss, 36, 2880, 64, 8, 64, 0, 201088, 131072, {128, 4, 2880},
     {"116.83B", "5.13B", "", "arXiv 2508.10925, Table 1"}},
    {"Qwen3-0.6B", &kQwen3Tied, 28, 1024, 16, 8, 128, 3072, 151936, 40960, {}, {"0.6B", "", "0.44B", kCard, true}},
    {"Qwen3-1.7B", &kQwen3Tied, 28, 2048, 16, 8, 128, 6144, 151936, 40960, {}, {"1.7B", "", "1.4B", kCard, true}},
    {"Qwen3-4B", &kQwen3Tied, 36, 2560, 32, 8, 128, 9728, 151936, 40960, {}, {"4.0B", "", "3.6B", kCard}},
    {"Qwen3-8B", &kQwen3, 36, 4096, 32, 8, 128, 12288, 151936, 40960, {}, {"8.2B", "", "6.95B", kCard, true}},
    {"Qwen3-14B", &kQwen3, 40, 5120, 40, 8, 128, 17408, 151936, 40960, {}, {"14.8B", "", "13.2B", kCard, true}},
    {"Qwen3-32B", &kQwen3, 64, 5120, 64, 8, 128, 25600, 151936, 40960, {}, {"32.8B", "", "31.2B", kCard}},
    {"Qwen3-30B-A3B", &kQwen3Moe, 48, 2048, 32, 4, 128, 6144, 151936, 40960, {128, 8, 768}, {"30.5B", "3.3B", "29.9B", kCard}},
    {"Qwen3-235B-A22B", &kQwen3Moe, 94, 4096, 64, 4, 128, 12288, 151936, 40960, {128, 8, 1536}, {"235B", "22B", "", kCard}},
    {"Qwen1.5-MoE-A2.7B", &kQwen2Moe, 24, 2048, 16, 16, 128, 5632, 151936, 8192, {60, 4, 1408, 5632},
     {"14.3B", "2.7B", "", kCard, true}},
    {"Qwen2-57B-A14B", &kQwen2Moe, 28, 3584, 28, 4, 128, 18944, 151936, 131072, {64, 8, 2560, 20480},
     {"57B", "14B", "", kCard, true}},
    {"Mixtral-8x7B", &kMixtral, 32, 4096, 32, 8, 128, 14336, 32000, 32768, {8, 2, 14336},
     {"46.7B", "12.9B", "", "Mistral AI's announcement"}},
    {"Mixtral-8x22B", &kMixtral, 56, 6144, 48, 8, 128, 16384, 32768, 65536, {8, 2, 16384},
     {"141B", "39B", "", "Mistral AI's announcement", true}},
    {"OLMoE-1B-7B", &kOlmoe, 16, 2048, 16, 16, 128, 1024, 50304, 4096, {64, 8, 1024}, {"6.9B", "1.3B", "", "Ai2's announcement"}},
    {"DeepSeek-V3", &kDeepseekV3, 61, 7168, 128, 128, 192, 18432, 129280, 163840, {256, 8, 2048, 2048, 3},
     {"671B", "37B", "", "deepseek-ai/DeepSeek-V3 README.md"}, kFp8},
    {"Kimi-K2", &kKimi, 61, 7168, 64, 64, 192, 18432, 163840, 131072, {384, 8, 2048, 2048, 1},
     {"1.04T", "32B", "", "arXiv 2507.20534"}, kFp8},
    {"DeepSeek-V2", &kDeepseekV2, 60, 5120, 128, 128, 192, 12288, 102400, 163840, {160, 6, 1536, 3072, 1},
     {"236B", "21B", "", "deepseek-ai/DeepSeek-V3 README.md"}},
    {"DeepSeek-V2-Lite", &kDeepseekV2Lite, 27, 2048, 16, 16, 192, 10944, 102400, 163840, {64, 6, 1408, 2816, 1},
     {"16B", "2.4B", "", "exo-explore/exo issue 32"}},
    {"DeepSeekMoE-16B", &kDeepseek, 28, 2048, 16, 16, 128, 10944, 102400, 4096, {64, 6, 1408, 2816, 1},
     {"16.4B", "2.8B", "", "DeepSeekMoE paper", true}},
    {"GLM-4.5", &kGlm, 92, 5120, 96, 8, 128, 12288, 151552, 131072, {160, 8, 1536, 1536, 3},
     {"355B", "32B", "", "GLM-4.5 paper, Table 1 (MTP counted, embedding and head not)"}},
    {"GLM-4.5-Air", &kGlmAir, 46, 4096, 96, 8, 128, 10944, 151552, 131072, {128, 8, 1408, 1408, 1},
     {"106B", "12B", "", "GLM-4.5 paper, Table 1 (MTP counted, embedding and head not)"}},
    {"Llama-2-7B", &kLlama2, 32, 4096, 32, 32, 128, 11008, 32000, 4096, {},
     {"6.74B", "", "", "llama.cpp tools/llama-bench/README.md"}},
    {"Llama-3.1-8B", &kLlama31, 32, 4096, 32, 8, 128, 14336, 128256, 131072, {}, {"8.03B", "", "", "Hugging Face hub", true}},
    {"Llama-3.2-1B", &kLlama32, 16, 2048, 32, 8, 64, 8192, 128256, 131072, {}, {"1.24B", "", "", "Hugging Face hub", true}},
    {"Llama-3.1-70B", &kLlama31, 80, 8192, 64, 8, 128, 28672, 128256, 131072, {},
     {"70.55B", "", "", "gpustack/gguf-parser-go README.md"}},
    {"TinyLlama-1.1B", &kTinyLlama, 22, 2048, 32, 4, 64, 5632, 32000, 2048, {}, {"1.1B", "", "", kCard, true}},
    {"SmolLM2-135M", &kSmol, 30, 576, 9, 3, 64, 1536, 49152, 8192, {}, {"134,515,008", "", "", "Hugging Face hub", true}},
    {"Gemma-3-1B", &kGemma1, 26, 1152, 4, 1, 256, 6912, 262144, 32768, {}, {"1.0B", "", "698M", kGemmaSource}},
    {"Gemma-3-4B", &kGemma, 34, 2560, 8, 4, 256, 10240, 262208, 131072, {}, {"", "", "3,209M", kGemmaSource}, kText},
    {"Gemma-3-12B", &kGemma, 48, 3840, 16, 8, 256, 15360, 262208, 131072, {}, {"", "", "10,759M", kGemmaSource}, kText},
    {"Gemma-3-27B", &kGemma27, 62, 5376, 32, 16, 128, 21504, 262208, 131072, {}, {"", "", "25,600M", kGemmaSource}, kText},
    {"Qwen2.5-7B", &kQwen2, 28, 3584, 28, 4, 128, 18944, 152064, 131072, {},
     {"7,615,616,512", "", "", "llama.cpp tools/llama-bench/README.md"}},
    {"Qwen2.5-72B", &kQwen2Large, 80, 8192, 64, 8, 128, 29568, 152064, 131072, {},
     {"72,706,203,648", "", "", "Abdullah-Taha9/ui-training issue 29"}},
    {"mini-gpt", &kMiniGpt, 2, 64, 4, 4, 16, 256, 64, 64, {}, {"103,680", "", "", "the course text"}},
};
// clang-format on

Recipe MakeRecipe(const Row& row) {
  const Make& m = *row.make;
  Recipe r;
  r.family = m.family;
  r.n_layers = row.layers;
  r.d_model = row.d_model;
  r.n_heads = row.heads;
  r.n_kv_heads = row.kv_heads;
  r.head_dim = row.head_dim;
  r.d_ff = row.d_ff;
  r.vocab = row.vocab;
  r.context = row.context;
  r.norm = m.norm;
  r.norm_eps = m.eps;
  r.learned_positions = r.fused_qkv = m.family == "gpt2";
  r.latent = m.latent;
  r.rope = {.style = m.rope, .dim = 0, .theta = m.theta, .scaling = m.scaling, .freq_factors = false};
  const bool latent = m.latent.kv_rank > 0;
  if (m.rope != RopeStyle::kNone) r.rope.dim = latent ? m.latent.rope_dim : static_cast<int32_t>(row.head_dim * m.rotated);
  double scale = 1 / std::sqrt(static_cast<double>(m.query_scalar > 0 ? m.query_scalar : row.head_dim));
  if (m.scaling.kind == RopeScalingKind::kYarn) {
    if (latent)
      scale *= std::pow(YarnMagnitude(m.scaling.factor, m.mscale_all_dim), 2);
    else
      r.rope.scaling.attention_factor = YarnMagnitude(m.scaling.factor);
  }
  r.attention_scale = static_cast<float>(scale);
  r.q_bias = r.k_bias = r.v_bias = m.qkv_bias;
  r.o_bias = m.o_bias;
  r.qk_norm = m.qk_norm;
  r.post_norms = m.post_norms;
  r.sinks = m.sinks;
  r.gated_ffn = m.gated;
  r.activation = m.activation;
  r.ffn_bias = m.ffn_bias;
  r.n_experts = row.experts.n;
  r.top_k = row.experts.top_k;
  r.d_expert = row.experts.width;
  r.d_shared = row.experts.shared;
  if (r.n_experts > 0) r.routing = m.routing;
  r.router_bias = m.router_bias;
  r.expert_bias = m.expert_bias;
  r.shared_gate = m.shared_gate;
  r.mtp_layers = m.mtp_layers;
  r.tied_head = m.tied;
  if (m.scaled_embedding) r.embedding_scale = std::sqrt(static_cast<float>(row.d_model));
  if (m.local_theta > 0) r.local_rope = {.style = m.rope, .dim = r.rope.dim, .theta = m.local_theta, .scaling = {}};
  r.layers.resize(row.layers);
  for (int32_t i = 0; i < row.layers; ++i) {
    r.layers[i] = {.window = (i + 1) % m.global_every != 0 ? m.window : 0,
                   .sparse = r.n_experts > 0 && i >= row.experts.dense_layers,
                   .attention_scale = r.attention_scale};
    if (m.local_theta > 0 && r.layers[i].window > 0) r.layers[i].rope = LayerRope::kLocal;
  }
  return r;
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// Characters to put in, take out or change until a is b.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, change}));
    }
  }
  return row[b.size()];
}

std::string NearestNames(const std::string& wanted) {
  constexpr size_t kShown = 3, kLongest = 64;  // of a longer text the beginning is enough to tell
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const Row& row : kRows) {
    const std::string name = Lower(row.name);
    const bool part = !wanted.empty() && (name.find(wanted) != std::string::npos || wanted.find(name) != std::string::npos);
    near.emplace_back(part ? 0 : EditDistance(std::string_view(wanted).substr(0, kLongest), name), row.name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string names;
  for (size_t i = 0; i < kShown; ++i) names += (i == 0 ? "" : ", ") + std::string(near[i].second);
  return names;
}

}  // namespace

std::vector<std::string_view> CatalogNames() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

Result<CatalogModel> FindCatalogModel(std::string_view name) {
  std::string wanted = Lower(name);
  if (constexpr std::string_view kTextModel = "(text)"; wanted.ends_with(kTextModel))
    wanted.resize(wanted.size() - kTextModel.size());
  for (const Row& row : kRows) {
    if (Lower(row.name) != wanted) continue;
    return CatalogModel{row.name, MakeRecipe(row), row.make->type, row.make->expert_type, row.claim, row.note};
  }
  return BadInput("no built-in model is called " + Quote(name) + "; the nearest: " + NearestNames(wanted));
}

}  // namespace tally
