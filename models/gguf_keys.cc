// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "engine/recipe/rope_freqs.h"
#include "models/made_checkpoint.h"

namespace tally {
namespace {

// GGUF lists the layers of all stacks together.
Recipe Joined(const ModelSpec& spec) {
  Recipe r = spec.recipe;
  for (const Recipe& stack : spec.further) r.layers.insert(r.layers.end(), stack.layers.begin(), stack.layers.end());
  r.n_layers = static_cast<int32_t>(r.layers.size());
  return r;
}

class Keys {
 public:
  Keys(const ModelSpec& spec, std::string_view architecture)
      : r_(Joined(spec)), layers_of_text_(spec.recipe.layers.size()), architecture_(architecture) {}

  std::vector<std::pair<std::string, MetaValue>> Make() && {
    const bool latent = r_.all.latent.kv_rank > 0;
    Int("block_count", r_.n_layers);
    if (r_.layers.size() > layers_of_text_) Int("nextn_predict_layers", static_cast<int64_t>(r_.layers.size() - layers_of_text_));
    Int("context_length", r_.context);
    Int("embedding_length", r_.d_model);
    const int32_t width = r_.all.ffn.width > 0 ? r_.all.ffn.width : r_.all.experts.width, times = architecture_ == "qwen" ? 2 : 1;
    // 0: a layer without one.
    OfLayers("feed_forward_length", times * width,
             [&](const LayerRecipe& l) { return l.feed_forward.empty() ? 0 : times * (l.dense() ? l.ffn.width : width); });
    Int("vocab_size", r_.vocab);
    OfLayers("attention.head_count", r_.all.attention.n_heads, [&](const LayerRecipe& l) { return l.attention.n_heads; });
    OfLayers("attention.head_count_kv", latent ? 1 : r_.all.attention.n_kv_heads, [&](const LayerRecipe& l) {
      if (r_.all.delta.channel_decay && !l.attends()) return 0;
      if (latent || r_.all.delta.value_heads > 0) return latent ? 1 : r_.all.attention.n_kv_heads;
      return l.attends() ? l.attention.n_kv_heads : 0;  // 0: a layer without attention
    });
    // llama.cpp needs the LayerNorm's of Nemotron too.
    const bool layer_norm = r_.norm == NormKind::kLayer, both = architecture_.starts_with("nemotron_h");
    if (layer_norm || both) Float("attention.layer_norm_epsilon", static_cast<double>(r_.norm_eps));
    if (!layer_norm || both) Float("attention.layer_norm_rms_epsilon", static_cast<double>(r_.norm_eps));
    latent ? Latent() : Heads();
    if (r_.rope.style != RopeStyle::kNone) RopeKeys();
    Windows();
    Scales();
    if (r_.all.experts.n_experts > 0) Experts();
    Recurrent();
    if (r_.all.network.activation == ActivationKind::kXielu) Xielus();
    Limits("swiglu_clamp_exp", &Experts::limit);
    Limits("swiglu_clamp_shexp", &Experts::shared_limit);
    if (architecture_ == "gptneox") Set("use_parallel_residual", r_.all.residual.kind != Residual::kSequential);
    return std::move(keys_);
  }

 private:
  void Set(const std::string& key, MetaValue value) { keys_.emplace_back(architecture_ + "." + key, std::move(value)); }
  void Int(const std::string& key, int64_t value) { Set(key, value); }
  void Float(const std::string& key, double value) { Set(key, value); }
  void FloatUnless(const std::string& key, float value, float usual) {
    if (value != usual) Float(key, static_cast<double>(value));
  }

  // A number of each layer.
  template <class NumberOf>
  std::vector<double> Numbers(const NumberOf& number_of) {
    std::vector<double> of;
    for (const LayerRecipe& l : r_.layers) of.push_back(static_cast<double>(number_of(l)));
    return of;
  }

  // Keys without the architecture. The alphas are stored before their softplus.
  void Xielus() {
    const auto before = [](float x) { return std::log(std::expm1(static_cast<double>(x))); };
    keys_.emplace_back("xielu.alpha_n",
                       Numbers([&](const LayerRecipe& l) { return before(l.network.xielu.alpha_n - l.network.xielu.beta); }));
    keys_.emplace_back("xielu.alpha_p", Numbers([&](const LayerRecipe& l) { return before(l.network.xielu.alpha_p); }));
    keys_.emplace_back("xielu.beta", Numbers([](const LayerRecipe& l) { return l.network.xielu.beta; }));
    keys_.emplace_back("xielu.eps", Numbers([](const LayerRecipe& l) { return l.network.xielu.eps; }));
  }

  void Limits(const std::string& key, float Experts::*limit) {
    const auto of = [limit](const LayerRecipe& l) { return l.experts.*limit; };
    if (AnyLayer(r_, [&](const LayerRecipe& l) { return of(l) != 0; })) Set(key, Numbers(of));
  }

  // A size that layers may have of their own: a list where one differs from the recipe's.
  template <class SizeOf>
  void OfLayers(const std::string& key, int64_t common, const SizeOf& size_of) {
    std::vector<int64_t> of;
    for (const LayerRecipe& l : r_.layers) of.push_back(size_of(l));
    std::ranges::count(of, common) == std::ssize(of) ? Int(key, common) : Set(key, std::move(of));
  }

  void Heads() {
    if (architecture_ == "gemma4") return Gemma4();
    Int("attention.key_length", r_.all.attention.head_dim);
    Int("attention.value_length", r_.all.attention.head_dim);
  }

  // Layers with a window have the recipe's heads, the others their own. The last layers share caches.
  void Gemma4() {
    const auto full = std::ranges::find_if(r_.layers, [](const LayerRecipe& l) { return l.attention.window == 0; });
    const int32_t dim = full == r_.layers.end() ? r_.all.attention.head_dim : full->attention.head_dim;
    for (const char* of : {"attention.key_length", "attention.value_length"}) {
      Int(of, dim);
      Int(std::string(of) + "_swa", r_.all.attention.head_dim);
    }
    Int("rope.dimension_count_swa", r_.local_rope.dim);
    Int("embedding_length_per_layer_input", r_.layer_embedding);
    Int("attention.shared_kv_layers",
        std::ranges::count_if(r_.layers, [](const LayerRecipe& l) { return l.attention.cache_of >= 0; }));
  }

  // The cache has the compressed keys and values; heads of their own size are the "mla" ones.
  void Latent() {
    const LatentAttention& l = r_.all.latent;
    if (l.q_rank > 0) Int("attention.q_lora_rank", l.q_rank);
    Int("attention.kv_lora_rank", l.kv_rank);
    Int("attention.key_length", l.kv_rank + l.rope_dim);
    Int("attention.value_length", l.kv_rank);
    Int("attention.key_length_mla", l.nope_dim + l.rope_dim);
    Int("attention.value_length_mla", l.v_dim);
    if (r_.rope.style == RopeStyle::kNone) Int("rope.dimension_count", l.rope_dim);
    // A key of Tally's own. llama.cpp has one eps for all norms; the published code of DeepSeek-V2 and its kin has another for these.
    if (l.norm_eps != r_.norm_eps && (architecture_ == "deepseek2" || architecture_ == "mistral4")) {
      Float("attention.latent_norm_rms_epsilon", static_cast<double>(l.norm_eps));
    }
  }

  void Recurrent() {
    const DeltaRule& d = r_.all.delta;
    const Mamba2& m = r_.all.mamba;
    if (TapsOf(r_) == 0) return;
    if (d.value_heads == 0 && m.heads == 0) return Int("shortconv.l_cache", TapsOf(r_));
    Int("ssm.conv_kernel", TapsOf(r_));
    if (d.channel_decay) {
      Int("kda.head_dim", d.key_dim);
      if (d.decay_bound == 0) return;
      Set("kda.safe_gate", true);
      return Float("kda.gate_lower_bound", static_cast<double>(d.decay_bound));
    }
    Int("ssm.inner_size", m.heads > 0 ? m.heads * m.head_dim : d.value_heads * d.value_dim);
    Int("ssm.state_size", m.heads > 0 ? m.state_dim : d.key_dim);
    Int("ssm.time_step_rank", m.heads > 0 ? m.heads : d.value_heads);
    Int("ssm.group_count", m.heads > 0 ? m.groups : d.key_heads);
    if (d.value_heads == 0) return;
    std::vector<bool> recurrent;
    for (const LayerRecipe& l : r_.layers) recurrent.push_back(l.recurrent());
    const auto attends = std::ranges::find(recurrent, false);
    const std::ptrdiff_t interval = attends - recurrent.begin() + 1;
    bool regular = attends != recurrent.end();
    for (size_t i = 0; i < layers_of_text_; ++i) {
      regular = regular && recurrent[i] == ((i + 1) % static_cast<size_t>(interval) != 0);
    }
    regular ? Int("full_attention_interval", interval) : Set("attention.recurrent_layers", std::move(recurrent));
    if (architecture_.starts_with("qwen35")) Sections();
  }

  // A required key of interleaved ropes, of which each section has a third of the pairs unless the recipe says otherwise. A pair without a
  // section is not turned. Without effect on text if every pair has a section.
  void Sections() {
    const int64_t pairs = r_.rope.dim / 2;
    std::vector<int64_t> sections(r_.rope.sections.begin(), r_.rope.sections.end());
    if (!HasSections()) sections = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3};
    sections.push_back(0);
    Set("rope.dimension_sections", std::move(sections));
  }
  bool HasSections() const { return r_.rope.sections != decltype(r_.rope.sections){}; }

  void RopeKeys() {
    const RopeScaling& s = r_.rope.scaling;
    Int("rope.dimension_count", r_.rope.dim);
    Float("rope.freq_base", r_.rope.theta);
    if (r_.local_rope.style != RopeStyle::kNone && architecture_ != "olmo2") Float("rope.freq_base_swa", r_.local_rope.theta);
    if (architecture_ == "laguna") Int("rope.dimension_count_swa", r_.local_rope.dim);
    if (architecture_ == "mistral4" && r_.all.attention.temperature.everywhere) {
      Int("attention.temperature_length", static_cast<int64_t>(r_.all.attention.temperature.floor));
    }
    const bool turns = AnyLayer(r_, [](const LayerRecipe& l) { return l.attends() && l.attention.rope != LayerRope::kNone; });
    if (architecture_.starts_with("qwen3vl") || (HasSections() && !architecture_.starts_with("qwen35"))) Sections();
    if (r_.all.attention.temperature.everywhere)
      Float("attention.temperature_scale", static_cast<double>(r_.all.attention.temperature.scale));
    if (architecture_.starts_with("granite") && !turns) Set("rope.scaling.finetuned", false);
    if (s.kind == RopeScalingKind::kLinear) {
      Set("rope.scaling.type", std::string("linear"));
      Float("rope.scaling.factor", s.factor);
    } else if (s.kind == RopeScalingKind::kLongRope) {
      Int("rope.scaling.original_context_length", static_cast<int64_t>(s.original_context));
      Float("rope.scaling.attn_factor", s.attention_factor);
    } else if (s.kind == RopeScalingKind::kYarn) {
      Set("rope.scaling.type", std::string("yarn"));
      Float("rope.scaling.factor", s.factor);
      Int("rope.scaling.original_context_length", static_cast<int64_t>(s.original_context));
      if (s.beta_fast != 32) Float("rope.scaling.yarn_beta_fast", s.beta_fast);
      if (s.beta_slow != 1) Float("rope.scaling.yarn_beta_slow", s.beta_slow);
      YarnMagnitudes(s);
    }
  }

  // DeepSeek's mscale_all_dim m multiplies q.k by (0.1 m ln(factor) + 1)^2; the key is 0.1 m.
  void YarnMagnitudes(const RopeScaling& s) {
    const bool latent = r_.all.latent.kv_rank > 0;
    const double usual = latent ? 1 : YarnMagnitude(s.factor);
    if (s.attention_factor != usual) Float("rope.scaling.attn_factor", s.attention_factor / usual);
    const double part = static_cast<double>(r_.all.attention.scale) * std::sqrt(static_cast<double>(r_.all.attention.head_dim));
    if (latent && std::fabs(part - 1) > 1e-6) {
      Float("rope.scaling.yarn_log_multiplier", (std::sqrt(part) - 1) / std::log(s.factor));
    }
  }

  void Windows() {
    const auto windowed = std::ranges::find_if(r_.layers, [](const LayerRecipe& l) { return l.attention.window > 0; });
    if (windowed == r_.layers.end()) return;
    Int("attention.sliding_window", windowed->attention.window);
    constexpr std::string_view kListed[] = {"gemma4", "muse-glimmer", "granite_swa", "laguna", "cohere2moe", "exaone-moe"};
    if (std::ranges::find(kListed, architecture_) != std::end(kListed)) {
      std::vector<bool> windows;
      for (const LayerRecipe& l : r_.layers) windows.push_back(l.attention.window > 0);
      if (architecture_ == "granite_swa") {
        std::vector<bool> turns;
        for (const LayerRecipe& l : r_.layers) turns.push_back(l.attention.rope != LayerRope::kNone);
        Set("attention.rope_pattern", std::move(turns));
      }
      return Set("attention.sliding_window_pattern", std::move(windows));
    }
    const auto full =
        std::ranges::find_if(r_.layers, [](const LayerRecipe& l) { return l.attends() && l.attention.window == 0; });
    if (full != r_.layers.end()) Int("attention.sliding_window_pattern", full - r_.layers.begin() + 1);
  }

  void Scales() {
    const bool granite = architecture_.starts_with("granite"), divides = granite || architecture_ == "minicpm";
    if (divides) Float("embedding_scale", static_cast<double>(r_.embedding_scale));
    if (divides) Float("residual_scale", static_cast<double>(r_.all.residual.scale));
    if (divides || r_.logit_scale != 1) {
      Float("logit_scale", divides ? 1 / static_cast<double>(r_.logit_scale) : static_cast<double>(r_.logit_scale));
    }
    if (granite) Float("attention.scale", static_cast<double>(r_.all.attention.scale));
    FloatUnless("attention.clamp_kqv", r_.all.attention.qkv_limit, 0);
    FloatUnless("attention.max_alibi_bias", r_.alibi_bias, 0);
    FloatUnless("attn_logit_softcapping", r_.all.attention.softcap, 0);
    FloatUnless("final_logit_softcapping", r_.logit_softcap, 0);
  }

  void Experts() {
    Int("expert_count", r_.all.experts.n_experts);
    Int("expert_used_count", r_.all.experts.top_k);
    Int("expert_feed_forward_length", r_.all.experts.width);
    if (r_.all.experts.latent > 0) Int("moe_latent_size", r_.all.experts.latent);
    if (r_.all.experts.shared_width > 0) {
      Int("expert_shared_feed_forward_length", r_.all.experts.shared_width);
      // llama.cpp takes one length of bailingmoe2 for each.
      Int("expert_shared_count", architecture_ == "bailingmoe2" ? 1 : r_.all.experts.shared_width / r_.all.experts.width);
    }
    const auto sparse = std::ranges::find_if(r_.layers, &LayerRecipe::sparse);
    if (architecture_ == "ernie4_5-moe") Int("interleave_moe_layer_step", 1);
    Int(architecture_ == "llama4" ? "interleave_moe_layer_step" : "leading_dense_block_count",
        sparse - r_.layers.begin() + (architecture_ == "llama4" ? 1 : 0));
    if (SigmoidOfAll(r_.all.experts.routing)) Int("expert_gating_func", 2);
    Set("expert_weights_norm", Renormed(r_.all.experts.routing));
    FloatUnless("expert_weights_scale", r_.all.experts.route_scale, 1);
    if (r_.all.experts.groups > 1) {
      Int("expert_group_count", r_.all.experts.groups);
      Int("expert_group_used_count", r_.all.experts.kept_groups);
    }
  }

  const Recipe r_;
  const size_t layers_of_text_;
  const std::string architecture_;
  std::vector<std::pair<std::string, MetaValue>> keys_;
};

}  // namespace

std::vector<std::pair<std::string, MetaValue>> GgufKeys(const ModelSpec& spec, std::string_view architecture) {
  return Keys(spec, architecture).Make();
}

}  // namespace tally
