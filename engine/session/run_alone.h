// SPDX-License-Identifier: Apache-2.0
// One request and a caller who waits for its end.
#pragma once

#include <functional>
#include <memory>

#include "engine/session/generate.h"
#include "engine/session/request.h"

namespace tally {

// Runs the request to its end. `interrupted` is polled between steps, and `listen` gets every event. True from `interrupted` or false from
// `listen` ends the request with kInterrupted. `progress` is called before the first and after each piece of the prompt. Errors: of a step
// in the prompt. A later one is the result's.
Result<GenerateResult> RunAlone(Engine& engine, const std::shared_ptr<Request>& request,
                                const std::function<void(int64_t done, int64_t total)>& progress,
                                const std::function<bool()>& interrupted, const std::function<bool(const RequestEvent&)>& listen);

}  // namespace tally
