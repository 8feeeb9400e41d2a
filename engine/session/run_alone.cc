// SPDX-License-Identifier: Apache-2.0
#include "engine/session/run_alone.h"

#include "engine/session/scheduler.h"

namespace tally {

Result<GenerateResult> RunAlone(Engine& engine, const std::shared_ptr<Request>& request,
                                const std::function<void(int64_t done, int64_t total)>& progress,
                                const std::function<bool()>& interrupted,
                                const std::function<bool(const RequestEvent&)>& listen) {
  Scheduler scheduler(engine);
  scheduler.Add(request);
  scheduler.Admit();
  const int64_t prompt = request->prompt_to_run();
  if (progress) progress(0, prompt);
  bool listening = true;
  for (int64_t done = 0; !scheduler.idle();) {
    if (interrupted && interrupted()) scheduler.Cancel(*request);
    scheduler.Step();
    const int64_t ran = request->result().prompt_tokens;
    if (progress && ran > done) progress(ran, prompt);
    done = ran;
    for (const RequestEvent& event : request->TakeEvents()) listening = listen(event) && listening;
    if (!listening) scheduler.Cancel(*request);
  }
  for (const RequestEvent& event : request->TakeEvents()) listening = listen(event) && listening;
  GenerateResult result = request->result();
  if (!result.error.ok() && result.prompt_tokens < prompt) return result.error;
  if (!listening && result.error.ok()) result.finish = FinishReason::kInterrupted;
  return result;
}

}  // namespace tally
