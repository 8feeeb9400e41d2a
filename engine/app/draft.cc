// SPDX-License-Identifier: Apache-2.0
#include "engine/app/draft.h"

#include <cstdio>
#include <string_view>

#include "engine/app/numbers.h"
#include "engine/base/format.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

constexpr int64_t kUsual = 4, kMost = 7;  // tokens that are drafted at once

double TokensAPass(const books::RunFigures& f) {
  return f.decode_steps > 0 ? static_cast<double>(f.decode_tokens) / static_cast<double>(f.decode_steps) : 0;
}

}  // namespace

void AddDraft(Command& command, std::string& draft) {
  command.Option("--draft", draft,
                 "run several tokens a pass: lookup[:N] guesses at most N (" + std::to_string(kUsual) +
                     ") from the prompt and the text so far, layers[:N] by the model's own prediction layer; the answer "
                     "stays the same (default: none)");
}

Result<int64_t> ReadDraft(const std::string& draft, EngineOptions& engine) {
  if (draft.empty() || draft == "none") return int64_t{0};
  const std::string_view given = draft, name = given.substr(0, given.find(':')), number = given.substr(name.size());
  int64_t tokens = kUsual;
  bool good = name == "lookup" || name == "layers";
  if (!number.empty()) good = good && ParseNumber(number.substr(1), tokens) && tokens >= 1 && tokens <= kMost;
  if (!good) {
    return BadInput("--draft must be lookup or layers, or lookup:N or layers:N with N of 1 to " + std::to_string(kMost) +
                    ", not " + Quote(draft));
  }
  engine.prediction = name == "layers";
  engine.draft_rows = engine.sequences > 1 ? kMost : tokens;
  return tokens;
}

std::string DraftWords(const books::RunFigures& f) {
  if (f.drafted == 0) return "";
  char text[64];
  std::snprintf(text, sizeof text, " (%.0f %%), %.1f tokens a pass",
                100 * static_cast<double>(f.accepted) / static_cast<double>(f.drafted), TokensAPass(f));
  return "drafted " + books::WithThousands(f.drafted) + ", accepted " + books::WithThousands(f.accepted) + text;
}

Json DraftJson(const books::RunFigures& f) {
  Json json = {{"drafted", f.drafted},
               {"accepted", f.accepted},
               {"passes", f.decode_steps},
               {"tokens_per_pass", TokensAPass(f)},
               {"not_accepted_flops", Number(f.rejected_flops)},
               {"not_accepted_bytes", Number(f.rejected_bytes)}};
  if (f.predicting_flops > 0) {
    json["predicting_flops"] = Number(f.predicting_flops);
    json["predicting_bytes"] = Number(f.predicting_bytes);
  }
  return json;
}

}  // namespace tally::app
