// SPDX-License-Identifier: Apache-2.0
#include "engine/session/stepper.h"

#include <algorithm>
#include <string>

#include "engine/base/finite.h"

namespace tally {

Stepper::Stepper(const Recipe& recipe, Team& team, const StepperOptions& options)
    : recipe_(recipe), options_(options), executor_(team, &ledger_) {
  executor_.SetImpl(options.plan.impl);
  executor_.SetShareGain(options.share_gain_ns);
}

Result<std::unique_ptr<Stepper>> Stepper::Create(const PlanSource& source, std::vector<WeightInfo> weights, Team& team,
                                                 const StepperOptions& options) {
  std::unique_ptr<Stepper> s(new Stepper(source.recipe, team, options));
  s->ledger_.SetWeights(std::move(weights));
  TALLY_ASSIGN_OR_RETURN(s->decoder_, Decoder::Create(source, options.plan, s->executor_));
  TALLY_ASSIGN_OR_RETURN(s->cache_, KvPool::Create(KvLayers(source.recipe, options.plan.kv), options.kv_size()));
  return s;
}

void Stepper::SetTap(Executor::Tap tap) {
  tap_ = tap;
  executor_.SetTap(std::move(tap));
}

void Stepper::SetRecorder(Recorder recorder) {
  recorder_ = std::move(recorder);
  recorded_steps_ = 0;
  executor_.SetRecorder(recorder_ ? Recorder([this](const OpRecord& op) { Record(op); }) : Recorder());
}

// Adds the step's fields to the executor's record.
void Stepper::Record(const OpRecord& op) {
  if (repeating_) return;
  OpRecord record = op;
  record.step = recorded_steps_;
  record.index = recorded_ops_++;
  record.phase = executor_.phase();
  record.sequences = recorded_sequences_;
  record.logit_rows = static_cast<int64_t>(logit_rows_.size());
  recorder_(record);
}

// Checks the rows, makes room for them in the cache and fills the batch.
Status Stepper::Prepare(std::span<const BatchRow> rows) {
  tokens_.clear();
  kv_rows_.clear();
  logit_rows_.clear();
  booked_.clear();
  extents_.clear();
  if (rows.empty()) return BadInput("a step needs at least one row");
  if (static_cast<int64_t>(rows.size()) > options_.plan.max_batch) {
    return BadInput("a step of " + std::to_string(rows.size()) + " rows: at most " + std::to_string(options_.plan.max_batch));
  }
  const int64_t wanted = std::count_if(rows.begin(), rows.end(), [](const BatchRow& row) { return row.want_logits; });
  if (wanted > options_.plan.max_logit_rows) {
    return BadInput("a step that wants the logits of " + std::to_string(wanted) + " rows: at most " +
                    std::to_string(options_.plan.max_logit_rows) + " (max_logit_rows)");
  }
  for (const BatchRow& row : rows) {
    if (row.token < 0 || row.token >= recipe_.vocab) {
      return BadInput("token id " + std::to_string(row.token) + " is outside the vocabulary of " + std::to_string(recipe_.vocab));
    }
    if (!cache_->IsLive(row.sequence)) return BadInput("no sequence " + std::to_string(row.sequence));
    auto extent = std::find_if(extents_.begin(), extents_.end(), [&](const Extent& e) { return e.sequence == row.sequence; });
    if (extent == extents_.end()) extent = extents_.insert(extent, {row.sequence, cache_->Length(row.sequence), 0});
    if (row.bill != kNoBill && !ledger_.IsOpen(row.bill)) return BadInput("no bill " + std::to_string(row.bill));
    booked_.push_back({.phase = row.generated ? Phase::kDecode : Phase::kPrefill,
                       .logits = row.want_logits,
                       .again = row.again,
                       .bill = row.bill});
    if (row.want_logits) logit_rows_.push_back(static_cast<int32_t>(tokens_.size()));
    tokens_.push_back(row.token);
    kv_rows_.push_back({.table = row.sequence, .position = static_cast<int32_t>(extent->before + extent->rows)});
    ++extent->rows;
  }
  const int64_t trained = recipe_.context;
  for (const Extent& e : extents_) {
    if (e.before + e.rows > options_.context || (recipe_.learned_positions && e.before + e.rows > trained)) {
      const int64_t limit = recipe_.learned_positions ? std::min(options_.context, trained) : options_.context;
      return BadInput("the context is full: " + std::to_string(e.before + e.rows) + " positions, room for " +
                      std::to_string(limit));
    }
  }
  for (size_t i = 0; i < extents_.size(); ++i) {
    Status status = cache_->Extend(extents_[i].sequence, extents_[i].rows);
    if (!status.ok()) {
      extents_.resize(i);
      return Rollback(status);
    }
  }
  return {};
}

// Truncates the sequences to their lengths before the step. Returns the cause; if that fails, its error is appended.
Status Stepper::Rollback(const Status& cause) {
  std::string message = cause.message();
  for (const Extent& e : extents_) {
    const Status truncated = cache_->Truncate(e.sequence, e.before);
    if (truncated.ok()) continue;
    message += "; sequence " + std::to_string(e.sequence) + " is not as it was before the step: " + truncated.message();
  }
  return {cause.code(), std::move(message)};
}

// Repeats the step with a tap that checks every output. The step can be repeated, as it writes the same keys and values again.
Status Stepper::FindNonFinite(bool logits_finite) {
  const std::string what = logits_finite ? "activations" : "logits";
  std::string first;
  executor_.SetTap([&](Site site, std::string_view op, Mat<const float> out) {
    if (!first.empty() || out.empty() || AllFinite(out)) return;
    first = (site.layer >= 0 ? "layer " + std::to_string(site.layer) + " " : "") + std::string(ComponentName(site.component)) +
            " (" + std::string(op) + ")";
  });
  Status status = decoder_->Forward(Batch(), *cache_).status();
  executor_.SetTap(tap_);
  TALLY_RETURN_IF_ERROR(std::move(status));
  return BadInput(what + " are not finite: NaN or infinity first appears at " + (first.empty() ? "an unknown place" : first));
}

Result<Mat<const float>> Stepper::Step(std::span<const BatchRow> rows) {
  TALLY_RETURN_IF_ERROR(Prepare(rows));
  executor_.BeginStep(booked_);
  recorded_ops_ = 0;
  recorded_sequences_.clear();
  if (recorder_) {
    for (const Extent& e : extents_) recorded_sequences_.push_back({e.sequence, e.before, e.rows});
  }
  Result<Mat<const float>> logits = decoder_->Forward(Batch(), *cache_);
  executor_.EndStep();
  ++recorded_steps_;
  if (!logits.ok()) return Rollback(logits.status());
  // Rows without logits are checked too: their KV is already stored and would fail in a later step.
  if (decoder_->finite() && AllFinite(*logits)) return logits;
  // The repetition is neither charged nor recorded.
  Ledger* const ledger = executor_.ledger();
  executor_.SetLedger(nullptr);
  repeating_ = true;
  Status status = FindNonFinite(AllFinite(*logits));
  repeating_ = false;
  executor_.SetLedger(ledger);
  return Rollback(status);
}

}  // namespace tally
