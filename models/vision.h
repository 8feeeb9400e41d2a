// SPDX-License-Identifier: Apache-2.0
// The size of a vision tower, for counting what a configuration without tensors describes. Towers are not run.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/recipe/model_spec.h"
#include "models/config.h"

namespace tally {

// A vision transformer as Hugging Face's vision_config describes it (SigLIP, Zhai et al. 2023; Llama 4).
struct VisionEncoder {
  uint64_t width = 0, d_ff = 0, layers = 0;
  uint64_t patch = 0;    // values of a patch: channels * patch_size^2
  uint64_t patches = 0;  // of an image

  // Parameters of the layers: four matrices of attention and two of the feed-forward, with biases, and two LayerNorms.
  uint64_t LayerParameters() const {
    return layers * (4 * (width * width + width) + (width * d_ff + d_ff) + (d_ff * width + width) + 2 * 2 * width);
  }
};

// nullopt: a key is missing or out of range, or there is a pooling head.
std::optional<VisionEncoder> ReadVisionEncoder(const Config& config);

// A number of vision_config between 1 and `most`. nullopt: it has none.
std::optional<uint64_t> VisionNumber(const Config& config, std::string_view key, int64_t most = 1 << 16);

// The tower of Qwen3.5 and its successors, as a part that is not run.
void AddQwenVision(const Config& config, ModelSpec& spec);

// The tower and the projector of Kimi-K2.5.
void AddKimiVision(const Config& config, ModelSpec& spec);

}  // namespace tally
