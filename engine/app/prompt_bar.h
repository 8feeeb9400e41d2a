// SPDX-License-Identifier: Apache-2.0
// The progress of a prefill.
#pragma once

#include <cstdint>

#include "engine/api/tally.h"
#include "engine/app/console.h"

namespace tally::app {

// A bar for a long prompt. An op of a layer says how far the piece is that is being run: a piece may take many seconds.
class PromptBar {
 public:
  explicit PromptBar(Engine& engine) : engine_(engine) {}
  PromptBar(const PromptBar&) = delete;
  PromptBar& operator=(const PromptBar&) = delete;
  ~PromptBar() { Wipe(); }
  // GenerateOptions::prompt_progress
  void Show(int64_t done, int64_t total);
  void Wipe();  // where the prompt was interrupted

 private:
  void Draw(int64_t done);

  Engine& engine_;
  ProgressBar bar_{"prompt"};
  int64_t done_ = 0, total_ = 0;
  bool watching_ = false;  // the engine's ops
};

}  // namespace tally::app
