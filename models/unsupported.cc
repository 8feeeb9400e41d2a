// SPDX-License-Identifier: Apache-2.0
// Architectures that are known by name and do not run, so that an error can say why they are refused. docs/files.md has both tables.
#include <algorithm>
#include <string>

#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kStateSpace = "it has state-space layers", kLinearAttention = "it has linear-attention layers",
                           kRecurrent = "it has recurrent layers", kNoReader = "it is a mixture of experts without a reader",
                           kTower = "its checkpoint has a tower and no reader", kDense = "it is a dense model without a reader";

constexpr UnsupportedArchitecture kUnsupported[] = {
    {"MambaLMHeadModel", "", kStateSpace},
    {"Zamba*ForCausalLM", "", kStateSpace},
    {"Plamo2ForCausalLM", "plamo2", kStateSpace},
    {"HymbaForCausalLM", "", kStateSpace},
    {"Phi4FlashForCausalLM", "", kStateSpace},
    {"Rwkv*ForCausalLM", "rwkv6*", kLinearAttention},
    {"Arwkv*ForCausalLM", "arwkv*", kLinearAttention},
    {"MiniMaxText01ForCausalLM", "minimax-01", kLinearAttention},
    {"MiniMaxForCausalLM", "", kLinearAttention},
    {"MiniMaxM1*ForCausalLM", "", kLinearAttention},
    {"BailingMoeLinear*ForCausalLM", "", kLinearAttention},
    {"BailingMoeV2_5ForCausalLM", "", kLinearAttention},
    {"RecurrentGemmaForCausalLM", "", kRecurrent},
    {"xLSTMForCausalLM", "", kRecurrent},
    {"OlmoHybridForCausalLM", "", "it has gated delta nets in a decoder without a reader"},
    {"MiMoV2*ForCausalLM", "mimo2", kNoReader},
    {"Step3p5ForCausalLM", "step35", kNoReader},
    {"MellumForCausalLM", "mellum", kNoReader},
    {"HYV3ForCausalLM", "hy_v3", kNoReader},
    {"BailingMoeForCausalLM", "bailingmoe", kNoReader},
    {"HYV4ForCausalLM", "hy_v4", "it has attention to the positions that an indexer chooses and several residual streams"},
    {"PhiMoEForCausalLM", "phimoe", "its experts are chosen and weighted by SparseMixer's rule"},
    {"Gemma3n*", "gemma3n", "it has several residual streams, activations of chosen units and low-rank residuals"},
    {"OlmoForCausalLM", "olmo", "its LayerNorm has no weights"},
    {"NanbeigeForCausalLM", "nanbeige", kDense},
    {"ExaoneForCausalLM", "exaone", kDense},
    {"Qwen2VLForConditionalGeneration", "qwen2vl", kTower},
    {"Qwen2_5_VLForConditionalGeneration", "", kTower},
    {"Glm4vMoeForConditionalGeneration", "", kTower},
    {"GlmOcrForConditionalGeneration", "", kTower},
    {"Exaone4_5_ForConditionalGeneration", "", kTower},
};

// Families that are only counted, from config.json, by their names in GGUF.
struct CountedGguf {
  std::string_view gguf, family;
};
constexpr CountedGguf kCountedGguf[] = {{"deepseek32", "deepseek-v3.2"},
                                        {"glm-dsa", "deepseek-v3.2"},
                                        {"deepseek4", "deepseek-v4"},
                                        {"qwen4exp", "qwen4-exp"},
                                        {"kimi-k3", "kimi-k3"},
                                        {"glm5next", "glm-5.3"},
                                        {"minimax-m3", "minimax-m3"},
                                        {"jamba", "jamba"},
                                        {"mamba", "mamba"},
                                        {"falcon-mamba", "mamba"},
                                        {"rwkv7", "rwkv7"}};

bool Matches(std::string_view pattern, std::string_view bare) {
  if (pattern.empty()) return false;
  const size_t star = pattern.find('*');
  return star == pattern.npos ? bare == BareArchitecture(pattern) : bare.starts_with(BareArchitecture(pattern.substr(0, star)));
}

}  // namespace

std::span<const UnsupportedArchitecture> UnsupportedArchitectures() { return kUnsupported; }

std::vector<std::string_view> CountedInGguf(const Family& family) {
  std::vector<std::string_view> names;
  for (const CountedGguf& c : kCountedGguf) {
    if (c.family == family.name) names.push_back(c.gguf);
  }
  return names;
}

std::string BareArchitecture(std::string_view architecture) {
  std::string bare;
  for (const char c : architecture) {
    if (c >= 'A' && c <= 'Z') bare += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) bare += c;
  }
  for (const std::string_view ending : {"forcausallm", "forconditionalgeneration", "lmheadmodel", "model"}) {
    if (bare.ends_with(ending)) return bare.substr(0, bare.size() - ending.size());
  }
  return bare;
}

std::string WhyUnsupported(std::string_view architecture) {
  for (const CountedGguf& c : kCountedGguf) {
    if (c.gguf != architecture) continue;
    const auto family = std::ranges::find(Families(), c.family, &Family::name);
    return "it is counted from its config.json and not run: it has " + std::string((*family)->not_run);
  }
  const std::string bare = BareArchitecture(architecture);
  const auto found = std::ranges::find_if(
      kUnsupported, [&](const UnsupportedArchitecture& u) { return Matches(u.hf, bare) || Matches(u.gguf, bare); });
  return found == std::end(kUnsupported) ? "" : std::string(found->why);
}

}  // namespace tally
