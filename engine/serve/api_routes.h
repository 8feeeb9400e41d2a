// SPDX-License-Identifier: Apache-2.0
// The paths of the server: one table. Internal to serve.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/serve/api_fields.h"

namespace tally {

// What is asked for by a path.
enum class Route : uint8_t {
  kNone,
  kRoot,
  kHealth,
  kLive,
  kMetrics,
  kModels,
  kModel,
  kProps,
  kSlots,
  kVersion,
  kLoad,
  kComplete,
  kTokenize,
  kDetokenize,
  kTemplate,
  kCountTokens,
  kCancel,
  kOllamaTags,
  kOllamaPs,
  kOllamaShow,
  kOllamaVersion
};

struct Target {
  Route route = Route::kNone;
  const char* method = "GET";
  ApiEndpoint endpoint = ApiEndpoint::kChat;  // whose bodies are read, or whose errors are written
  std::string_view path = "other";            // as metrics and the log have it: of an alias, the path that it stands for
  std::string_view name = {};                 // kModel: of the model, as the path asked for has it
};

// Aliases without /v1 included. kNone: nothing is served there.
Target TargetOf(std::string_view path);
// A path that another server has, with all below it, and why this one has not.
struct NotServed {
  std::string_view path, why;
};
std::span<const NotServed> PathsNotServed();
// Of a path that is not served: why, where another server has it. Empty: nothing is known of it.
std::string_view WhyNotServed(std::string_view path);

}  // namespace tally
