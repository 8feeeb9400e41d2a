// SPDX-License-Identifier: Apache-2.0
// Reports of runs that are made for them.
#include <algorithm>
#include <utility>

#include "engine/recipe/recipe.h"
#include "engine/session/generate.h"
#include "engine/studies/report.h"

namespace tally {

Result<ReportData> ReportOfBench(const BenchedModel& benched, const EngineOptions& load, const SpeedOptions& grid,
                                 const SpeedReport& speed) {
  const int64_t tokens = grid.prompts.empty() ? 1 : grid.prompts.front();
  const int64_t steps = grid.generate.empty() ? 0 : grid.generate.front();
  const Recipe& recipe = benched.model->recipe();
  EngineOptions one = load;
  one.context = recipe.learned_positions ? std::min<int64_t>(tokens + steps, recipe.context) : tokens + steps;
  one.sequences = 1;
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, NewEngine(benched.model, one));
  RunInfo info = DescribeRun(*engine, "bench", benched.name, benched.version);
  for (const MeasuredRoofs& roofs : speed.roofs) {
    if (roofs.threads == engine->threads()) info.roofs = RoofsOf(roofs);
  }
  GenerateOptions options;
  options.max_tokens = 1 + steps;  // the first is the prompt's
  options.sampling.temperature = 0;
  options.ignore_eos = true;
  options.interrupted = grid.interrupted;
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < tokens; ++i) prompt.push_back(static_cast<int32_t>((7 * i + 1) % recipe.vocab));
  RunReport run(std::move(info));
  engine->probe().SetRecorder([&](const OpRecord& record) { run.Add(record); });
  TALLY_ASSIGN_OR_RETURN(const GenerateResult result, Generate(*engine, prompt, options));
  TALLY_RETURN_IF_ERROR(result.error);
  engine->probe().SetRecorder(nullptr);
  ReportData data = run.Finish(benched.source);
  data.speed = SpeedOf(speed);
  return data;
}

Result<ReportData> ReportOfAudit(Engine& engine, RunInfo info, const AuditOptions& options, const std::string& source) {
  RunReport run(std::move(info));
  engine.probe().SetRecorder([&](const OpRecord& record) { run.Add(record); });
  const Result<AuditReport> audit = Audit(engine, options);
  engine.probe().SetRecorder(nullptr);
  TALLY_RETURN_IF_ERROR(audit.status());
  ReportData data = run.Finish(source);
  data.audit = AuditOf(*audit);
  return data;
}

}  // namespace tally
