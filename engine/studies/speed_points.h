// SPDX-License-Identifier: Apache-2.0
// The points of a speed grid: each is measured once a round and keeps its samples; internal to the studies.
#pragma once

#include <memory>
#include <string>

#include "engine/studies/speed_run.h"

namespace tally {

class SpeedTask {
 public:
  virtual ~SpeedTask() = default;
  virtual std::string Name() const = 0;  // "decode 64, 2 threads, f16, depth 4096, batch 8"
  virtual Status Warm() = 0;             // once, without roofs, before anything is timed
  virtual Status Measure() = 0;          // a round
  virtual void Report(SpeedReport& report) const = 0;
};

// What a task measures, and with what. The place and what it points to must outlive the task. `roofs` is set before the first round.
struct SpeedPlace {
  SpeedRun* run = nullptr;
  MomentaryRoofs* roofs = nullptr;
  int64_t depth = 0, batch = 1, tokens = 0;
};

std::unique_ptr<SpeedTask> NewPrefillTask(const SpeedPlace* place);
std::unique_ptr<SpeedTask> NewDecodeTask(const SpeedPlace* place);
}  // namespace tally
