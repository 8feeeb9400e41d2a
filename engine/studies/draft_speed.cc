// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/draft_speed.h"

#include <memory>
#include <utility>

#include "engine/session/output_stream.h"
#include "engine/session/run_alone.h"
#include "engine/studies/speed_roofs.h"

namespace tally {
Result<DraftSpeedReport> MeasureDrafts(Engine& engine, std::span<const RecordedAnswer> recordings,
                                       const DraftSpeedOptions& options) {
  if (engine.draft_rows() < 1) return BadInput("the engine has no rows for drafts (EngineOptions::draft_rows)");
  if (options.rounds < 1 || options.draft < 1) return BadInput("a measurement of drafts needs a round and a draft at least");
  if (recordings.empty()) return BadInput("no recordings: there is nothing to replay");
  DraftSpeedReport report;
  int64_t done = 0;
  const int64_t total = static_cast<int64_t>(recordings.size()) * options.rounds * 2;
  for (size_t i = 0; i < recordings.size(); ++i) {
    const RecordedAnswer& recorded = recordings[i];
    const std::string name = "recording " + std::to_string(i + 1);
    if (recorded.answer.size() < 2) return BadInput(name + " has an answer of less than two tokens: nothing is decoded");
    RequestOptions replay{.max_tokens = static_cast<int64_t>(recorded.answer.size()),
                          .ignore_eos = true,
                          .prefix_key = "replay " + std::to_string(i),
                          .replay = recorded.answer};
    const auto generate = [&](int64_t draft) -> Result<GenerateResult> {
      if (options.progress) options.progress(done++, total);
      replay.draft = draft;
      TALLY_RETURN_IF_ERROR(Request::Check(engine, recorded.prompt, replay));
      const auto request = std::make_shared<Request>(engine, recorded.prompt, replay, NewTextStream(nullptr, false, {}));
      TALLY_ASSIGN_OR_RETURN(GenerateResult result,
                             RunAlone(engine, request, {}, options.interrupted, [](const RequestEvent&) { return true; }));
      TALLY_RETURN_IF_ERROR(result.error);
      if (result.finish == FinishReason::kInterrupted) return Status(StatusCode::kInterrupted, "interrupted");
      if (result.tokens != recorded.answer) return BadInput(name + " has no room in the context");
      return result;
    };
    std::vector<double> plain, drafted, ratios;
    DraftSpeed speed;
    for (int32_t round = 0; round < options.rounds; ++round) {
      for (const bool drafts : {round % 2 == 1, round % 2 == 0}) {
        TALLY_ASSIGN_OR_RETURN(const GenerateResult result, generate(drafts ? options.draft : 0));
        (drafts ? drafted : plain).push_back(result.generate_seconds);
        if (drafts) {
          speed = {.tokens = result.decode_tokens,
                   .passes = result.decode_steps,
                   .drafted = result.drafted,
                   .accepted = result.accepted};
        }
      }
      ratios.push_back(plain.back() / drafted.back());
    }
    speed.plain_seconds = Median(plain);
    speed.seconds = Median(drafted);
    speed.ratio = Median(ratios);
    DraftSpeed& all = report.all;
    all.tokens += speed.tokens;
    all.passes += speed.passes;
    all.drafted += speed.drafted;
    all.accepted += speed.accepted;
    all.plain_seconds += speed.plain_seconds;
    all.seconds += speed.seconds;
    all.ratio = all.seconds > 0 ? all.plain_seconds / all.seconds : 0;
    report.recordings.push_back(speed);
  }
  return report;
}

}  // namespace tally
