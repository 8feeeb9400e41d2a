// SPDX-License-Identifier: Apache-2.0
#include "engine/app/prompt_bar.h"

#include <algorithm>
#include <string>

namespace tally::app {
namespace {

constexpr int64_t kShownPrompt = 64;  // tokens from which the prefill shows its progress

}  // namespace

void PromptBar::Show(int64_t done, int64_t total) {
  done_ = done;
  total_ = total;
  if (done >= total) return Wipe();  // decode steps take no part
  if (total < kShownPrompt || !IsTerminal(Stream::kError)) return;
  Draw(done);
  if (watching_) return;
  watching_ = true;
  const int64_t layers = std::max<int64_t>(1, engine_.model().sizes().layers);
  engine_.probe().SetTap([this, layers](Site site, std::string_view, const Mat<const float>&) {
    const int64_t piece = std::min(engine_.max_batch(), total_ - done_);
    if (piece > 0 && site.layer > 0) Draw(done_ + piece * site.layer / layers);
  });
}

void PromptBar::Wipe() {
  if (watching_) engine_.probe().SetTap(nullptr);
  watching_ = false;
  bar_.Wipe();
}

void PromptBar::Draw(int64_t done) {
  bar_.Show(static_cast<uint64_t>(done), static_cast<uint64_t>(total_),
            std::to_string(done) + " of " + std::to_string(total_) + " tokens");
}

}  // namespace tally::app
