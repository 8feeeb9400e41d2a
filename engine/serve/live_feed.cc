// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/live_feed.h"

#include <algorithm>
#include <array>
#include <utility>

#include "counters/books/step_audit.h"
#include "engine/machine/machine.h"
#include "engine/recipe/recipe.h"

namespace tally {
namespace {

constexpr size_t kMostWatchers = 16;
constexpr size_t kMoments = 64;
constexpr double kSecondsBetween = 0.2;  // events

bool IsMoved(ByteKind kind) {
  switch (kind) {
    case ByteKind::kWeightsPacked:
    case ByteKind::kKvRead:
    case ByteKind::kKvWritten:
    case ByteKind::kStateRead:
    case ByteKind::kStateWritten: return true;
    default: return false;
  }
}

}  // namespace

LiveFeed::LiveFeed(Engine& engine, std::string model, ReportRoofs roofs) : engine_(engine) {
  figures_.model = std::move(model);
  figures_.parameters = engine.model().parameters().total;
  figures_.active_parameters = engine.model().parameters().active_all;
  figures_.roofs = std::move(roofs);
  figures_.budget_bytes = engine.KvBudget();
}

LiveFeed::AllSums LiveFeed::SumsNow() const {
  AllSums all;
  const Ledger& ledger = engine_.ledger();
  for (size_t p = 0; p < all.size(); ++p) {
    Sums& sums = all[p];
    const Account account = ledger.total(kAllPhases[p]);
    for (size_t c = 0; c < kWorkClasses; ++c) {
      for (size_t a = 0; a < kAriths; ++a)
        sums.flops[c][a] = account.useful.Flops(static_cast<WorkClass>(c), static_cast<Arith>(a));
    }
    for (size_t k = 0; k < kByteKinds; ++k) sums.bytes[k] = account.useful.Bytes(static_cast<ByteKind>(k));
    sums.steps = ledger.steps(kAllPhases[p]);
    sums.parameters_touched = ledger.parameters_touched(kAllPhases[p]);
  }
  return all;
}

bool LiveFeed::Watch(std::shared_ptr<HttpExchange> exchange, HttpHeaders headers, const LoopState& state) {
  std::erase_if(watchers_, [](const Watcher& watcher) { return watcher.exchange->left(); });
  if (watchers_.size() >= kMostWatchers) return false;
  headers.emplace_back("Content-Type", "text/event-stream");
  headers.emplace_back("Cache-Control", "no-cache");
  headers.emplace_back("X-Accel-Buffering", "no");
  exchange->Begin({.headers = std::move(headers), .body = {}});
  watchers_.push_back({std::move(exchange)});
  Send(state);
  return true;
}

void LiveFeed::BeforeStep() { step_begin_ = MonotonicSeconds(); }

void LiveFeed::AfterStep(uint64_t tokens_drawn, const LoopState& state) {
  const Ledger& ledger = engine_.ledger();
  uint64_t steps = 0;
  for (const Phase phase : kAllPhases) steps += ledger.steps(phase);
  if (std::exchange(steps_, steps) == steps) return;  // nothing could run
  const double now = MonotonicSeconds();
  const StepRecord last = ledger.last_step();
  seconds_[static_cast<size_t>(last.phase)] += now - step_begin_;
  const uint64_t rows = static_cast<uint64_t>(last.rows), rejected = ledger.drafts().rejected;
  rows_[static_cast<size_t>(last.phase)] += rows - std::min(rows, rejected - std::exchange(rejected_, rejected));
  figures_.tokens += tokens_drawn;
  CountExperts();
  untold_ = true;
  if (!watchers_.empty() && now >= sent_ + kSecondsBetween) Send(state);
}

void LiveFeed::CountExperts() {
  if (engine_.model().recipe().all.experts.n_experts == 0) return;
  for (auto& [layer, rows] : books::ExpertTokens(engine_.ledger())) {
    LiveExperts& experts = experts_[layer];
    experts.layer = layer;
    experts.total.resize(rows.size());
    for (size_t e = 0; e < rows.size(); ++e) experts.total[e] += rows[e];
    experts.step = std::move(rows);
  }
}

// Takes the mean of the steps since the last event, those of the last step's phase only.
void LiveFeed::TakeSteps() {
  const size_t p = static_cast<size_t>(engine_.ledger().last_step().phase);
  const AllSums now = SumsNow();
  const Sums &after = now[p], before = std::exchange(shown_, now)[p];
  const double seconds = std::exchange(seconds_, {})[p];
  const uint64_t rows = std::exchange(rows_, {})[p];
  const uint64_t steps = after.steps - before.steps;
  if (steps == 0) return;
  const double n = static_cast<double>(steps);
  LiveStep step = {.number = steps_, .steps = steps, .rows = static_cast<double>(rows) / n, .seconds = seconds / n};
  std::array<uint64_t, kAriths> by_type{};
  for (size_t c = 0; c < kWorkClasses; ++c) {
    uint64_t flops = 0;
    for (size_t a = 0; a < kAriths; ++a) {
      const uint64_t mean = (after.flops[c][a] - before.flops[c][a]) / steps;
      by_type[a] += mean;
      flops += mean;
    }
    if (flops > 0) step.flops_by_class.push_back({std::string(kWorkClassNames[c]), flops});
  }
  for (size_t a = 0; a < kAriths; ++a) {
    if (by_type[a] > 0) step.flops_by_type.push_back({std::string(kArithNames[a]), by_type[a]});
  }
  uint64_t bytes = 0;
  for (size_t k = 0; k < kByteKinds; ++k) {
    const uint64_t mean = (after.bytes[k] - before.bytes[k]) / steps;
    if (mean == 0 || !IsMoved(static_cast<ByteKind>(k))) continue;
    step.bytes_by_kind.push_back({std::string(kByteKindNames[k]), mean});
    bytes += mean;
  }
  step.parameters_touched = (after.parameters_touched - before.parameters_touched) / steps;
  figures_.recent.push_back({.step = step.number, .rows = step.rows, .seconds = step.seconds, .bytes = bytes});
  if (figures_.recent.size() > kMoments) figures_.recent.erase(figures_.recent.begin());
  figures_.step = std::move(step);
}

void LiveFeed::Send(const LoopState& state) {
  sent_ = MonotonicSeconds();
  untold_ = false;
  std::erase_if(watchers_, [](const Watcher& watcher) { return watcher.exchange->left(); });
  if (watchers_.empty()) return;
  TakeSteps();
  figures_.kv_bytes = engine_.KvBytesInUse();
  figures_.running = state.running;
  figures_.waiting = state.waiting;
  figures_.experts.clear();
  for (const auto& [layer, experts] : experts_) figures_.experts.push_back(experts);
  std::string changing;
  for (Watcher& watcher : watchers_) {
    if (!watcher.told) {
      watcher.exchange->Write(LiveEvent(figures_, LiveParts::kAll));
    } else {
      if (changing.empty()) changing = LiveEvent(figures_, LiveParts::kChanging);
      watcher.exchange->Write(changing);
    }
    // The frame of the experts comes once there is something in it.
    watcher.told = engine_.model().recipe().all.experts.n_experts == 0 || !experts_.empty();
  }
}

void LiveFeed::Idle(const LoopState& state) {
  if (untold_ && !watchers_.empty()) Send(state);
}

void LiveFeed::Beat() {
  for (const Watcher& watcher : watchers_) watcher.exchange->Write(":\n\n");
  std::erase_if(watchers_, [](const Watcher& watcher) { return watcher.exchange->left(); });
}

void LiveFeed::End() {
  for (const Watcher& watcher : watchers_) watcher.exchange->End(/*whole=*/true);
  watchers_.clear();
}

}  // namespace tally
