// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/summary.h"

namespace tally {

books::RunFigures MeasureRun(Engine& engine, const GenerateResult& result) {
  books::RunInput input;
  input.prompt_tokens = result.prompt_tokens;
  input.generated_tokens = static_cast<int64_t>(result.tokens.size());
  input.prompt_seconds = result.prompt_seconds;
  input.generate_seconds = result.generate_seconds;
  input.forced_tokens = static_cast<uint64_t>(result.forced);
  input.threads = engine.threads();
  input.target = engine.target();
  input.used_blas = engine.used_blas();
  input.head_copy = engine.model().not_run().head_parameters;
  return books::MeasureRun(engine.ledger(), engine.model().parameters(), input);
}

}  // namespace tally
