// SPDX-License-Identifier: Apache-2.0
// Apertus (Swiss AI Initiative 2025): Llama's decoder with RMSNorm of each head's query and key and, between two matrices, xIELU, whose
// numbers each layer has of its own. Hugging Face stores all four as tensors, the alphas before their softplus (beta and eps are buffers);
// GGUF has them as keys without the architecture's prefix.
#include <cmath>

#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"apertus"}, kHf[] = {"ApertusForCausalLM"}, kHfTypes[] = {"apertus"};

#define TALLY_LAYER "model.layers.#."
constexpr std::string_view kBeta = TALLY_LAYER "mlp.act_fn.beta", kEps = TALLY_LAYER "mlp.act_fn.eps";
constexpr RoleName kHfNames[] = {{Role::kAttnNorm, TALLY_LAYER "attention_layernorm.weight"},
                                 {Role::kFfnNorm, TALLY_LAYER "feedforward_layernorm.weight"},
                                 {Role::kXieluN, TALLY_LAYER "mlp.act_fn.alpha_n", Storage::kSoftplus},
                                 {Role::kXieluP, TALLY_LAYER "mlp.act_fn.alpha_p", Storage::kSoftplus},
                                 {Role::kXieluBeta, kBeta},
                                 {Role::kXieluEps, kEps}};
#undef TALLY_LAYER

// A number for each layer: one for all, or a list that may be longer than the layers.
std::vector<double> OfLayers(Config& c, const Recipe& r, const std::string& key) {
  const Metadata& m = c.inventory().metadata;
  const MetaValue* const value = m.Find(key);
  std::vector<double> of;
  if (value == nullptr) {
    c.Fail("required key " + key + " is missing");
  } else if (std::holds_alternative<double>(*value)) {
    of.assign(r.layers.size(), std::get<double>(*value));
  } else if (auto listed = m.GetDoubles(key); !listed.ok()) {
    c.Fail(key + ": expected a number of each layer");
  } else {
    of = listed->value_or(of);
  }
  if (c.ok() && of.size() < r.layers.size()) {
    c.Fail(key + " lists " + std::to_string(of.size()) + " layers of " + std::to_string(r.layers.size()));
  }
  of.resize(r.layers.size());
  return of;
}

void ReadGgufXielu(Config& c, Recipe& r) {
  const std::vector<double> n = OfLayers(c, r, "xielu.alpha_n"), p = OfLayers(c, r, "xielu.alpha_p"),
                            beta = OfLayers(c, r, "xielu.beta"), eps = OfLayers(c, r, "xielu.eps");
  const auto softplus = [](double x) { return static_cast<float>(std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)))); };
  for (size_t i = 0; i < r.layers.size(); ++i) {
    const float b = static_cast<float>(beta[i]);
    r.layers[i].network.xielu = {b + softplus(n[i]), softplus(p[i]), b, static_cast<float>(eps[i])};
  }
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  constexpr std::string_view kTypes = "rope_parameters.rope_type|rope_parameters.type|rope_scaling.rope_type|rope_scaling.type";
  if (!c.gguf() && !c.Has(kTypes)) c.Fail("rope_parameters is missing");  // the class scales by default
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_heads = 32, .context = 65536, .vocab = 131072, .rope_theta = 12e6});
  ReadFeedForwardWidth(c, r);
  r.all.attention.qk_norm = QkNormKind::kHead;
  r.all.network.gated = false;
  r.all.network.activation = ActivationKind::kXielu;
  if (c.gguf()) {
    r.rope.freq_factors = IsStored(c.inventory(), GgufName(Role::kRopeFactors, -1));
    r.all.attention.o_bias = AnyLayerHas(c.inventory(), r, Role::kOBias);
    return ReadGgufXielu(c, r);
  }
  c.ExpectText("hidden_act", "xielu");
  c.ExpectBool("qk_norm", true);
  c.ExpectBool("post_norm", false);
  const bool bias = c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  c.ExpectBool("mlp_bias", false);
  r.all.network.stored_xielu = true;
  r.all.network.stored_xielu_beta = AnyLayerHas(c.inventory(), r, kBeta, c.tensor_prefix);
  r.all.network.stored_xielu_eps = AnyLayerHas(c.inventory(), r, kEps, c.tensor_prefix);
}

}  // namespace

extern constinit const Family kApertusFamily = {"apertus", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
