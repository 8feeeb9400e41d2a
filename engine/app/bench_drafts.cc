// SPDX-License-Identifier: Apache-2.0
#include "engine/app/bench_drafts.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/app/console.h"
#include "engine/app/draft.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/table.h"
#include "engine/app/words.h"
#include "engine/base/format.h"
#include "engine/base/json.h"

namespace tally::app {
namespace {

// A text, or token ids.
Result<std::vector<int32_t>> TokensOf(const Json& line, const char* key, const std::string& where, const Model& model) {
  const auto found = line.find(key);
  const std::string wanted = where + ": expected \"" + key + "\", a text or token ids";
  if (found == line.end()) return BadInput(wanted);
  if (found->is_string()) {
    TALLY_RETURN_IF_ERROR(model.tokenizer_status());
    if (model.tokenizer() == nullptr) return BadInput(where + ": the model has no tokenizer: give token ids");
    const bool prompt = std::string_view(key) == "prompt";
    return model.tokenizer()->Encode(found->get<std::string>(), {.add_special = prompt, .parse_special = false});
  }
  if (!found->is_array()) return BadInput(wanted);
  std::vector<int32_t> tokens;
  for (const Json& id : *found) {
    if (!id.is_number_integer() || id < 0 || id >= model.recipe().vocab) {
      return BadInput(where + ": \"" + key + "\" has " + Quote(id.dump()) + ", and ids of this model are 0 to " +
                      std::to_string(model.recipe().vocab - 1));
    }
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

Result<std::vector<RecordedAnswer>> ReadRecordings(const std::string& path, const std::string& text, const Model& model) {
  std::vector<RecordedAnswer> recordings;
  int64_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = "--replay " + Quote(path) + ", line " + std::to_string(number);
    TALLY_ASSIGN_OR_RETURN(const Json json, ReadJson<Json>(where, line, {.values = size_t{1} << 22, .members = 64}));
    RecordedAnswer& recording = recordings.emplace_back();
    TALLY_ASSIGN_OR_RETURN(recording.prompt, TokensOf(json, "prompt", where, model));
    TALLY_ASSIGN_OR_RETURN(recording.answer, TokensOf(json, "answer", where, model));
  }
  return recordings;
}

std::vector<std::string> RowOf(const std::string& name, const DraftSpeed& s) {
  const auto rate = [&](double seconds) { return Fixed(seconds > 0 ? static_cast<double>(s.tokens) / seconds : 0, 2); };
  return {name,
          Thousands(s.tokens),
          Thousands(s.drafted),
          Thousands(s.accepted),
          s.drafted > 0 ? Fixed(static_cast<double>(s.accepted) / static_cast<double>(s.drafted), 2) : "",
          Fixed(s.passes > 0 ? static_cast<double>(s.tokens) / static_cast<double>(s.passes) : 0, 2),
          rate(s.plain_seconds),
          rate(s.seconds),
          Fixed(s.ratio, 2)};
}

Json SpeedJson(const DraftSpeed& s) {
  return {{"tokens", s.tokens},
          {"passes", s.passes},
          {"drafted", s.drafted},
          {"accepted", s.accepted},
          {"plain_seconds", s.plain_seconds},
          {"seconds", s.seconds},
          {"ratio", s.ratio}};
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
  TALLY_ASSIGN_OR_RETURN(const std::vector<RecordedAnswer> recordings, ReadRecordings(bench.replay, text, *loaded.model));
  ProgressBar bar("bench");
  DraftSpeedOptions options = {.draft = draft, .rounds = bench.rounds, .interrupted = Interrupted};
  options.progress = [&](int64_t done, int64_t total) {
    bar.Show(static_cast<uint64_t>(done), static_cast<uint64_t>(total), "recorded answers");
  };
  TALLY_ASSIGN_OR_RETURN(const DraftSpeedReport report, MeasureDrafts(*loaded.engine, recordings, options));
  bar.Wipe();
  if (bench.json) {
    Json document = {
        {"model", bench.model.model},  {"description", loaded.model->Description()}, {"draft", draft},
        {"rounds", bench.rounds},      {"threads", loaded.engine->threads()},        {"target", loaded.engine->target()},
        {"all", SpeedJson(report.all)}};
    for (const DraftSpeed& speed : report.recordings) document["recordings"].push_back(SpeedJson(speed));
    PrintJson(document);
    return 0;
  }
  Table table{.title = "recorded answers, at most " + std::to_string(draft) + " tokens drafted a pass",
              .columns = {"", "tokens", "drafted", "accepted", "part", "a pass", "plain/s", "drafts/s", "ratio"},
              .left = {true}};
  for (size_t i = 0; i < report.recordings.size(); ++i) table.rows.push_back(RowOf(std::to_string(i + 1), report.recordings[i]));
  table.rows.push_back(RowOf("all", report.all));
  Print(Printable(loaded.model->Description()) + "\n\n" + Render(table, TableFormat::kText));
  return 0;
}

}  // namespace tally::app
