// SPDX-License-Identifier: Apache-2.0
// The published configurations of the catalogue with small sizes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/family.h"
#include "tests/support/sanitizers.h"

namespace tally {

using OrderedJson = nlohmann::ordered_json;

// No published model of the catalogue.
inline constexpr const char* kCs336 =
    R"({"model_type": "cs336", "vocab_size": 101, "context_length": 64, "d_model": 64, "num_layers": 2,
                                   "num_heads": 4, "d_ff": 96, "rope_theta": 10000.0})";

inline constexpr int kLayers = 6, kWidth = 64, kHeads = 4, kHeadDim = 16, kContext = 64;

// The sizes of a published configuration made small; what it says besides stays.
inline void Shrink(OrderedJson& config) {
  static const std::map<std::string, int> kSizes = {{"hidden_size", kWidth},
                                                    {"n_embd", kWidth},
                                                    {"n_embed", kWidth},
                                                    {"d_model", kWidth},
                                                    {"num_hidden_layers", kLayers},
                                                    {"n_layer", kLayers},
                                                    {"n_layers", kLayers},
                                                    {"num_layers", kLayers},
                                                    {"num_attention_heads", kHeads},
                                                    {"n_head", kHeads},
                                                    {"n_heads", kHeads},
                                                    {"num_heads", kHeads},
                                                    {"head_dim", kHeadDim},
                                                    {"query_pre_attn_scalar", kHeadDim},
                                                    {"rotary_dim", 8},
                                                    {"intermediate_size", 96},
                                                    {"intermediate_size_mlp", 160},
                                                    {"prefix_dense_intermediate_size", 160},
                                                    {"ffn_dim", 96},
                                                    {"n_inner", 96},
                                                    {"moe_intermediate_size", 32},
                                                    {"shared_expert_intermediate_size", 64},
                                                    {"shared_intermediate_size", 64},
                                                    {"num_experts", 16},
                                                    {"num_local_experts", 16},
                                                    {"n_routed_experts", 16},
                                                    {"moe_num_experts", 16},
                                                    {"qk_nope_head_dim", 32},
                                                    {"qk_rope_head_dim", 8},
                                                    {"v_head_dim", 32},
                                                    {"kv_lora_rank", 32},
                                                    {"q_lora_rank", 64},
                                                    {"max_position_embeddings", kContext},
                                                    {"n_positions", kContext},
                                                    {"n_ctx", kContext},
                                                    {"max_seq_len", kContext},
                                                    {"model_max_length", kContext},
                                                    {"seq_length", kContext},
                                                    {"original_max_position_embeddings", 16},
                                                    {"initial_context_length", 16},
                                                    {"sliding_window", 5},
                                                    {"window_size", 5},
                                                    {"max_window_layers", 2},
                                                    {"linear_num_key_heads", 2},
                                                    {"linear_num_value_heads", 4},
                                                    {"linear_key_head_dim", 8},
                                                    {"linear_value_head_dim", 24},
                                                    {"mamba_num_heads", 4},
                                                    {"mamba_n_heads", 4},
                                                    {"mamba_head_dim", 24},
                                                    {"mamba_d_head", 32},
                                                    {"mamba_d_ssm", 128},
                                                    {"mamba_d_state", 12},
                                                    {"ssm_state_size", 12},
                                                    {"state_size", 12},
                                                    {"n_groups", 2},
                                                    {"moe_shared_expert_intermediate_size", 64},
                                                    {"global_head_dim", 2 * kHeadDim},
                                                    {"num_global_key_value_heads", 1},
                                                    {"vocab_size_per_layer_input", 101},
                                                    {"top_k_experts", 4},
                                                    {"vocab_size", 101}};
  const auto number = [&](const char* key, int otherwise) {
    return config.contains(key) && config[key].is_number_integer() ? config[key].get<int>() : otherwise;
  };
  const int layers = number("num_hidden_layers", number("n_layer", number("num_layers", number("n_layers", 0))));
  const int heads = number("num_attention_heads", number("n_head", number("num_heads", number("n_heads", 0))));
  const int rotated = static_cast<int>(kHeadDim * config.value("partial_rotary_factor", 1.0));
  for (const char* key : {"num_key_value_heads", "num_kv_heads"}) {
    if (const int n = number(key, 0); n > 0) config[key] = n == heads ? kHeads : std::min(n, 2);
  }
  for (const char* key : {"num_experts_per_tok", "experts_per_token", "moe_k", "num_experts_per_token"}) {
    if (const int n = number(key, 0); n > 0) config[key] = std::min(n, 4);
  }
  if (const int n = number("word_embed_proj_dim", 0); n > 0) {
    config["word_embed_proj_dim"] = n == number("hidden_size", 0) ? kWidth : kWidth / 2;
  }
  if (number("n_group", 1) > 1) config["n_group"] = 4, config["topk_group"] = 2;
  if (number("hidden_size_per_layer_input", 0) > 0) config["hidden_size_per_layer_input"] = 32;
  if (number("num_kv_shared_layers", 0) > 0) {  // of both kinds
    config["num_kv_shared_layers"] = 3;
    config["layer_types"] = OrderedJson::array();
    for (int i = 0; i < layers; ++i) config["layer_types"].push_back(i % 3 == 2 ? "full_attention" : "sliding_attention");
  }
  if (config.contains("num_attention_heads_per_layer")) {  // as its layers have more heads or fewer
    for (auto& value : config["num_attention_heads_per_layer"]) value = value.get<int>() > heads ? 2 * kHeads : kHeads;
  }
  if (config.contains("linear_attn_config")) {  // lists of layers count from 1
    OrderedJson& linear = config["linear_attn_config"];
    for (const char* key : {"kda_layers", "full_attn_layers"}) {
      OrderedJson kept = OrderedJson::array();
      for (const OrderedJson& layer : linear[key]) {
        if (layer.get<int>() <= kLayers) kept.push_back(layer);
      }
      linear[key] = kept;
    }
    linear["num_heads"] = kHeads, linear["head_dim"] = kHeadDim;
  }
  for (auto& [key, value] : config.items()) {
    if (const auto size = kSizes.find(key); size != kSizes.end() && value.is_number_integer()) value = size->second;
    if (value.is_object()) {
      for (auto& [part, inner] : value.items()) {
        if (part == "original_max_position_embeddings") inner = 16;
        if (inner.is_array() && inner.size() > static_cast<size_t>(rotated / 2)) {  // longrope's factors
          inner.erase(inner.begin() + rotated / 2, inner.end());
        }
      }
    }
    if (value.is_array()) {
      for (auto& of_layer : value) {
        if (!of_layer.is_number_integer()) continue;
        if (const auto size = kSizes.find(key); size != kSizes.end()) of_layer = size->second;
        if (key == "moe_topk") of_layer = std::min(of_layer.get<int>(), 4);
      }
    }
    if (value.is_array() && value.size() == static_cast<size_t>(layers)) value.erase(value.begin() + kLayers, value.end());
  }
  if (config.contains("hybrid_override_pattern")) {
    config["hybrid_override_pattern"] = config["hybrid_override_pattern"].get<std::string>().substr(0, kLayers);
  }
  if (!config.contains("vocab_size")) config["vocab_size"] = kSizes.at("vocab_size");  // the class's, which is large
  for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id"}) config.erase(key);
}

// `every_expert`: each token uses all of four experts.
inline OrderedJson SmallConfig(const std::string& name, bool every_expert = false) {
  OrderedJson config = OrderedJson::parse(name == "cs336" ? std::string(kCs336) : PublishedConfig(name));
  OrderedJson& text = config.contains("text_config") ? config["text_config"] : config;
  if (name != "cs336") Shrink(text);
  if (!every_expert) return config;
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok",
                          "experts_per_token", "moe_k", "num_experts_per_token"}) {
    if (text.contains(key)) text[key] = 4;
  }
  for (const char* key : {"n_group", "topk_group"}) {
    if (text.contains(key)) text[key] = 1;
  }
  return config;
}

inline const Family* FamilyOfModel(const std::string& name) {
  const std::string text = name == "cs336" ? std::string(kCs336) : PublishedConfig(name);
  return FamilyOf(ReadConfigText(text, name).value()).value();
}

// Models that are different when they are small; instrumented, which takes ten times as long, one of each family.
inline std::vector<std::string> SmallModels() {
  std::vector<std::string> names = {"cs336"};
  std::set<std::string> seen;
  std::set<const Family*> families;
  for (const std::string_view view : CatalogNames()) {
    const std::string name(view);
    if (!seen.insert(SmallConfig(name).dump()).second) continue;
#ifdef TALLY_SHADOW_MEMORY
    if (!families.insert(FamilyOfModel(name)).second) continue;
#endif
    names.push_back(name);
  }
  return names;
}

// Of SmallModels, the first of those whose layers have the same matrices, and a norm before attention or none: what is divided and
// multiplied differs between them.
inline std::set<std::string> OneOfEachKind() {
  std::set<std::set<Role>> seen;
  std::set<std::string> names;
  for (const std::string& name : SmallModels()) {
    std::set<Role> roles;
    const ModelSpec spec = ReadFamily(ReadConfigText(SmallConfig(name).dump(), name).value()).value();
    for (const TensorBinding& b : spec.bindings) {
      if (b.layer >= 0 && (b.shape.size() > 1 || b.role == Role::kAttnNorm)) roles.insert(b.role);
    }
    if (seen.insert(roles).second) names.insert(name);
  }
  return names;
}

// For gtest.
inline std::string SmallModelName(const testing::TestParamInfo<std::string>& model) {
  std::string name = model.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

}  // namespace tally
