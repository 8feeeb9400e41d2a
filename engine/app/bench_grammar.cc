// SPDX-License-Identifier: Apache-2.0
#include "engine/app/bench_grammar.h"

#include <string>
#include <vector>

#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/base/format.h"
#include "engine/recipe/recipe.h"
#include "engine/render/fields.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

Fields<GrammarSpeed> GrammarFields() {
  using Speed = GrammarSpeed;
  const auto number = [](double Speed::*value, double scale, int digits) {
    return [=](const Speed& s) { return FixedCell(s.*value * scale, digits); };
  };
  const auto count = [](int64_t Speed::*n) { return [=](const Speed& s) { return Cell(Thousands(s.*n), s.*n); }; };
  return {{"compile_ms", "compile, ms", number(&Speed::compile_seconds, 1e3, 2)},
          {"prepare_ms", "first masks, ms", number(&Speed::prepare_seconds, 1e3, 2)},
          {"states", nullptr, [](const Speed& s) { return Cell("", static_cast<int64_t>(s.states)); }},
          {"bytes", nullptr, [](const Speed& s) { return Cell("", static_cast<int64_t>(s.bytes)); }},
          {"masks", "masks", count(&Speed::masks)},
          {"mask_median_us", "median, us", number(&Speed::mask_median, 1e6, 1)},
          {"mask_99_us", "99 %, us", number(&Speed::mask_99, 1e6, 1)},
          {"mask_most_us", "most, us", number(&Speed::mask_most, 1e6, 1)},
          {"free_rate", "free/s", number(&Speed::free_rate, 1, 1)},
          {"held_rate", "held/s", number(&Speed::held_rate, 1, 1)},
          {"rate_ratio", "ratio", number(&Speed::rate_ratio, 1, 3)},
          {"tokens", "tokens", count(&Speed::tokens)},
          {"forced", "forced", count(&Speed::forced)},
          {"characters", nullptr, count(&Speed::characters)},
          {"jump_ratio", "time with jumps", number(&Speed::jump_ratio, 1, 3)}};
}

}  // namespace

Result<int> RunGrammarBench(const GrammarBench& bench) {
  if (bench.rounds < 1) return BadInput("--repetitions must be 1 or more");
  TALLY_ASSIGN_OR_RETURN(EngineOptions load, ToEngineOptions(bench.model));
  TALLY_RETURN_IF_ERROR(ReadGrammar(bench.grammar).status());
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, Load(bench.model.model, load));
  TALLY_RETURN_IF_ERROR(loaded.model->tokenizer_status());
  if (loaded.model->tokenizer() == nullptr) return BadInput("a grammar needs a tokenizer, and this model has none");
  GrammarSpeedOptions options = {.tokens = bench.tokens, .rounds = bench.rounds, .seed = bench.seed, .interrupted = Interrupted};
  options.make = [&]() -> Result<std::shared_ptr<Grammar>> {
    TALLY_ASSIGN_OR_RETURN(GivenGrammar given, ReadGrammar(bench.grammar));
    return std::move(given.grammar);
  };
  TALLY_ASSIGN_OR_RETURN(options.prompt, loaded.model->tokenizer()->Encode("The answer: ", {.add_special = true}));
  ProgressBar bar("bench");
  options.progress = [&](int64_t done, int64_t total) {
    bar.Show(static_cast<uint64_t>(done), static_cast<uint64_t>(total), "answers that follow the grammar");
  };
  TALLY_ASSIGN_OR_RETURN(const GrammarSpeed speed, MeasureGrammar(*loaded.engine, options));
  bar.Wipe();
  if (bench.json) {
    Json document = {{"model", bench.model.model},
                     {"description", loaded.model->Description()},
                     {"rounds", bench.rounds},
                     {"threads", loaded.engine->threads()},
                     {"target", loaded.engine->target()},
                     {"vocab", loaded.model->recipe().vocab}};
    document.Update(ObjectOf(GrammarFields(), speed));
    PrintJson(document);
    return 0;
  }
  const std::vector<GrammarSpeed> rows = {speed};
  const Table table =
      TableOf("masks of " + Thousands(loaded.model->recipe().vocab) +
                  " tokens; tokens/s of free answers and of held ones; time a character with jumps, of that without",
              GrammarFields(), rows);
  Print(Printable(loaded.model->Description()) + "\n\n" + Render(table, TableFormat::kText));
  return 0;
}

}  // namespace tally::app
