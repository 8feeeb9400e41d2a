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
  TALLY_ASSIGN_OR_RETURN(s->cache_, SequenceStore::Create(KvLayers(source.recipe, options.plan.kv), options.kv_size(), &team));
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
  record.logit_rows = static_cast<int64_t>(rows_.logit_rows.size());
  recorder_(record);
}

void Stepper::Rows::Clear() {
  tokens.clear();
  logit_rows.clear();
  kv_rows.clear();
}

void Stepper::Rows::Add(const BatchRow& row, int64_t position) {
  if (row.want_logits) logit_rows.push_back(static_cast<int32_t>(tokens.size()));
  tokens.push_back(row.token);
  kv_rows.push_back({.table = row.sequence, .position = static_cast<int32_t>(position)});
}

Stepper::Extent& Stepper::ExtentOf(int32_t sequence) {
  const auto found = std::find_if(extents_.begin(), extents_.end(), [&](const Extent& e) { return e.sequence == sequence; });
  if (found != extents_.end()) return *found;
  return extents_.emplace_back(Extent{.sequence = sequence, .before = cache_->Length(sequence)});
}

Status Stepper::CheckRows(std::span<const BatchRow> rows) {
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
  }
  return {};
}

// Positions for the sequence's rows. kNoRoom.
Status Stepper::MakeRoom(const Extent& e) {
  int64_t limit = options_.context;
  if (recipe_.learned_positions) limit = std::min<int64_t>(limit, recipe_.context);
  if (e.before + e.rows > limit) {
    return NoRoom("the context is full: " + std::to_string(e.before + e.rows) + " positions, room for " + std::to_string(limit));
  }
  return cache_->Extend(e.sequence, e.rows);
}

// Checks the rows, makes room for them in the cache and fills the batch.
Status Stepper::Prepare(std::span<const BatchRow> rows) {
  rows_.Clear();
  phases_.clear();
  logit_phases_.clear();
  extents_.clear();
  failed_.clear();
  TALLY_RETURN_IF_ERROR(CheckRows(rows));
  for (const BatchRow& row : rows) ++ExtentOf(row.sequence).rows;
  for (Extent& e : extents_) {
    Status room = MakeRoom(e);
    e.ran = room.ok();
    if (!e.ran) Fail(e, std::move(room));
    e.rows = 0;  // counted again below
  }
  for (const BatchRow& row : rows) {
    Extent& e = ExtentOf(row.sequence);
    if (!e.ran) continue;
    rows_.Add(row, e.before + e.rows++);
    phases_.push_back(row.generated ? Phase::kDecode : Phase::kPrefill);
    if (row.want_logits) logit_phases_.push_back(phases_.back());
  }
  return {};
}

void Stepper::Fail(Extent& extent, Status status) {
  extent.failed = true;
  failed_.push_back({extent.sequence, std::move(status)});
}

// Truncates the sequence to its length before the step. Returns the cause; if that fails, its error is appended.
Status Stepper::TakeBack(Status cause, const Extent& e) {
  const Status truncated = cache_->Truncate(e.sequence, e.before);
  if (truncated.ok()) return cause;
  return {cause.code(), cause.message() + "; sequence " + std::to_string(e.sequence) +
                            " is not as it was before the step: " + truncated.message()};
}

Status Stepper::TakeAllBack(Status cause) {
  for (const Extent& e : extents_) {
    if (e.ran) cause = TakeBack(std::move(cause), e);
  }
  return cause;
}

// Runs the sequence's rows again, alone, with a tap that checks every output. They are neither charged nor recorded.
std::string Stepper::FirstNonFinite(std::span<const BatchRow> rows, const Extent& e) {
  std::string first;
  if (!cache_->Extend(e.sequence, e.rows).ok()) return first;
  Rows again;
  for (const BatchRow& row : rows) {
    if (row.sequence == e.sequence) again.Add(row, e.before + static_cast<int64_t>(again.tokens.size()));
  }
  Ledger* const ledger = executor_.ledger();
  executor_.SetLedger(nullptr);
  repeating_ = true;
  executor_.SetTap([&](Site site, std::string_view op, Mat<const float> out) {
    if (!first.empty() || out.empty() || AllFinite(out)) return;
    first = (site.layer >= 0 ? "layer " + std::to_string(site.layer) + " " : "") + std::string(ComponentName(site.component)) +
            " (" + std::string(op) + ")";
  });
  const Status ran = decoder_->Forward(again.Batch(), *cache_).status();
  executor_.SetTap(tap_);
  repeating_ = false;
  executor_.SetLedger(ledger);
  if (!ran.ok()) first.clear();
  return first;
}

Status Stepper::WhyBad(std::span<const BatchRow> rows, const Extent& e, std::span<const Decoder::BadRow> bad) {
  bool logits = false;
  for (const Decoder::BadRow& b : bad) {
    if (rows_.kv_rows[static_cast<size_t>(b.row)].table != e.sequence) continue;
    if (!b.why.empty()) return TakeBack(BadInput(b.why), e);
    logits |= b.of_logits;
  }
  Status status = TakeBack(BadInput(std::string(logits ? "logits" : "activations") + " are not finite"), e);
  if (cache_->Length(e.sequence) != e.before) return status;
  const std::string place = FirstNonFinite(rows, e);
  return TakeBack(
      BadInput(status.message() + ": NaN or infinity first appears at " + (place.empty() ? "an unknown place" : place)), e);
}

// Fails the sequences that have bad rows. `logits` may move.
void Stepper::FailBadRows(std::span<const BatchRow> rows, Mat<const float>& logits) {
  const std::vector<Decoder::BadRow> bad(decoder_->bad_rows().begin(), decoder_->bad_rows().end());
  if (bad.empty()) return;
  kept_logits_.clear();
  for (int64_t r = 0; r < logits.rows; ++r) kept_logits_.insert(kept_logits_.end(), logits.Row(r), logits.Row(r) + logits.cols);
  logits = {kept_logits_.data(), logits.rows, logits.cols};
  for (const Decoder::BadRow& b : bad) {
    Extent& e = ExtentOf(rows_.kv_rows[static_cast<size_t>(b.row)].table);
    if (!e.failed) Fail(e, WhyBad(rows, e, bad));
  }
}

StepOutput Stepper::Output(std::span<const BatchRow> rows, Mat<const float> logits) {
  output_rows_.clear();
  int32_t ran = 0;
  for (const BatchRow& row : rows) {
    if (!row.want_logits) continue;
    const Extent& e = ExtentOf(row.sequence);
    output_rows_.push_back(e.failed ? -1 : ran);
    if (e.ran) ++ran;
  }
  return {.logits = logits, .logit_rows = output_rows_, .failed = failed_};
}

Result<StepOutput> Stepper::Step(std::span<const BatchRow> rows) {
  TALLY_RETURN_IF_ERROR(Prepare(rows));
  if (rows_.tokens.empty()) return Output(rows, {});
  executor_.BeginStep({phases_, logit_phases_});
  recorded_ops_ = 0;
  recorded_sequences_.clear();
  if (recorder_) {
    for (const Extent& e : extents_) {
      if (e.ran) recorded_sequences_.push_back({e.sequence, e.before, e.rows});
    }
  }
  Result<Mat<const float>> logits = decoder_->Forward(rows_.Batch(), *cache_);
  executor_.EndStep();
  ++recorded_steps_;
  if (!logits.ok()) return TakeAllBack(logits.status());
  FailBadRows(rows, *logits);
  return Output(rows, *logits);
}

}  // namespace tally
