// SPDX-License-Identifier: Apache-2.0
#include "engine/session/engine.h"

#include <map>
#include <string>
#include <utility>

#include "engine/session/loaded_model.h"
#include "engine/session/stepper.h"

namespace tally {

int64_t Sequences::MostPositions() const {
  int64_t fit = context();
  if (KvBytesFor(fit) <= KvBudget()) return fit;
  int64_t too_many = std::exchange(fit, 0);
  while (too_many - fit > 1) {
    const int64_t middle = fit + (too_many - fit) / 2;
    (KvBytesFor(middle) <= KvBudget() ? fit : too_many) = middle;
  }
  return fit;
}

Result<Mat<const float>> Engine::StepAll(std::span<const BatchRow> rows) {
  TALLY_ASSIGN_OR_RETURN(const StepOutput out, Step(rows));
  if (out.failed.empty()) return out.logits;
  Status cause = out.failed.front().status;
  std::map<int32_t, int64_t> ran;
  for (const BatchRow& row : rows) {
    if (out.ErrorOf(row.sequence) != nullptr) continue;
    ++ran[row.sequence];
    ledger().MarkInVain(row.bill, row.generated ? Phase::kDecode : Phase::kPrefill, 1);
  }
  for (const auto& [sequence, n] : ran) {
    const Status back = Truncate(sequence, Length(sequence) - n);
    if (!back.ok()) cause = {cause.code(), cause.message() + "; sequence " + std::to_string(sequence) + ": " + back.message()};
  }
  return cause;
}

Result<std::unique_ptr<Engine>> NewEngine(std::shared_ptr<const Model> model, const EngineOptions& options) {
  auto loaded = std::dynamic_pointer_cast<const LoadedModel>(std::move(model));
  if (loaded == nullptr) return InternalError("the model was not made by LoadModel");
  TALLY_RETURN_IF_ERROR(CheckLibraries(options));
  TALLY_RETURN_IF_ERROR(CheckOptions(loaded->recipe(), loaded->matrix_types(), options));
  if (options.prediction && loaded->spec().find_stack(StackKind::kPrediction) == nullptr) {
    return BadInput("the model was loaded without its layer for multi-token prediction");
  }
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<Stepper> stepper, Stepper::Create(std::move(loaded), options));
  return std::unique_ptr<Engine>(std::move(stepper));
}

}  // namespace tally
