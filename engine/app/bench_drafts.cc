// SPDX-License-Identifier: Apache-2.0
#include "engine/app/bench_drafts.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/app/console.h"
#include "engine/app/draft.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/base/format.h"
#include "engine/render/fields.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

Fields<DraftSpeed> SpeedFields() {
  using Speed = DraftSpeed;
  const auto ratio = [](int64_t Speed::*a, auto Speed::*b) {
    return [=](const Speed& s) { return FixedCell(Ratio(static_cast<double>(s.*a), static_cast<double>(s.*b)), 2); };
  };
  const auto count = [](int64_t Speed::*n) { return [=](const Speed& s) { return Cell(Thousands(s.*n), s.*n); }; };
  const auto part = ratio(&Speed::accepted, &Speed::drafted);
  return {{"tokens", "tokens", count(&Speed::tokens)},
          {"passes", nullptr, count(&Speed::passes)},
          {"drafted", "drafted", count(&Speed::drafted)},
          {"accepted", "accepted", count(&Speed::accepted)},
          {nullptr, "part", [=](const Speed& s) { return s.drafted > 0 ? part(s) : Cell(""); }},
          {nullptr, "a pass", ratio(&Speed::tokens, &Speed::passes)},
          {nullptr, "plain/s", ratio(&Speed::tokens, &Speed::plain_seconds)},
          {nullptr, "drafts/s", ratio(&Speed::tokens, &Speed::seconds)},
          {"plain_seconds", nullptr, [](const Speed& s) { return FixedCell(s.plain_seconds, 2); }},
          {"seconds", nullptr, [](const Speed& s) { return FixedCell(s.seconds, 2); }},
          {"ratio", "ratio", [](const Speed& s) { return FixedCell(s.ratio, 2); }}};
}

}  // namespace

Result<int> RunDraftBench(const DraftBench& bench) {
  if (bench.draft.empty() || bench.replay.empty()) return BadInput("--draft and --replay go together");
  if (bench.rounds < 1) return BadInput("--repetitions must be 1 or more");
  TALLY_ASSIGN_OR_RETURN(EngineOptions load, ToEngineOptions(bench.model));
  TALLY_ASSIGN_OR_RETURN(const int64_t draft, ReadDraft(bench.draft, load));
  if (draft == 0) return BadInput("--draft none: there is nothing to measure");
  TALLY_ASSIGN_OR_RETURN(const std::string text, ReadText(bench.replay));
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, Load(bench.model.model, load));
  TALLY_ASSIGN_OR_RETURN(const std::vector<RecordedAnswer> recordings,
                         ReadRecordings("--replay " + Quote(bench.replay), text, *loaded.model));
  ProgressBar bar("bench");
  DraftSpeedOptions options = {.draft = draft, .rounds = bench.rounds, .interrupted = Interrupted};
  options.progress = [&](int64_t done, int64_t total) {
    bar.Show(static_cast<uint64_t>(done), static_cast<uint64_t>(total), "recorded answers");
  };
  TALLY_ASSIGN_OR_RETURN(const DraftSpeedReport report, MeasureDrafts(*loaded.engine, recordings, options));
  bar.Wipe();
  if (bench.json) {
    Json document = {{"model", bench.model.model},
                     {"description", loaded.model->Description()},
                     {"draft", draft},
                     {"rounds", bench.rounds},
                     {"threads", loaded.engine->threads()},
                     {"target", loaded.engine->target()},
                     {"all", ObjectOf(SpeedFields(), report.all)}};
    if (!report.recordings.empty()) document["recordings"] = ObjectsOf(SpeedFields(), report.recordings);
    PrintJson(document);
    return 0;
  }
  std::vector<DraftSpeed> rows = report.recordings;
  rows.push_back(report.all);
  Table table = TableOf("recorded answers, at most " + std::to_string(draft) + " tokens drafted a pass", SpeedFields(), rows);
  table.columns.insert(table.columns.begin(), "");
  for (size_t i = 0; i < rows.size(); ++i) {
    table.rows[i].insert(table.rows[i].begin(), i < report.recordings.size() ? std::to_string(i + 1) : "all");
  }
  Print(Printable(loaded.model->Description()) + "\n\n" + Render(table, TableFormat::kText));
  return 0;
}

}  // namespace tally::app
