// SPDX-License-Identifier: Apache-2.0
// Tells watchers what a server's engine does: GET /live (engine/page/live_figures.h). Used on the thread that steps the engine.
//
// There are about five events a second. An event shows one step: the mean of those steps since the event before that have the phase of
// the last step.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/page/live_figures.h"
#include "engine/serve/http_server.h"
#include "engine/serve/metrics.h"
#include "engine/session/engine.h"

namespace tally {

class LiveFeed {
 public:
  // The engine must outlive this.
  LiveFeed(Engine& engine, std::string model, ReportRoofs roofs);

  // The exchange gets events until its client leaves. False: there are as many watchers as allowed.
  [[nodiscard]] bool Watch(std::shared_ptr<HttpExchange> exchange, HttpHeaders headers, const LoopState& state);
  // Around a step of the engine.
  void BeforeStep();
  void AfterStep(uint64_t tokens_drawn, const LoopState& state);
  // Nothing runs: sends watchers what they have not been told yet.
  void Idle(const LoopState& state);
  // Sends a comment, so that neither side takes an idle connection for dead.
  void Beat();
  // Ends the streams.
  void End();

 private:
  // Sums of a phase since the ledger began.
  struct Sums {
    std::array<std::array<uint64_t, kAriths>, kWorkClasses> flops{};
    std::array<uint64_t, kByteKinds> bytes{};
    uint64_t steps = 0, parameters_touched = 0;
  };
  using AllSums = std::array<Sums, kAllPhases.size()>;
  AllSums SumsNow() const;
  void CountExperts();
  void TakeSteps();
  void Send(const LoopState& state);

  Engine& engine_;
  LiveFigures figures_;
  struct Watcher {
    std::shared_ptr<HttpExchange> exchange;
    bool told = false;  // had its first event
  };
  std::vector<Watcher> watchers_;
  std::map<int32_t, LiveExperts> experts_;              // by layer
  AllSums shown_ = {};                                  // up to the steps that were shown last
  std::array<double, kAllPhases.size()> seconds_ = {};  // of the steps since, by phase
  std::array<uint64_t, kAllPhases.size()> rows_ = {};   // the same, without drafts that were not accepted
  uint64_t rejected_ = 0;                               // drafts so far
  uint64_t steps_ = 0;                                  // that the ledger has counted
  double step_begin_ = 0, sent_ = 0;                    // MonotonicSeconds()
  bool untold_ = false;                                 // something has come since
};

}  // namespace tally
