// SPDX-License-Identifier: Apache-2.0
// Chooses the rows of prompts in a step, so that it lasts no longer than it should, by the times of past steps. Internal to the session.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tally {

// Seconds of a step = those of its decode rows + rows of prompts x seconds per row. Both are measured, and recent steps count more.
class StepClock {
 public:
  static constexpr int64_t kFirstRows = 32;   // of prompts, while nothing has been measured
  static constexpr double kLeastShare = .05;  // of a step's time that its rows of prompts take
  static constexpr int64_t kLeastRows = 8;    // a prompt advances by so many at least, however slow the steps are

  // A step has run.
  void Add(int64_t prompt_rows, int64_t decode_rows, double seconds) {
    if (prompt_rows == 0) {
      if (decode_rows > 0) Mix(decode_seconds_, seconds);
      return;
    }
    // Times vary. This keeps the cost of a row above 0.
    const double rest = std::max(seconds - (decode_rows > 0 ? decode_seconds_ : 0), seconds * kLeastShare);
    Mix(row_seconds_, rest / static_cast<double>(prompt_rows));
    most_measured_ = std::max(most_measured_, prompt_rows);
  }

  // Rows of prompts beside `decode_rows` in a step of at most `seconds`. At most four times the most rows of an earlier step: a row costs
  // less in larger steps, so the measured cost does not hold far beyond them.
  int64_t MostRows(int64_t decode_rows, double seconds) const {
    if (row_seconds_ == 0) return kFirstRows;
    const double rest = seconds - (decode_rows > 0 ? decode_seconds_ : 0);
    const double rows = std::clamp(rest / row_seconds_, 0.0, static_cast<double>(most_measured_) * 4);
    return std::max(kLeastRows, static_cast<int64_t>(rows));
  }

 private:
  static void Mix(double& mean, double seconds) { mean = mean == 0 ? seconds : (mean + seconds) / 2; }

  double decode_seconds_ = 0, row_seconds_ = 0;  // 0: not measured
  int64_t most_measured_ = 0;                    // rows of prompts in a step
};

}  // namespace tally
