// SPDX-License-Identifier: Apache-2.0
#include "models/vision.h"

#include <string>

namespace tally {

std::optional<uint64_t> VisionNumber(const Config& config, std::string_view key, int64_t most) {
  const Result<std::optional<int64_t>> value = config.inventory().metadata.GetInt("vision_config." + std::string(key));
  if (!value.ok() || !value->has_value() || **value < 1 || **value > most) return std::nullopt;
  return static_cast<uint64_t>(**value);
}

std::optional<VisionEncoder> ReadVisionEncoder(const Config& config) {
  const auto width = VisionNumber(config, "hidden_size"), d_ff = VisionNumber(config, "intermediate_size"),
             layers = VisionNumber(config, "num_hidden_layers", kMaxLayers), image = VisionNumber(config, "image_size"),
             patch = VisionNumber(config, "patch_size");
  if (!width || !d_ff || !layers || !image || !patch || *patch > *image) return std::nullopt;
  const Result<std::optional<bool>> head = config.inventory().metadata.GetBool("vision_config.vision_use_head");
  if (!head.ok() || head->value_or(false)) return std::nullopt;
  const uint64_t channels = VisionNumber(config, "num_channels", 16).value_or(3), side = *image / *patch;
  return VisionEncoder{*width, *d_ff, *layers, channels * *patch * *patch, side * side};
}

// A vision transformer over patches of several frames, with a matrix and a bias for the patches, learned positions, and a merger of a norm
// and two matrices (Qwen3_5VisionModel of transformers).
void AddQwenVision(const Config& c, ModelSpec& spec) {
  const auto number = [&](const char* key) { return VisionNumber(c, key); };
  const auto width = number("hidden_size"), d_ff = number("intermediate_size"), layers = number("depth"),
             patch = number("patch_size"), out = number("out_hidden_size"), positions = number("num_position_embeddings");
  if (!width || !d_ff || !layers || !patch || !out || !positions) return spec.parts_not_run.push_back({"visual", std::nullopt});
  const uint64_t W = *width, frames = number("temporal_patch_size").value_or(2), channels = number("in_channels").value_or(3);
  const uint64_t merge = number("spatial_merge_size").value_or(2), merged = W * merge * merge;
  const VisionEncoder v{W, *d_ff, *layers, channels * frames * *patch * *patch, *positions};
  spec.parts_not_run.push_back(
      {"visual", (v.patch + 1 + v.patches) * W + v.LayerParameters() + 2 * W + merged * (merged + 1) + (merged + 1) * *out});
}

// MoonViT: a matrix and a bias for the patches, learned positions by row and column, a last LayerNorm. The projector is a LayerNorm and two
// matrices with biases over four patches as one.
void AddKimiVision(const Config& c, ModelSpec& spec) {
  const auto number = [&](const char* key) { return VisionNumber(c, key); };
  const auto width = number("vt_hidden_size"), d_ff = number("vt_intermediate_size"), layers = number("vt_num_hidden_layers"),
             patch = number("patch_size"), out = number("text_hidden_size"), rows = number("init_pos_emb_height"),
             columns = number("init_pos_emb_width");
  if (!width || !d_ff || !layers || !patch || !out || !rows || !columns) {
    return spec.parts_not_run.push_back({"vision_tower and mm_projector", std::nullopt});
  }
  const uint64_t W = *width, merged = 4 * W;
  const VisionEncoder v{W, *d_ff, *layers, 3 * *patch * *patch, *rows * *columns};
  spec.parts_not_run.push_back({"vision_tower", (v.patch + 1 + v.patches) * W + v.LayerParameters() + 2 * W});
  spec.parts_not_run.push_back({"mm_projector", 2 * W + merged * (merged + 1) + (merged + 1) * *out});
}

}  // namespace tally
