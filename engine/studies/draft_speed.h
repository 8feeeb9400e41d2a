// SPDX-License-Identifier: Apache-2.0
// Measures what drafting gives: recorded answers are generated again, with drafts and without, on any model of that vocabulary.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/session/engine.h"

namespace tally {

// A prompt and the answer to it. The answer's tokens replace what the model draws. So drafts that are looked up in the text are right as
// often as for the model that was recorded, even if the weights here are random.
struct RecordedAnswer {
  std::vector<int32_t> prompt = {}, answer = {};  // at least 1 token; at least 2
};

struct DraftSpeedOptions {
  int64_t draft = 4;                       // RequestOptions::draft
  int32_t rounds = 3;                      // each generates every answer once without drafts and once with them, in turns
  std::function<bool()> interrupted = {};  // polled between steps; true: stop, kInterrupted
  std::function<void(int64_t done, int64_t total)> progress = {};  // generations
};

// Of one recording, or of all.
struct DraftSpeed {
  int64_t tokens = 0;                     // that ran in decode
  int64_t passes = 0;                     // with drafts
  int64_t drafted = 0, accepted = 0;      // tokens
  double plain_seconds = 0, seconds = 0;  // of the decode, medians over the rounds; of all: sums of these
  double ratio = 0;                       // of the rates, with drafts / without: the median over the rounds; of all: of the sums
};

struct DraftSpeedReport {
  std::vector<DraftSpeed> recordings = {};
  DraftSpeed all = {};
};

// A recording a line: {"prompt": a text or token ids, "answer": the same}. kBadInput names `source` and the line.
TALLY_API Result<std::vector<RecordedAnswer>> ReadRecordings(const std::string& source, std::string_view text,
                                                             const Model& model);

// The engine needs EngineOptions::draft_rows. The prompt of a recording runs once. kBadInput: a recording that is too short or too long, a
// token beyond the vocabulary, an engine without rows for drafts; errors of Step. kInterrupted.
TALLY_API Result<DraftSpeedReport> MeasureDrafts(Engine& engine, std::span<const RecordedAnswer> recordings,
                                                 const DraftSpeedOptions& options);

}  // namespace tally
