// SPDX-License-Identifier: Apache-2.0
// The bundled model in a test.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/open_engine.h"

namespace tally {

inline const std::string kDemo = std::string(TALLY_SOURCE_DIR) + "/models/demo/";

inline Opened OpenDemo(const std::string& path, ActivationMode activations) {
  EngineOptions options;
  options.threads = 2;
  options.context = 1024;
  options.activations = activations;
  options.max_logit_rows = EngineOptions::kBatchRows;
  return Open(path, options);
}

// Logits of all positions of `ids` in a sequence of their own, handed over batch by batch: use(first position, logits).
template <class Use>
void ForEachLogits(Engine& engine, const std::vector<int32_t>& ids, const Use& use) {
  const auto sequence = engine.NewSequence();
  ASSERT_TRUE(sequence.ok());
  const auto most = static_cast<size_t>(engine.max_batch());
  for (size_t at = 0; at < ids.size(); at += most) {
    std::vector<BatchRow> rows;
    for (size_t i = at; i < std::min(ids.size(), at + most); ++i) rows.push_back({ids[i], *sequence, true});
    const auto logits = engine.StepAll(rows);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    use(at, *logits);
  }
  engine.Free(*sequence);
}

}  // namespace tally
