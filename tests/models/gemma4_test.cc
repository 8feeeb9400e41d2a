// SPDX-License-Identifier: Apache-2.0
// Gemma 4's configurations: as published, as transformers saves them again, and those that are refused.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/family.h"

namespace tally {
namespace {

using Json = nlohmann::json;

// The recipe of a published configuration whose text part is changed.
Result<ModelSpec> Changed(const char* name, const std::function<void(Json&)>& change) {
  Json config = Json::parse(PublishedConfig(name));
  change(config["text_config"]);
  TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadConfigText(config.dump(), "config.json"));
  return ReadFamily(inventory);
}

std::string ErrorOf(const char* name, const std::function<void(Json&)>& change) {
  const Result<ModelSpec> spec = Changed(name, change);
  return spec.ok() ? "" : spec.status().message();
}

// Layers by number, padded or not, instead of keys for all layers that see all of the past.
TEST(Gemma4, ConfigurationsSavedAgain) {
  for (const char* name : {"Gemma-4-E2B", "Gemma-4-12B", "Gemma-4-26B-A4B"}) {
    for (const bool padded : {false, true}) {
      SCOPED_TRACE(name);
      const Result<ModelSpec> plain = Changed(name, [](Json&) {}),
                              again = Changed(name, [&](Json&text) {
                                const int layers = text["num_hidden_layers"], period = layers == 35 ? 5 : 6;
                                const Json kv_heads = text.value("num_global_key_value_heads", Json());
                                for (const char* key : {"global_head_dim", "num_global_key_value_heads"}) text.erase(key);
                                for (int i = period - 1; i < layers; i += period) {
                                  Json& layer = text["per_layer_config"][(padded && i < 10 ? "0" : "") + std::to_string(i)];
                                  layer["head_dim"] = 512;
                                  if (!kv_heads.is_null()) layer["num_key_value_heads"] = kv_heads;
                                }
                              });
      ASSERT_TRUE(plain.ok()) << plain.status().message();
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_EQ(plain->recipe, again->recipe);
    }
  }
  EXPECT_NE(ErrorOf("Gemma-4-12B",
                    [](Json& text) {
                      text["per_layer_config"]["05"] = {{"sliding_window", 3}};
                    })
                .find("per_layer_config.05.sliding_window"),
            std::string::npos);
}

TEST(Gemma4, TheLastLayerSeesAll) {
  const Result<ModelSpec> spec =
      Changed("Gemma-4-12B", [](Json& text) { text["layer_types"] = std::vector<std::string>(48, "sliding_attention"); });
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_GT(spec->recipe.layers[46].attention.window, 0);
  EXPECT_EQ(spec->recipe.layers[47].attention.window, 0);
}

TEST(Gemma4, Refused) {
  EXPECT_NE(ErrorOf("Gemma-4-E2B", [](Json& text) { text["use_bidirectional_attention"] = "all"; }).find("'all'"),
            std::string::npos);
  EXPECT_NE(ErrorOf("Gemma-4-E2B", [](Json& text) { text["vocab_size_per_layer_input"] = 7; }).find("vocab_size_per_layer_input"),
            std::string::npos);
  EXPECT_NE(ErrorOf("Gemma-4-E2B", [](Json& text) { text["num_kv_shared_layers"] = 33; }).find("no layer of its kind"),
            std::string::npos);
  EXPECT_NE(
      ErrorOf("Gemma-4-E2B", [](Json& text) { text["rope_parameters"]["full_attention"]["rope_type"] = "yarn"; }).find("'yarn'"),
      std::string::npos);
}

}  // namespace
}  // namespace tally
