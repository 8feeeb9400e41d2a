// SPDX-License-Identifier: Apache-2.0
#include "engine/session/predictor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/checked.h"
#include "engine/kernels/ops.h"
#include "engine/recipe/recipe.h"

namespace tally {
namespace {

// The first of the largest; -1: some are not finite.
int32_t Largest(const float* logits, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(logits[i])) return -1;
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<int32_t>(best);
}

}  // namespace

Result<std::unique_ptr<Predictor>> Predictor::Create(const PlanSource& source, const PlanOptions& options, int32_t sequences,
                                                     Executor& executor, SequenceStore& store) {
  std::unique_ptr<Predictor> p(new Predictor(options, sequences, executor, store));
  p->width_ = source.recipe.d_model;
  TALLY_ASSIGN_OR_RETURN(p->decoder_, Decoder::Create(source, options, executor));
  return p;
}

uint64_t Predictor::Bytes(const PlanOptions& options, int32_t sequences, int64_t d_model) {
  // A step's rows wait until they have run, are in a batch, and were kept of the model's output.
  const uint64_t rows = SaturatingAdd(SaturatingMul(3, static_cast<uint64_t>(options.max_batch)),
                                      SaturatingMul(static_cast<uint64_t>(sequences), 2 * kMostWaiting));
  return SaturatingMul(rows, static_cast<uint64_t>(d_model) * sizeof(float));
}

void Predictor::Batch::Clear() {
  tokens.clear();
  logit_rows.clear();
  kv_rows.clear();
  booked.clear();
  hidden.clear();
}

// Rows of positions from `positions` on were taken back.
void Predictor::Keep(Waiting& w, int64_t positions) const {
  const size_t kept = static_cast<size_t>(std::clamp<int64_t>(positions - w.from, 0, w.rows()));
  w.tokens.resize(kept);
  w.phases.resize(kept);
  w.outputs.resize(kept * static_cast<size_t>(width_));
}

// The first rows have run.
void Predictor::Drop(Waiting& w, int64_t rows) const {
  w.tokens.erase(w.tokens.begin(), w.tokens.begin() + rows);
  w.phases.erase(w.phases.begin(), w.phases.begin() + rows);
  w.outputs.erase(w.outputs.begin(), w.outputs.begin() + rows * width_);
  w.from += rows;
}

void Predictor::Forget(int32_t sequence) {
  if (sequence < 0 || static_cast<size_t>(sequence) >= waiting_.size()) return;
  Of(sequence) = {};
}

// The first rows do not run if another sequence has their blocks.
void Predictor::DropShared(int32_t sequence) {
  Waiting& w = Of(sequence);
  int64_t shared = 0;
  while (shared < w.rows() && !store_.Owns(sequence, w.from + shared)) ++shared;
  if (shared > 0) Drop(w, shared);
}

// Adds row i of those that wait to the batch.
void Predictor::Add(int32_t sequence, int64_t i, int32_t next, int32_t bill) {
  const Waiting& w = Of(sequence);
  const size_t at = static_cast<size_t>(i);
  batch_.tokens.push_back(next);
  batch_.kv_rows.push_back({.table = sequence, .position = static_cast<int32_t>(w.from + i)});
  batch_.booked.push_back({.phase = w.phases[at], .bill = bill, .stack = StackKind::kPrediction});
  batch_.hidden.insert(batch_.hidden.end(), w.outputs.begin() + i * width_, w.outputs.begin() + (i + 1) * width_);
}

Result<Mat<const float>> Predictor::Run(bool normed) {
  if (before_) {
    before_({.tokens = batch_.tokens,
             .rows = batch_.kv_rows,
             .logit_rows = static_cast<int64_t>(batch_.logit_rows.size()),
             .own_states = normed});
  }
  executor_.BeginStep(batch_.booked);
  Result<Mat<const float>> logits = decoder_->Predict({batch_.tokens, batch_.kv_rows, batch_.logit_rows},
                                                      {batch_.hidden.data(), batch_.rows(), width_}, normed, store_);
  executor_.EndStep();
  return logits;
}

// Adds all rows but the last `left`, whose next tokens are not known, to the batch, which runs whenever it is full.
Status Predictor::RunAllBut(int64_t left, int32_t sequence, int32_t bill) {
  DropShared(sequence);
  Waiting& w = Of(sequence);
  const int64_t rows = w.rows() - left;
  for (int64_t i = 0; i < rows; ++i) {
    if (batch_.rows() == options_.max_batch) {
      TALLY_RETURN_IF_ERROR(Run(false).status());
      batch_.Clear();
    }
    Add(sequence, i, w.tokens[static_cast<size_t>(i) + 1], bill);
  }
  if (rows > 0) Drop(w, rows);
  return {};
}

Status Predictor::Take(std::span<const Ran> rows) {
  struct Last {
    int32_t sequence = 0;
    size_t row = 0;      // its last one
    int64_t drafts = 0;  // of its rows
  };
  std::vector<Last> last;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Ran& row = rows[i];
    const int32_t sequence = row.at.table;
    Waiting& w = Of(sequence);
    auto known = std::ranges::find(last, sequence, &Last::sequence);
    if (known == last.end()) {
      Keep(w, row.at.position);
      if (w.from + w.rows() != row.at.position) w = {.from = row.at.position};
      known = last.insert(last.end(), {.sequence = sequence});
    }
    known->row = i;
    known->drafts += row.booked.draft ? 1 : 0;
    w.tokens.push_back(row.token);
    w.phases.push_back(row.booked.phase);
    w.outputs.insert(w.outputs.end(), row.output, row.output + width_);
  }
  batch_.Clear();
  for (const Last& l : last) {
    const BookedRow& booked = rows[l.row].booked;
    if (booked.phase == Phase::kDecode && Of(l.sequence).rows() <= kMostWaiting + l.drafts) continue;
    TALLY_RETURN_IF_ERROR(RunAllBut(1 + l.drafts, l.sequence, booked.bill));
  }
  return batch_.rows() > 0 ? Run(false).status() : Status();
}

// The layer's rows beyond the sequence's length stay within its last block of keys and values.
int64_t Predictor::MostDrafts(const DraftWish& wish) const {
  const int64_t last = store_.Length(wish.sequence) - 1;
  return std::min(wish.most, kKvBlock - last % kKvBlock);
}

Result<std::span<const std::vector<int32_t>>> Predictor::Predict(std::span<const DraftWish> wishes) {
  drafts_.assign(wishes.size(), {});
  batch_.Clear();
  const int64_t first = static_cast<int64_t>(wishes.size());  // rows that give the first drafts
  std::vector<size_t> of;                                     // the wishes whose rows are in the batch, in its order
  for (size_t i = 0; i < wishes.size(); ++i) {
    const DraftWish& wish = wishes[i];
    const int64_t length = store_.Length(wish.sequence);
    if (wish.most < 1 || length == 0) continue;
    Waiting& w = Of(wish.sequence);
    Keep(w, length);
    DropShared(wish.sequence);
    if (w.rows() > 0 && w.from + w.rows() == length) of.push_back(i);
  }
  if (of.empty()) return std::span<const std::vector<int32_t>>(drafts_);
  int64_t all = 0;
  for (const size_t i : of) all += Of(wishes[i].sequence).rows();
  if (all > options_.max_batch || first > options_.max_batch) {  // the last rows have a batch of their own
    for (const size_t i : of) TALLY_RETURN_IF_ERROR(RunAllBut(1, wishes[i].sequence, wishes[i].bill));
    if (batch_.rows() > 0) TALLY_RETURN_IF_ERROR(Run(false).status());
    batch_.Clear();
  }
  for (const size_t i : of) {
    const DraftWish& wish = wishes[i];
    Waiting& w = Of(wish.sequence);
    for (int64_t row = 0; row < w.rows(); ++row) {
      const bool last = row + 1 == w.rows();
      Add(wish.sequence, row, last ? wish.token : w.tokens[static_cast<size_t>(row) + 1], wish.bill);
      batch_.booked.back().phase = Phase::kDecode;
    }
    batch_.logit_rows.push_back(static_cast<int32_t>(batch_.rows()) - 1);
    batch_.booked.back().logits = true;
    Drop(w, w.rows());
  }
  for (bool normed = false; !of.empty(); normed = true) {
    TALLY_ASSIGN_OR_RETURN(const Mat<const float> logits, Run(normed));
    const Mat<const float> hidden = decoder_->HeadInput();
    batch_.Clear();
    std::vector<size_t> more;
    for (size_t row = 0; row < of.size(); ++row) {
      const size_t i = of[row];
      const DraftWish& wish = wishes[i];
      const int32_t token = Largest(logits.Row(static_cast<int64_t>(row)), logits.cols);
      if (token < 0) continue;
      drafts_[i].push_back(token);
      const int64_t drafted = static_cast<int64_t>(drafts_[i].size());
      if (drafted >= MostDrafts(wish)) continue;
      const float* const h = hidden.Row(static_cast<int64_t>(row));
      batch_.tokens.push_back(token);
      batch_.kv_rows.push_back(
          {.table = wish.sequence, .position = static_cast<int32_t>(store_.Length(wish.sequence) - 1 + drafted)});
      batch_.logit_rows.push_back(static_cast<int32_t>(more.size()));
      batch_.booked.push_back({.phase = Phase::kDecode, .logits = true, .bill = wish.bill, .stack = StackKind::kPrediction});
      batch_.hidden.insert(batch_.hidden.end(), h, h + width_);
      more.push_back(i);
    }
    of = std::move(more);
  }
  return std::span<const std::vector<int32_t>>(drafts_);
}

}  // namespace tally
