// SPDX-License-Identifier: Apache-2.0
// Sequences that an op on states runs through in steps, for tests: inputs and outputs of all positions, states, and blocks of rows. States
// and blocks end at an inaccessible page and begin as NaNs: what should not be read, or was not written, shows.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/kernels/state/state.h"
#include "tests/kernels/harness.h"

namespace tally {

// A sequence's part of a step.
struct StepPart {
  int32_t sequence = 0;
  int64_t rows = 0;
  bool in_place = false;  // the new state takes the place of the old one
  int64_t mid_at = -1;    // a state after that many positions is kept too
};

template <class Op>
class StateSequences {
 public:
  using Input = Mat<const float> Op::*;
  struct Known {
    uint8_t* state = nullptr;
    int64_t at = 0;
  };

  // `op`: all but its matrices, runs and states. `inputs`: each with its columns.
  StateSequences(const Op& op, const std::vector<std::pair<Input, int64_t>>& inputs, int64_t out_cols, int64_t sequences,
                 int64_t positions)
      : op_(op), positions_(positions), out_(sequences * positions, out_cols) {
    for (const auto& [member, cols] : inputs)
      inputs_.push_back({member, std::make_unique<EdgeMat<float>>(sequences * positions, cols)});
    sequences_.resize(static_cast<size_t>(sequences));
    for (Sequence& s : sequences_) {
      for (int64_t p = 0; p < positions; p += kStateRows) s.rows.push_back(Memory(op.layout.rows_bytes()));
      s.all_rows = s.rows;
    }
  }
  StateSequences(const StateSequences&) = delete;

  // Of all positions: row sequence * positions + position.
  Mat<float> input(Input member) const {
    for (const auto& i : inputs_) {
      if (i.member == member) return i.all->view();
    }
    return {};
  }
  void CopyInputs(const StateSequences& from) {
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].all->CopyFrom(from.inputs_[i].all->view());
  }
  Mat<float> out() const { return out_.view(); }
  size_t StateBytes() const { return op_.layout.state_bytes(); }

  int64_t position(int32_t s) const { return At(s).position; }
  const Known& last(int32_t s) const { return At(s).known.back(); }                  // `to` of the last step
  const Known& mid(int32_t s) const { return At(s).known[At(s).known.size() - 2]; }  // `mid` of the last step, if it had one
  uint8_t* block(int32_t s, int64_t block) const { return At(s).all_rows[static_cast<size_t>(block)]; }
  // Rows of that block are not kept from now on.
  void Forget(int32_t s, int64_t block) { At(s).rows[static_cast<size_t>(block)] = nullptr; }
  // The next step begins at `position`, from a state before it.
  void GoBack(int32_t s, int64_t position, const Known& from) {
    At(s).position = position;
    At(s).known.push_back(from);
  }

  // One step, its rows in any order.
  void Step(std::string_view kernel, std::span<const StepPart> parts, uint64_t seed, int threads = 3) {
    Random random(seed);
    std::vector<std::pair<int32_t, int64_t>> batch;  // sequence, position
    for (const StepPart& p : parts) {
      for (int64_t i = 0; i < p.rows; ++i) batch.emplace_back(p.sequence, At(p.sequence).position + i);
    }
    random.Shuffle(batch);
    const int64_t n = static_cast<int64_t>(batch.size());
    Op op = op_;
    std::vector<std::unique_ptr<EdgeMat<float>>> gathered;
    for (const auto& i : inputs_) {
      const Mat<float> all = i.all->view();
      gathered.push_back(std::make_unique<EdgeMat<float>>(n, all.cols, random.Between(0, 3)));
      for (int64_t r = 0; r < n; ++r)
        std::memcpy(gathered.back()->Row(r), all.Row(Index(batch[static_cast<size_t>(r)])), RowBytes(all));
      op.*(i.member) = gathered.back()->view();
    }
    EdgeMat<float> out(n, out_.view().cols, random.Between(0, 3));
    op.out = out.view();
    std::vector<StateRun> runs;
    std::vector<int32_t> order;
    std::vector<StateTable> tables(sequences_.size());
    for (const StepPart& p : parts) {
      Sequence& s = At(p.sequence);
      const Known from = s.known.empty() ? Known() : s.known.back();
      StateTable& table = tables[static_cast<size_t>(p.sequence)];
      table = {.from = from.state, .at = from.at, .rows = s.rows.data(), .count = static_cast<int64_t>(s.rows.size())};
      runs.push_back(
          {p.sequence, static_cast<int32_t>(s.position), static_cast<int32_t>(order.size()), static_cast<int32_t>(p.rows)});
      for (int64_t i = 0; i < p.rows; ++i) {
        const std::pair<int32_t, int64_t> row(p.sequence, s.position + i);
        order.push_back(static_cast<int32_t>(std::find(batch.begin(), batch.end(), row) - batch.begin()));
      }
      if (p.mid_at >= 0) {
        table.mid = Memory(op.layout.state_bytes());
        table.mid_at = p.mid_at;
        s.known.push_back({table.mid, p.mid_at});
      }
      table.to = p.in_place && from.state != nullptr ? from.state : Memory(op.layout.state_bytes());
      s.position += p.rows;
      s.known.push_back({table.to, s.position});
    }
    op.runs = {runs, order};
    op.states = tables;
    ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
    RunShuffled(KernelNamed<Op>(kernel), op, random.Bits(), threads);
    out.ExpectGapsUntouched();
    for (int64_t r = 0; r < n; ++r) std::memcpy(out_.Row(Index(batch[static_cast<size_t>(r)])), out.Row(r), RowBytes(out.view()));
  }
  // All positions of all sequences, `cut` at a time.
  void Run(std::string_view kernel, int64_t cut, uint64_t seed, int threads = 3, bool in_place = false) {
    for (bool more = true; more && !::testing::Test::HasFatalFailure();) {
      std::vector<StepPart> parts;
      for (int32_t s = 0; s < static_cast<int32_t>(sequences_.size()); ++s) {
        const int64_t rows = std::min(cut, positions_ - position(s));
        if (rows > 0) parts.push_back({.sequence = s, .rows = rows, .in_place = in_place});
      }
      more = !parts.empty();
      if (more) Step(kernel, parts, ++seed, threads);
    }
  }

  // Outputs, last states and rows are those of `other`.
  void ExpectSame(const StateSequences& other) const {
    ExpectSameBits(out(), other.out());
    for (int32_t s = 0; s < static_cast<int32_t>(sequences_.size()); ++s) {
      EXPECT_EQ(std::memcmp(last(s).state, other.last(s).state, op_.layout.state_bytes()), 0) << "state of sequence " << s;
      for (int64_t p = 0; p < position(s); ++p) {
        const size_t bytes = static_cast<size_t>(op_.layout.row_floats()) * sizeof(float),
                     at = static_cast<size_t>(p % kStateRows) * bytes;
        if (At(s).rows[static_cast<size_t>(p / kStateRows)] == nullptr) continue;
        ASSERT_EQ(std::memcmp(block(s, p / kStateRows) + at, other.block(s, p / kStateRows) + at, bytes), 0)
            << "row of position " << p << " of sequence " << s;
      }
    }
  }
  void ExpectFiniteState(int32_t s) const {
    const float* const state = reinterpret_cast<const float*>(last(s).state);
    for (int64_t i = 0; i < op_.layout.state_floats(); ++i) {
      ASSERT_TRUE(std::isnormal(state[i]) || state[i] == 0) << "float " << i << " of the state is " << state[i];
    }
  }

 private:
  struct Sequence {
    std::vector<uint8_t*> rows, all_rows;
    std::vector<Known> known;  // states, the last one last
    int64_t position = 0;
  };
  struct Bound {
    Input member;
    std::unique_ptr<EdgeMat<float>> all;
  };

  Sequence& At(int32_t s) { return sequences_[static_cast<size_t>(s)]; }
  const Sequence& At(int32_t s) const { return sequences_[static_cast<size_t>(s)]; }
  int64_t Index(const std::pair<int32_t, int64_t>& row) const { return row.first * positions_ + row.second; }
  template <class T>
  static size_t RowBytes(const Mat<T>& m) {
    return static_cast<size_t>(m.cols) * sizeof(T);
  }
  uint8_t* Memory(size_t bytes) {
    EdgeArray<uint8_t>& m = memory_.emplace_back(bytes);
    std::memset(m.data(), 0xFF, bytes);
    return m.data();
  }

  Op op_;
  int64_t positions_;
  std::vector<Bound> inputs_;
  EdgeMat<float> out_;
  std::vector<Sequence> sequences_;
  std::deque<EdgeArray<uint8_t>> memory_;
};

// The same bits for any cut, in place and not, in company and alone, after going back, and with rows that are not kept. `make` gives
// sequences with equal inputs: two, of 75 positions.
template <class Make>
void ExpectBitsDoNotDependOnTheCut(const Make& make, Random& random) {
  const auto whole = make(), other_threads = make(), alone = make(), back = make();
  whole->Run("hwy", 75, random.Bits());
  other_threads->Run("hwy", 75, random.Bits(), 1);
  other_threads->ExpectSame(*whole);
  for (const int64_t cut : {1, 7, 32}) {
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE("cut " + std::to_string(cut) + (in_place ? ", in place" : ""));
      const auto other = make();
      other->Run("hwy", cut, random.Bits(), cut == 7 ? 1 : 2, in_place);
      other->ExpectSame(*whole);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  const auto step = [&](auto& s, StepPart part) { s->Step("hwy", {&part, 1}, random.Bits()); };
  for (const int32_t s : {0, 1}) {
    for (const int64_t rows : {40, 35}) step(alone, {.sequence = s, .rows = rows});
  }
  alone->ExpectSame(*whole);
  if (::testing::Test::HasFatalFailure()) return;

  // To 40 by way of 33, back to 38, which is done again from 33. On to 75 with a state after 64; back to 70 from it, then from the state
  // after 33.
  step(back, {.sequence = 0, .rows = 40, .mid_at = 33});
  const auto early = back->mid(0);
  back->GoBack(0, 38, early);
  step(back, {.sequence = 0, .rows = 37, .mid_at = 64});
  const auto late = back->mid(0);
  for (const auto& from : {late, early}) {
    back->GoBack(0, 70, from);
    step(back, {.sequence = 0, .rows = 5});
    EXPECT_EQ(std::memcmp(back->last(0).state, whole->last(0).state, back->StateBytes()), 0) << "from " << from.at;
  }
  // Positions of the first block are not kept; nor is their state needed.
  back->Forget(1, 0);
  step(back, {.sequence = 1, .rows = 64, .mid_at = 63});
  back->GoBack(1, 64, back->mid(1));
  step(back, {.sequence = 1, .rows = 11});
  back->ExpectSame(*whole);
}

}  // namespace tally
