// SPDX-License-Identifier: Apache-2.0
// Requests that are run with drafts and without, to be compared.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/session/output_stream.h"
#include "engine/session/scheduler.h"

namespace tally::drafted {

using Tokens = std::vector<int32_t>;
inline EngineOptions DraftOptions() {
  EngineOptions options;
  options.threads = 2;
  options.context = 512;
  options.max_batch = 24;
  options.sequences = 3;
  options.draft_rows = 7;
  options.share_gain_ns = 0;
  return options;
}

using Pattern = std::pair<int64_t, int64_t>;  // tokens of a step: drafted, accepted

inline std::shared_ptr<Request> NewRequest(const Engine& engine, const Tokens& prompt, const RequestOptions& options) {
  EXPECT_TRUE(Request::Check(engine, prompt, options).ok());
  return std::make_shared<Request>(engine, prompt, options, NewTextStream(nullptr, false, {}));
}

// What a request says, log probabilities included, which are those of every row's logits.
struct Said {
  Tokens tokens = {};
  std::vector<double> logprobs = {};
  FinishReason finish{};
  bool operator==(const Said&) const = default;
};
inline Said SaidBy(Request& request) {
  Said said{.tokens = request.result().tokens, .finish = request.result().finish};
  for (const RequestEvent& event : request.TakeEvents()) {
    said.logprobs.push_back(event.logprobs.logprob);
    for (const TokenLogprob& top : event.logprobs.top) said.logprobs.push_back(top.logprob);
  }
  return said;
}

inline std::set<Pattern> RunAll(Engine& engine, const std::vector<std::shared_ptr<Request>>& requests) {
  Scheduler scheduler(engine);
  for (const auto& request : requests) scheduler.Add(request);
  std::set<Pattern> patterns;
  std::vector<Pattern> before(requests.size());
  for (int i = 0; i < 10000 && !scheduler.idle(); ++i) {
    scheduler.Step();
    for (size_t r = 0; r < requests.size(); ++r) {
      const Pattern now{requests[r]->result().drafted, requests[r]->result().accepted};
      if (now.first > before[r].first) patterns.insert({now.first - before[r].first, now.second - before[r].second});
      before[r] = now;
    }
  }
  EXPECT_TRUE(scheduler.idle());
  return patterns;
}

// A text that copies stretches of a prompt, of any length, and leaves off in between.
inline std::pair<Tokens, Tokens> Recording(int32_t vocab, size_t prompt, size_t answer, uint32_t seed) {
  std::mt19937 random(seed);
  const auto any = [&] { return static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)); };
  std::pair<Tokens, Tokens> text;
  while (text.first.size() < prompt) text.first.push_back(any());
  while (text.second.size() < answer) {
    const size_t at = random() % (prompt - 12), n = 2 + random() % 8;
    text.second.insert(text.second.end(), text.first.begin() + static_cast<int64_t>(at),
                       text.first.begin() + static_cast<int64_t>(at + n));
  }
  text.second.resize(answer);
  return text;
}

}  // namespace tally::drafted
