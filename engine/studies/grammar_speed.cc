// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/grammar_speed.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/machine/machine.h"
#include "engine/session/generate.h"
#include "engine/studies/speed_roofs.h"

namespace tally {
namespace {

enum class Way : uint8_t { kFree, kHeld, kJumps };

// The answers of a round.
struct Answers {
  int64_t tokens = 0, forced = 0, characters = 0;
  double seconds = 0;  // of decode
  std::vector<std::vector<int32_t>> all = {};
};

Result<Answers> Draw(Engine& engine, const GrammarSpeedOptions& options, const std::shared_ptr<Grammar>& grammar, Way way,
                     uint64_t seed) {
  Answers answers;
  while (answers.tokens < options.tokens) {
    if (options.interrupted && options.interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
    GenerateOptions one;
    one.max_tokens = options.tokens;
    one.sampling = {.temperature = 1.0, .seed = seed++};
    one.ignore_eos = way == Way::kFree;
    one.grammar = way == Way::kFree ? nullptr : grammar;
    one.jump = way == Way::kJumps;
    TALLY_ASSIGN_OR_RETURN(GenerateResult result, Generate(engine, options.prompt, one));
    TALLY_RETURN_IF_ERROR(result.error);
    if (result.tokens.empty()) return BadInput("the grammar's answers have no token: there is nothing to measure");
    answers.tokens += static_cast<int64_t>(result.tokens.size());
    answers.forced += result.forced;
    answers.characters += static_cast<int64_t>(result.text.size());
    answers.seconds += result.generate_seconds;
    answers.all.push_back(std::move(result.tokens));
  }
  return answers;
}

// Appends the time of the mask before each token of the answers.
void TimeMasks(const std::shared_ptr<Grammar>& grammar, const std::shared_ptr<const Vocabulary>& vocabulary,
               std::span<const std::vector<int32_t>> answers, std::vector<double>& times) {
  for (const std::vector<int32_t>& answer : answers) {
    GrammarCursor cursor(grammar, vocabulary);
    for (const int32_t token : answer) {
      const double begin = MonotonicSeconds();
      const TokenMask mask = cursor.Mask();
      times.push_back(MonotonicSeconds() - begin);
      if (!cursor.Take(token)) break;
    }
  }
}

}  // namespace

Result<GrammarSpeed> MeasureGrammar(Engine& engine, const GrammarSpeedOptions& options) {
  if (options.rounds < 1 || options.tokens < 2) return BadInput("a measurement of a grammar needs a round and 2 tokens at least");
  TALLY_RETURN_IF_ERROR(engine.model().tokenizer_status());
  const std::shared_ptr<const Vocabulary> vocabulary = engine.model().vocabulary();
  if (vocabulary == nullptr) return BadInput("a grammar needs a tokenizer, and this model has none");
  GrammarSpeed speed;
  std::vector<double> compile, prepare, masks, free_rates, held_rates, rate_ratios, jump_ratios;
  for (int32_t round = 0; round < options.rounds; ++round) {
    if (options.progress) options.progress(round, options.rounds);
    const double begin = MonotonicSeconds();
    TALLY_ASSIGN_OR_RETURN(const std::shared_ptr<Grammar> grammar, options.make());
    const double compiled = MonotonicSeconds();
    GrammarCursor(grammar, vocabulary).Prepare();
    prepare.push_back(MonotonicSeconds() - compiled);
    compile.push_back(compiled - begin);
    TALLY_ASSIGN_OR_RETURN(const std::shared_ptr<Grammar> fresh, options.make());
    GrammarCursor(fresh, vocabulary).Prepare();
    const uint64_t seed = options.seed + static_cast<uint64_t>(round) * 1'000'000;
    Answers by_way[3];
    for (int i = 0; i < 3; ++i) {
      const int way = round % 2 == 0 ? i : 2 - i;
      TALLY_ASSIGN_OR_RETURN(by_way[way], Draw(engine, options, grammar, static_cast<Way>(way), seed));
    }
    const auto& [free, held, jumps] = by_way;
    TimeMasks(fresh, vocabulary, held.all, masks);
    free_rates.push_back(static_cast<double>(free.tokens) / free.seconds);
    held_rates.push_back(static_cast<double>(held.tokens) / held.seconds);
    rate_ratios.push_back(held_rates.back() / free_rates.back());
    const auto character = [](const Answers& a) { return a.seconds / static_cast<double>(std::max<int64_t>(a.characters, 1)); };
    jump_ratios.push_back(character(jumps) / character(held));
    speed.tokens += jumps.tokens;
    speed.forced += jumps.forced;
    speed.characters += jumps.characters;
    speed.states = fresh->states();
    speed.bytes = fresh->bytes();
  }
  speed.compile_seconds = Median(compile);
  speed.prepare_seconds = Median(prepare);
  std::ranges::sort(masks);
  speed.masks = static_cast<int64_t>(masks.size());
  speed.mask_median = masks[masks.size() / 2];
  speed.mask_99 = masks[masks.size() * 99 / 100];
  speed.mask_most = masks.back();
  speed.free_rate = Median(free_rates);
  speed.held_rate = Median(held_rates);
  speed.rate_ratio = Median(rate_ratios);
  speed.jump_ratio = Median(jump_ratios);
  return speed;
}

}  // namespace tally
