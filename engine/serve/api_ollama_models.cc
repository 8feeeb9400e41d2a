// SPDX-License-Identifier: Apache-2.0
// What /api/tags, /api/ps and /api/show say of a model, and what a model says to a body.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/digest.h"
#include "engine/serve/api_ollama.h"
#include "engine/serve/completion.h"
#include "engine/serve/request_log.h"

namespace tally {
namespace {

constexpr const char* kNumCtx = "options.num_ctx";
// Clients want a time at which a model is unloaded. There is none.
constexpr int64_t kNever = int64_t{100} * 365 * 24 * 3600;  // seconds

// "4.5M", "7.6B", as ollama has it.
std::string ParametersText(uint64_t n) {
  const double x = static_cast<double>(n);
  char text[32];
  if (x >= 1e9) {
    std::snprintf(text, sizeof text, "%.1fB", x / 1e9);
  } else if (x >= 1e6) {
    std::snprintf(text, sizeof text, "%.2fM", x / 1e6);
  } else {
    std::snprintf(text, sizeof text, "%.0fK", std::ceil(x / 1e3));
  }
  return text;
}

// 64 digits that name what is served. The files' own sum would be read for no other reason.
std::string Identity(const ModelPool::Figures& model) {
  Digest digest = Digest::Sha256();
  const auto add = [&](std::string_view text) {
    digest.Add({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    digest.Add(std::array<uint8_t, 1>{0});
  };
  add(model.name);
  add(std::to_string(model.bytes));
  return digest.Hex();
}

OrderedJson DetailsJson(const ServedModel* served) {
  if (served == nullptr) {
    return {{"parent_model", ""},   {"format", "tally"},       {"family", ""}, {"families", OrderedJson::array()},
            {"parameter_size", ""}, {"quantization_level", ""}};
  }
  const Model& model = served->engine->model();
  const std::string family = model.sizes().family;
  return {{"parent_model", ""},
          {"format", "tally"},
          {"family", family},
          {"families", OrderedJson::array({family})},
          {"parameter_size", ParametersText(model.parameters().total)},
          {"quantization_level", JoinTypes(model.matrix_types())}};
}

// Whether the template knows of thinking: its prompt depends on whether the model is to think, or ends within it.
bool Thinks(const ChatSide& side) {
  std::string prompts[2];
  ChatRequest chat;
  chat.messages.push_back({.role = "user", .content = "?"});
  for (const bool thinking : {false, true}) {
    chat.thinking = thinking;
    const Result<std::vector<PromptSegment>> segments = side.format->Render(chat);
    if (!segments.ok()) return false;
    prompts[thinking ? 1 : 0] = JoinSegments(*segments);
  }
  const AnswerStart start = side.format->StartOf(prompts[1], chat);
  return start.channels || start.in_thinking || prompts[0] != prompts[1];
}

// Whether a tool reaches the model, and its calls are read.
bool TakesTools(const ChatSide& side) {
  if (!side.format->ReadsCalls()) return false;
  ChatRequest chat;
  chat.messages.push_back({.role = "user", .content = "?"});
  chat.tools.emplace_back(
      R"({"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}})");
  if (!side.format->Render(chat).ok()) return false;
  for (const LeftOut& left_out : side.format->FindLeftOut(chat)) {
    if (left_out.what == LeftOut::What::kTool) return false;
  }
  return true;
}

OrderedJson CapabilitiesJson(const ServedModel& model) {
  OrderedJson list = OrderedJson::array({"completion"});
  if (model.tool_chat.ok() && TakesTools(*model.tool_chat)) list.push_back("tools");
  if (model.chat.ok() && Thinks(*model.chat)) list.push_back("thinking");
  return list;
}

// A line an option, as ollama has it.
std::string ParametersOf(const ServedModel& model) {
  std::string text;
  const auto add = [&](const char* name, const OrderedJson& value) {
    constexpr size_t kColumn = 31;
    std::string line = name;
    line.resize(kColumn, ' ');
    text += line + value.dump() + "\n";
  };
  const SamplingOptions& s = model.sampling;
  add("num_ctx", model.engine->context());
  if (model.max_tokens >= 0) add("num_predict", model.max_tokens);
  add("temperature", s.temperature);
  add("top_k", s.top_k);
  add("top_p", s.top_p);
  add("min_p", s.min_p);
  add("repeat_penalty", s.repeat_penalty);
  add("repeat_last_n", s.repeat_last_n);
  add("presence_penalty", s.presence_penalty);
  add("frequency_penalty", s.frequency_penalty);
  if (model.chat.ok()) {
    for (const std::string& stop : model.chat->stop) add("stop", stop);
  }
  if (!text.empty()) text.pop_back();
  return text;
}

OrderedJson InfoJson(const ServedModel& served) {
  const Model& model = served.engine->model();
  const ModelSizes sizes = model.sizes();
  OrderedJson json = {{"general.architecture", sizes.family},
                      {"general.parameter_count", model.parameters().total},
                      {"general.name", served.name}};
  const auto add = [&](const char* name, int64_t value) {
    if (value > 0) json[sizes.family + "." + name] = value;
  };
  add("context_length", sizes.context);
  add("block_count", sizes.layers);
  add("embedding_length", sizes.d_model);
  add("feed_forward_length", sizes.d_ff);
  add("attention.head_count", sizes.heads);
  add("attention.head_count_kv", sizes.kv_heads);
  add("attention.key_length", sizes.head_dim);
  add("expert_count", sizes.experts);
  add("expert_used_count", sizes.experts_used);
  add("expert_feed_forward_length", sizes.expert_d_ff);
  add("vocab_size", sizes.vocab);
  json["tally.parameters_active"] = model.parameters().active_all;
  json["tally.context"] = served.engine->context();
  return json;
}

}  // namespace

std::optional<ApiError> ReadOllamaName(const OrderedJson& json, std::string* name) {
  ApiReading reading;
  ApiObject body(json, "", &reading);
  *name = body.Text("model").value_or("");
  const std::string other = body.Text("name").value_or("");  // of older clients
  if (name->empty()) *name = other;
  if (name->empty()) body.Fail("model", "is missing", "missing_required_parameter");
  body.Skip({"verbose", "system", "template", "options"});
  body.End();
  return reading.error;
}

OrderedJson OllamaModelJson(const ModelPool::Figures& figures, const ServedModel* served, int64_t started, bool running) {
  const std::string name = OllamaName(figures.name);
  OrderedJson json = {{"name", name},
                      {"model", name},
                      {"modified_at", UtcText(started)},
                      {"size", figures.bytes},
                      {"digest", Identity(figures)},
                      {"details", DetailsJson(served)}};
  if (served != nullptr) {
    const MemoryPlan& memory = served->engine->memory_plan();
    json["size"] = running ? memory.total() : memory.packed_weights;
  }
  if (!running) return json;
  json.erase("modified_at");
  json["expires_at"] = UtcText(started + kNever);
  json["size_vram"] = 0;
  json["context_length"] = figures.context;
  return json;
}

OrderedJson OllamaShowJson(const ModelPool::Figures& figures, const ServedModel* served, int64_t started) {
  OrderedJson json = {
      {"license", ""},
      {"modelfile", "# " + (served == nullptr ? figures.name : served->engine->model().Description()) + ", served by tally"},
      {"parameters", "num_ctx                        " + std::to_string(figures.context)},
      {"template", ""},
      {"system", ""},
      {"details", DetailsJson(served)},
      {"model_info", OrderedJson::object()},
      {"capabilities", OrderedJson::array({"completion"})},
      {"modified_at", UtcText(started)}};
  if (served == nullptr) return json;
  json["parameters"] = ParametersOf(*served);
  json["template"] = served->chat.ok() ? served->chat->format->Description() : "";
  json["model_info"] = InfoJson(*served);
  json["capabilities"] = CapabilitiesJson(*served);
  return json;
}

std::optional<ApiError> CheckOllama(const ServedModel& model, ApiRequest* request, bool strict) {
  if (request->chat.thinking.value_or(false) && model.chat.ok() && !Thinks(*model.chat)) {
    return ApiError{.message = "think is not supported: the model's chat template has no thinking",
                    .param = "think",
                    .code = "unsupported_value"};
  }
  const int64_t context = model.engine->context();
  if (request->context.value_or(0) <= context) return std::nullopt;
  if (strict) {
    return ApiError{.message = std::string(kNumCtx) + " is " + std::to_string(*request->context) + ", and the server's context " +
                               std::to_string(context) + " (--strict)",
                    .param = kNumCtx,
                    .code = "unsupported_value"};
  }
  request->ignored.emplace_back(kNumCtx);
  return std::nullopt;
}

}  // namespace tally
