// SPDX-License-Identifier: Apache-2.0
// What a server says of itself: its models, settings and slots. No text of a client and no path is among it. Internal to serve.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/serve/model_pool.h"

namespace tally {

// A model as OpenAI's and Anthropic's APIs have it, with "max_model_len", "memory_bytes" and llama.cpp's "status": {"value": "loaded",
// "loading" or "unloaded"}, and "failed": true with "error" if its last load failed. `started`: seconds since 1970.
OrderedJson ModelJson(const ModelPool::Figures& model, int64_t started);
// {"object": "list", "data": [MODEL], ...}
OrderedJson ModelsJson(const std::vector<ModelPool::Figures>& models, int64_t started);
// llama.cpp's /props: {"default_generation_settings": {"n_ctx", "params"}, "total_slots", "model_alias", "model_path", "chat_template",
// "modalities", "build_info"}; the path is the model's name.
OrderedJson PropsJson(const ServedModel& model, const std::string& version);
// llama.cpp's /slots: a slot for each choice that can run at once: {"id", "n_ctx", "speculative", "is_processing"}, and of one that runs
// "n_prompt_tokens", "n_prompt_tokens_processed", "n_prompt_tokens_cache" and "next_token": {"n_decoded"}. The ids number this answer's
// slots: those that run come first.
OrderedJson SlotsJson(const Engine& engine, const std::vector<SlotFigures>& slots);

}  // namespace tally
