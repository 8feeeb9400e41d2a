// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_status.h"

#include <utility>

#include "engine/serve/request_log.h"

namespace tally {
namespace {

const char* StateName(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded: return "unloaded";
    case ModelState::kLoading: return "loading";
    case ModelState::kLoaded: break;
  }
  return "loaded";
}

}  // namespace

OrderedJson ModelJson(const ModelPool::Figures& model, int64_t started) {
  OrderedJson status = {{"value", StateName(model.state)}};
  if (!model.error.empty()) {
    status["failed"] = true;
    status["error"] = model.error;
  }
  OrderedJson json = {{"id", model.name},
                      {"object", "model"},
                      {"created", started},
                      {"owned_by", "tally"},
                      {"type", "model"},  // this and the next two: of Anthropic's
                      {"display_name", model.name},
                      {"created_at", UtcText(started)},
                      {"max_model_len", model.context}};
  if (!model.description.empty()) json["description"] = model.description;
  json["memory_bytes"] = model.bytes;
  json["status"] = std::move(status);
  return json;
}

OrderedJson ModelsJson(const std::vector<ModelPool::Figures>& models, int64_t started) {
  OrderedJson data = OrderedJson::array();
  for (const ModelPool::Figures& model : models) data.push_back(ModelJson(model, started));
  return {{"object", "list"},
          {"data", std::move(data)},
          {"has_more", false},
          {"first_id", models.front().name},
          {"last_id", models.back().name}};
}

OrderedJson PropsJson(const ServedModel& model, const std::string& version) {
  const SamplingOptions& sampling = model.sampling;
  const Engine& engine = *model.engine;
  OrderedJson params = {{"n_predict", model.max_tokens},
                        {"temperature", sampling.temperature},
                        {"top_k", sampling.top_k},
                        {"top_p", sampling.top_p},
                        {"min_p", sampling.min_p},
                        {"repeat_penalty", sampling.repeat_penalty},
                        {"repeat_last_n", sampling.repeat_last_n},
                        {"presence_penalty", sampling.presence_penalty},
                        {"frequency_penalty", sampling.frequency_penalty}};
  return {{"default_generation_settings",
           {{"n_ctx", engine.context()}, {"speculative", model.draft > 0}, {"params", std::move(params)}}},
          {"total_slots", engine.max_requests()},
          {"model_alias", model.name},
          {"model_path", model.name},
          {"chat_template", model.chat.ok() ? model.chat.value().text : ""},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"build_info", "tally " + version}};
}

OrderedJson SlotsJson(const Engine& engine, const std::vector<SlotFigures>& slots) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; std::cmp_less(i, engine.max_requests()) || i < slots.size(); ++i) {
    OrderedJson slot = {
        {"id", i}, {"n_ctx", engine.context()}, {"speculative", engine.draft_rows() > 0}, {"is_processing", i < slots.size()}};
    if (i < slots.size()) {
      slot["n_prompt_tokens"] = slots[i].prompt_tokens;
      slot["n_prompt_tokens_processed"] = slots[i].prompt_done;
      slot["n_prompt_tokens_cache"] = slots[i].prompt_cached;
      slot["next_token"] = {{"n_decoded", slots[i].generated}};
    }
    list.push_back(std::move(slot));
  }
  return list;
}

}  // namespace tally
