// SPDX-License-Identifier: Apache-2.0
#include "engine/session/stepper.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/checked.h"
#include "engine/base/checksum.h"
#include "engine/base/finite.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/session/commands.h"

namespace tally {
namespace {

template <class T>
std::string_view BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

Stepper::Stepper(std::shared_ptr<const LoadedModel> model, const EngineOptions& options)
    : model_(std::move(model)),
      group_(model_->group()),
      log_(model_->log()),
      team_(options.threads),
      recipe_(model_->recipe()),
      stacks_(StacksToRun(model_->spec(), options.prediction)),
      probed_(model_->Probed(stacks_)),
      options_(MakeStepperOptions(recipe_, options, model_->memory_plan().batch_rows)),
      sources_(model_->Sources(stacks_, rope_)),
      plan_(PlanEngine(sources_, options_, team_.threads())),
      planned_(*model_, SaturatingAdd(plan_.kv, plan_.scratch)),
      executor_(team_, &ledger_) {
  executor_.SetImpl(options_.plan.impl);
  executor_.SetShareGain(options_.share_gain_ns);
  ledger_.SetWeights(model_->weights().infos());
}

Result<std::unique_ptr<Stepper>> Stepper::Create(std::shared_ptr<const LoadedModel> model, const EngineOptions& options) {
  std::unique_ptr<Stepper> stepper(new Stepper(std::move(model), options));
  if (GroupLog* const log = stepper->log_; log != nullptr) {
    stepper->id_ = log->NextEngine();
    TALLY_RETURN_IF_ERROR(TellNow<Command::kNewEngine>(log, stepper->id_, options));
  }
  TALLY_RETURN_IF_ERROR(AgreeOnStatus(stepper->group_, stepper->Start()));
  if (stepper->group_ != nullptr) stepper->start_ = stepper->group_->traffic();
  return stepper;
}

Stepper::~Stepper() { Tell<Command::kFreeEngine>(log_, id_); }

Status Stepper::Start() {
  TALLY_RETURN_IF_ERROR(team_.status());
  TALLY_RETURN_IF_ERROR(CheckMemory());
  TALLY_ASSIGN_OR_RETURN(rope_, model_->MakeRope(options_.context));
  TALLY_ASSIGN_OR_RETURN(decoder_, Decoder::Create(sources_[0], options_.plan, executor_));
  TALLY_ASSIGN_OR_RETURN(store_,
                         SequenceStore::Create(KvLayers(stacks_, options_.plan.kv, model_->shard()), options_.kv_size(), &team_));
  for (const PlanSource& stack : sources_) {
    if (stack.recipe.prediction()) TALLY_RETURN_IF_ERROR(StartPredictor(stack));
  }
  extent_of_.assign(static_cast<size_t>(options_.sequences), -1);
  return {};
}

Status Stepper::StartPredictor(const PlanSource& stack) {
  TALLY_ASSIGN_OR_RETURN(predictor_, Predictor::Create(stack, options_.plan, options_.sequences, executor_, *store_));
  decoder_->KeepOutput(&output_);
  predictor_->SetBefore([this](const Predictor::Pass& pass) {
    if (before_pass_) {
      before_pass_({.tokens = pass.tokens,
                    .context = int64_t{pass.rows.back().position} + 1,
                    .logit_rows = pass.logit_rows,
                    .own_states = pass.own_states});
    }
    if (!recorder_) return;
    recorded_logits_ = pass.logit_rows;
    recorded_sequences_.clear();
    for (const KvRow& row : pass.rows) {
      const bool same = !recorded_sequences_.empty() && recorded_sequences_.back().sequence == row.table;
      if (!same) recorded_sequences_.push_back({row.table, row.position, 0});
      ++recorded_sequences_.back().rows;
    }
  });
  return {};
}

// `held`: the weights, which are in memory, and what other engines have planned. available = held + min(free, resident + free -
// held): memory that other engines have planned but not yet touched is not free for this one.
Status Stepper::CheckMemory() {
  plan_.packed_weights = model_->memory_plan().packed_weights;
  const uint64_t held = plan_.packed_weights + planned_.others(), free = AvailableMemoryBytes() / RanksHere(group_);
  const uint64_t all = ResidentBytes() + free;
  plan_.available = held + std::min(free, all > held ? all - held : 0);
  Status fits = CheckPlan(plan_, held, sources_, options_);
  if (fits.ok() || planned_.others() == 0) return fits;
  return {fits.code(),
          fits.message() + " (the weights' figure holds what other engines have planned, " + BytesText(planned_.others()) + ")"};
}

uint64_t Stepper::Fingerprint() const {
  Checksum sum;
  sum.Add(recipe_.family);
  const uint64_t weights = model_->WeightsFingerprint(team_);
  sum.Add(BytesOf<uint64_t>({&weights, 1}));
  for (const RopeFrequencies* rope : {&rope_.global, &rope_.local}) {
    sum.Add(BytesOf<float>(rope->inv_freq));
    sum.Add(BytesOf<float>({&rope->magnitude, 1}));
  }
  return sum.value();
}

std::vector<std::string> Stepper::Explanations() const {
  std::vector<std::string> lines;
  for (const auto& [what, why] : executor_.explanations()) lines.push_back(what + ": " + why);
  return lines;
}

void Stepper::SetTap(Executor::Tap tap) {
  tap_ = tap;
  executor_.SetTap(std::move(tap));
}

void Stepper::SetRecorder(Recorder recorder) {
  recorder_ = std::move(recorder);
  recorded_steps_ = recorded_ops_ = 0;
  SetExecutorRecorder();
}

void Stepper::SetExecutorRecorder() {
  const bool records = recorder_ || kept_;
  executor_.SetRecorder(records ? Recorder([this](const OpRecord& op) { Record(op); }) : Recorder());
}

// Adds the step's fields to the executor's record.
void Stepper::Record(const OpRecord& op) {
  if (repeating_) return;
  OpRecord record = op;
  record.step = recorded_steps_;
  record.index = recorded_ops_++;
  record.phase = executor_.phase();
  record.sequences = recorded_sequences_;
  record.logit_rows = recorded_logits_;
  if (kept_) Keep(record);
  if (recorder_) recorder_(record);
}

void Stepper::Rows::Clear() {
  tokens.clear();
  logit_rows.clear();
  hidden_rows.clear();
  kv_rows.clear();
  positions.clear();
  given.clear();
}

void Stepper::Rows::Add(const BatchRow& row, int64_t place, int64_t& next) {
  const int32_t at = static_cast<int32_t>(tokens.size()), own = static_cast<int32_t>(next);
  if (row.want_logits) logit_rows.push_back(at);
  if (row.want_hidden) hidden_rows.push_back(at);
  if (!row.embedding.empty()) given.push_back({at, row.embedding.data()});
  tokens.push_back(row.token);
  kv_rows.push_back({.table = row.sequence, .position = static_cast<int32_t>(place)});
  if (!row.both_ways.empty()) {
    kv_rows.back().from = static_cast<int32_t>(row.both_ways.begin);
    kv_rows.back().until = static_cast<int32_t>(row.both_ways.end);
  }
  positions.push_back(row.position.given() ? row.position.Whole() : RowPosition{own, own, own});
  next = std::max<int64_t>(next, int64_t{positions.back().Largest()} + 1);
}

Stepper::Extent& Stepper::ExtentOf(int32_t sequence) {
  int32_t& at = extent_of_[static_cast<size_t>(sequence)];
  if (at >= 0) return extents_[static_cast<size_t>(at)];
  at = static_cast<int32_t>(extents_.size());
  const int64_t next = store_->NextPosition(sequence);
  return extents_.emplace_back(Extent{.sequence = sequence, .before = store_->Length(sequence), .next = next, .last = next});
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
    if (!store_->IsLive(row.sequence)) return BadInput("no sequence " + std::to_string(row.sequence));
    if (row.bill != kNoBill && !ledger_.IsOpen(row.bill)) return BadInput("no bill " + std::to_string(row.bill));
  }
  return CheckGiven(rows);
}

Status Stepper::CheckEmbedding(const BatchRow& row) const {
  const int32_t width = recipe_.embedding_width > 0 ? recipe_.embedding_width : recipe_.d_model;
  if (row.embedding.empty()) return row.identity.known() ? BadInput("an identity without an embedding") : Status();
  if (row.embedding.size() != static_cast<size_t>(width)) {
    return BadInput("an embedding of " + std::to_string(row.embedding.size()) + " numbers; the model's have " +
                    std::to_string(width));
  }
  if (AllFinite({row.embedding.data(), 1, width})) return {};
  return BadInput("an embedding that is not finite");
}

int64_t Stepper::PositionLimit() const {
  return recipe_.learned_positions ? std::min<int64_t>(options_.context, recipe_.context) : options_.context;
}

// `at`: whole.
Status Stepper::CheckPosition(const RowPosition& at) const {
  const int64_t limit = PositionLimit();
  for (const int32_t p : {at.t, at.h, at.w}) {
    if (p < 0 || p >= limit) {
      return BadInput("position " + std::to_string(p) + " is out of range, expected 0 to " + std::to_string(limit - 1));
    }
  }
  if ((at.h != at.t || at.w != at.t) && !TurnsByThree()) return BadInput("three positions, and the model has one");
  return {};
}

// What rows are besides tokens.
Status Stepper::CheckGiven(std::span<const BatchRow> rows) const {
  const auto more = [&](const BatchRow& row) {
    return !row.embedding.empty() || row.identity.known() || row.position.given() || row.both_ways != RowSpan();
  };
  if (std::ranges::none_of(rows, more)) return {};
  struct Place {
    int64_t at = 0;
    RowSpan span = {};  // the last one
  };
  std::map<int32_t, Place> places;
  for (size_t i = 0; i < rows.size(); ++i) {
    const BatchRow& row = rows[i];
    const auto [found, is_new] = places.try_emplace(row.sequence);
    Place& place = found->second;
    if (is_new) place.at = store_->Length(row.sequence);
    const auto named = [i](const Status& status) {
      return status.ok() ? status : BadInput("row " + std::to_string(i) + ": " + status.message());
    };
    TALLY_RETURN_IF_ERROR(named(CheckEmbedding(row)));
    if (row.position.given()) TALLY_RETURN_IF_ERROR(named(CheckPosition(row.position.Whole())));
    const RowSpan span = row.both_ways;
    const bool inside = place.at < place.span.end;
    const bool begins = !inside && span.begin == place.at && !span.empty();
    if (inside ? span != place.span : !begins && span != RowSpan()) {
      return named(BadInput("rows that see one another are one after another, and each names the same span; this one is at " +
                            std::to_string(place.at) + " and names " + std::to_string(span.begin) + " to " +
                            std::to_string(span.end)));
    }
    if (!span.empty() && row.draft) return named(BadInput("a drafted row sees the past alone"));
    if (begins) place.span = span;
    ++place.at;
  }
  for (const auto& [sequence, place] : places) {
    if (place.at >= place.span.end) continue;
    return BadInput("sequence " + std::to_string(sequence) + ": rows that see one another are in one step; those up to " +
                    std::to_string(place.span.end) + " end at " + std::to_string(place.at));
  }
  return {};
}

// Makes room for the positions of the sequence's rows. kNoRoom.
Status Stepper::MakeRoom(const Extent& e) {
  const int64_t limit = PositionLimit(), positions = std::max(e.before + e.rows, e.last);
  if (positions > limit) {
    return NoRoom("the context is full: " + std::to_string(positions) + " positions, room for " + std::to_string(limit));
  }
  return store_->Extend(e.sequence, e.rows, /*keep_first=*/e.drafts > 0);
}

// Checks the rows, makes room for them in the cache and fills the batch.
Status Stepper::Prepare(std::span<const BatchRow> rows) {
  rows_.Clear();
  booked_.clear();
  for (const Extent& e : extents_) extent_of_[static_cast<size_t>(e.sequence)] = -1;
  extents_.clear();
  failed_.clear();
  TALLY_RETURN_IF_ERROR(CheckRows(rows));
  for (const BatchRow& row : rows) {
    Extent& e = ExtentOf(row.sequence);
    ++e.rows;
    e.last = row.position.given() ? std::max<int64_t>(e.last, int64_t{row.position.Whole().Largest()} + 1) : e.last + 1;
    if (e.drafts > 0 && !row.draft) return BadInput("a row that was not drafted follows drafted ones of its sequence");
    if (!row.draft) continue;
    ++e.drafts;
    e.bill = row.bill;
  }
  for (Extent& e : extents_) {
    Status room = MakeRoom(e);
    e.ran = room.ok();
    if (!e.ran) Fail(e, std::move(room));
    e.rows = 0;  // counted again below
  }
  for (const BatchRow& row : rows) {
    Extent& e = ExtentOf(row.sequence);
    if (!e.ran) continue;
    const int64_t place = e.before + e.rows++;
    rows_.Add(row, place, e.next);
    if (!row.embedding.empty() || row.position.given() || !row.both_ways.empty()) {
      const PrefixRow more = {.index = place,
                              .embedding = !row.embedding.empty(),
                              .identity = row.identity,
                              .position = rows_.positions.back(),
                              .both_ways = row.both_ways};
      store_->AddRows(row.sequence, {&row.token, 1}, {&more, 1});
    }
    booked_.push_back({.phase = row.generated ? Phase::kDecode : Phase::kPrefill,
                       .logits = row.want_logits,
                       .again = row.again,
                       .bill = row.bill,
                       .draft = row.draft,
                       .hidden = row.want_hidden});
  }
  return {};
}

void Stepper::Fail(Extent& extent, Status status) {
  extent.failed = true;
  failed_.push_back({extent.sequence, std::move(status)});
}

// Truncates the sequence to its length before the step. Returns the cause; if that fails, its error is appended.
Status Stepper::TakeBack(Status cause, const Extent& e) {
  const Status truncated = Truncate(e.sequence, e.before);
  if (truncated.ok()) return cause;
  return {cause.code(), cause.message() + "; sequence " + std::to_string(e.sequence) +
                            " is not as it was before the step: " + truncated.message()};
}

Status Stepper::TakeAllBack(Status cause) {
  for (Extent& e : extents_) {
    e.failed = true;
    if (e.ran) cause = TakeBack(std::move(cause), e);
  }
  return cause;
}

// Names the rows of failed sequences in their bills. Drafted ones are never accepted then.
void Stepper::MarkInVain() {
  for (size_t i = 0; i < booked_.size(); ++i) {
    if (!booked_[i].draft && ExtentOf(rows_.kv_rows[i].table).failed) ledger_.MarkInVain(booked_[i].bill, booked_[i].phase, 1);
  }
}

Status Stepper::KeepDrafts(int32_t sequence, int64_t accepted) {
  const auto found = std::ranges::find(extents_, sequence, &Extent::sequence);
  const int64_t drafted = found != extents_.end() && found->ran && !found->failed ? found->drafts : 0;
  if (accepted < 0 || accepted > drafted) {
    return BadInput("cannot keep " + std::to_string(accepted) + " drafted rows: the sequence has " + std::to_string(drafted));
  }
  if (drafted == 0) return {};
  Tell<Command::kKeepDrafts>(log_, id_, sequence, accepted);
  ledger_.SettleDrafts(found->bill, static_cast<uint64_t>(accepted));
  const int64_t kept = found->before + found->rows - found->drafts + accepted;
  found->drafts = 0;
  return kept < store_->Length(sequence) ? store_->Truncate(sequence, kept) : Status();
}

// Runs rows of one sequence, which begin at its length. They are neither charged nor recorded.
Status Stepper::Repeat(std::span<const BatchRow> rows, int64_t before) {
  int64_t next = store_->NextPosition(rows[0].sequence);
  TALLY_RETURN_IF_ERROR(store_->Extend(rows[0].sequence, static_cast<int64_t>(rows.size())));
  Rows again;
  for (const BatchRow& row : rows) again.Add(row, before + static_cast<int64_t>(again.tokens.size()), next);
  Ledger* const ledger = executor_.ledger();
  executor_.SetLedger(nullptr);
  repeating_ = true;
  Status ran = decoder_->Forward(again.Batch(), *store_).status();
  if (group_ != nullptr && !ran.ok()) group_->Fail(ran);
  repeating_ = false;
  executor_.SetLedger(ledger);
  return ran;
}

// Runs the sequence's rows again, alone, with a tap that checks every output.
std::string Stepper::FirstNonFinite(std::span<const BatchRow> rows, const Extent& e) {
  std::string first;
  std::vector<BatchRow> own;
  std::ranges::copy_if(rows, std::back_inserter(own), [&](const BatchRow& row) { return row.sequence == e.sequence; });
  if (!TellNow<Command::kRepeat>(log_, id_, own, e.before).ok()) return first;
  executor_.SetTap([&](Site site, std::string_view op, Mat<const float> out) {
    if (!first.empty() || out.empty() || AllFinite(out)) return;
    first = (site.layer >= 0 ? "layer " + std::to_string(site.layer) + " " : "") + std::string(ComponentName(site.component)) +
            " (" + std::string(op) + ")";
  });
  const Status ran = Repeat(own, e.before);
  executor_.SetTap(tap_);
  if (!ran.ok()) first.clear();
  return first;
}

Status Stepper::WhyBad(std::span<const BatchRow> rows, const Extent& e, std::span<const Decoder::BadRow> bad) {
  bool logits = false;
  for (const Decoder::BadRow& b : bad) {
    if (rows_.kv_rows[static_cast<size_t>(b.row)].table != e.sequence) continue;
    if (!b.why.empty()) return TakeBack(NotFinite(b.why), e);
    logits |= b.of_logits;
  }
  Status status = TakeBack(NotFinite(std::string(logits ? "logits" : "activations") + " are not finite"), e);
  if (store_->Length(e.sequence) != e.before) return status;
  const std::string place = FirstNonFinite(rows, e);
  return TakeBack(NotFinite(status.message() + ": NaN or infinity first appears " +
                            (group_ != nullptr ? "at or before " : "at ") + (place.empty() ? "an unknown place" : place)),
                  e);
}

// Fails the sequences that have bad rows. `logits` may move.
void Stepper::FailBadRows(std::span<const BatchRow> rows, Mat<const float>& logits) {
  const std::vector<Decoder::BadRow> bad = bad_;  // rows are run again
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
  const auto place = [&](bool BatchRow::*wanted, std::vector<int32_t>& places) {
    places.clear();
    int32_t ran = 0;
    for (const BatchRow& row : rows) {
      if (!(row.*wanted)) continue;
      const Extent& e = ExtentOf(row.sequence);
      places.push_back(e.failed ? -1 : ran);
      if (e.ran) ++ran;
    }
    return ran;
  };
  place(&BatchRow::want_logits, output_rows_);
  const int64_t hidden = place(&BatchRow::want_hidden, output_hidden_rows_);
  return {.logits = logits,
          .logit_rows = output_rows_,
          .failed = failed_,
          .hidden = {hidden_.data(), hidden, recipe_.d_model},
          .hidden_rows = output_hidden_rows_};
}

Result<StepOutput> Stepper::Step(std::span<const BatchRow> rows) {
  Result<StepOutput> out = RunStep(rows);
  NoteGroup();
  return out;
}

Result<StepOutput> Stepper::RunStep(std::span<const BatchRow> rows) {
  const Team::Turn turn(team_);  // engines that are stepped at the same time take turns by step
  TALLY_RETURN_IF_ERROR(TellStep(rows));
  TALLY_RETURN_IF_ERROR(Prepare(rows));
  if (rows_.tokens.empty()) return Output(rows, {});
  executor_.BeginStep(booked_);
  recorded_logits_ = static_cast<int64_t>(rows_.logit_rows.size());
  recorded_sequences_.clear();
  if (recorder_) {
    for (const Extent& e : extents_) {
      if (e.ran) recorded_sequences_.push_back({e.sequence, e.before, e.rows});
    }
  }
  Result<Mat<const float>> logits = decoder_->Forward(rows_.Batch(), *store_);
  executor_.EndStep();
  std::swap(hidden_, decoder_->hidden());  // rows may run again
  if (!logits.ok()) {
    NextRecordedStep();
    if (group_ != nullptr) {  // the other processes have gone on
      group_->Fail(logits.status());
      return logits.status();
    }
    Status status = TakeAllBack(logits.status());
    MarkInVain();
    return status;
  }
  TALLY_RETURN_IF_ERROR(FindBadRows());
  if (group_ != nullptr && group_->rank() > 0) {  // the first process judges
    NextRecordedStep();
    return StepOutput();
  }
  std::swap(output_, step_output_);
  FailBadRows(rows, *logits);
  if (!failed_.empty()) MarkInVain();
  if (const Status taken = predictor_ != nullptr ? TakeOutput() : Status(); !taken.ok()) {
    NextRecordedStep();
    return TakeAllBack(taken);
  }
  NextRecordedStep();
  return Output(rows, *logits);
}

// Gives the predictor the rows of the step whose sequences have not failed.
Status Stepper::TakeOutput() {
  std::vector<Predictor::Ran> ran;
  const float* output = step_output_.data();
  for (size_t i = 0; i < booked_.size(); ++i, output += recipe_.d_model) {
    if (ExtentOf(rows_.kv_rows[i].table).failed || store_->HasRows(rows_.kv_rows[i].table)) continue;
    ran.push_back({.token = rows_.tokens[i], .at = rows_.kv_rows[i], .booked = booked_[i], .output = output});
  }
  return predictor_->Take(ran);
}

Result<std::span<const std::vector<int32_t>>> Stepper::Predict(std::span<const DraftWish> wishes) {
  if (predictor_ == nullptr) return Engine::Predict(wishes);
  if (static_cast<int64_t>(wishes.size()) > options_.plan.max_logit_rows) {
    return BadInput("drafts of " + std::to_string(wishes.size()) + " sequences: at most " +
                    std::to_string(options_.plan.max_logit_rows) + " (max_logit_rows)");
  }
  for (size_t i = 0; i < wishes.size(); ++i) {
    const DraftWish& wish = wishes[i];
    if (!store_->IsLive(wish.sequence)) return BadInput("no sequence " + std::to_string(wish.sequence));
    const auto same = [&](const DraftWish& other) { return other.sequence == wish.sequence; };
    if (std::ranges::any_of(wishes.first(i), same)) {
      return BadInput("two wishes of drafts for sequence " + std::to_string(wish.sequence));
    }
    if (wish.token < 0 || wish.token >= recipe_.vocab) {
      return BadInput("token id " + std::to_string(wish.token) + " is outside the vocabulary of " +
                      std::to_string(recipe_.vocab));
    }
  }
  const Team::Turn turn(team_);
  return predictor_->Predict(wishes);
}

}  // namespace tally
