// SPDX-License-Identifier: Apache-2.0
// The inputs of a run of CausalConvOp for some neighbouring channels, and the places that keep them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/kernels/causal_conv/causal_conv.h"
#include "engine/kernels/state/state_runs.h"

namespace tally {

// A task is kConvTask channels; a kernel takes up to kConvChannels of neighbouring tasks at a time.
inline constexpr int64_t kConvTask = 64, kConvChannels = 512;

// Inputs from before the run are copied first, since the tail of `to` may lie where that of `from` does.
class ConvInputs {
 public:
  // `earlier`: room for kScratch floats.
  static constexpr int64_t kScratch = (CausalConvOp::kMostTaps - 1) * kConvChannels;
  ConvInputs(const CausalConvOp& op, const StateRun& run, int64_t channel, int64_t channels, float* earlier)
      : op_(op),
        run_(run),
        table_(op.states[static_cast<size_t>(run.table)]),
        channel_(channel),
        channels_(channels),
        first_(run.position - op.layout.tail()),
        earlier_(earlier) {
    for (int64_t i = first_; i < run.position; ++i) {
      float* const to = earlier + (i - first_) * channels;
      const float* const from = Earlier(i);
      if (from != nullptr) {
        Copy(from + op.first_channel + channel, to);
      } else {
        std::fill_n(to, channels, 0.0f);
      }
    }
  }

  // The inputs of all channels at a position before the run; null: zeros.
  const float* Earlier(int64_t position) const {
    if (position >= table_.at) return StateRow(op_.layout, table_, position);
    if (table_.from == nullptr) return nullptr;
    return StateTail(op_.layout, table_.from) + (position - table_.at + op_.layout.tail()) * op_.layout.channels;
  }
  int64_t Row(int64_t t) const { return op_.runs.order[static_cast<size_t>(run_.begin + t)]; }  // of the run's row t
  // The input of a position from taps - 1 before the run's first.
  const float* At(int64_t position) const {
    if (position < run_.position) return earlier_ + (position - first_) * channels_;
    return op_.x.Row(Row(position - run_.position)) + channel_;
  }
  void KeepRow(int64_t t) const {
    float* const row = StateRow(op_.layout, table_, run_.position + t);
    if (row != nullptr) Copy(At(run_.position + t), row + op_.first_channel + channel_);
  }
  void KeepTails() const {
    KeepTail(table_.to, run_.position + run_.rows);
    if (table_.mid != nullptr) KeepTail(table_.mid, table_.mid_at);
  }

 private:
  void KeepTail(uint8_t* state, int64_t end) const {
    float* to = StateTail(op_.layout, state) + op_.first_channel + channel_;
    for (int64_t i = end - op_.layout.tail(); i < end; ++i, to += op_.layout.channels) Copy(At(i), to);
  }
  void Copy(const float* from, float* to) const { std::memcpy(to, from, static_cast<size_t>(channels_) * sizeof(float)); }

  const CausalConvOp& op_;
  const StateRun& run_;
  const StateTable& table_;
  int64_t channel_, channels_, first_;
  float* earlier_;
};

// body(inputs, channel, channels, run) of each piece of tasks [begin, end) and each run.
template <class Body>
void ForConvPieces(const CausalConvOp& op, int64_t begin, int64_t end, float* scratch, const Body& body) {
  const int64_t last = std::min(end * kConvTask, op.x.cols);
  for (int64_t c = begin * kConvTask; c < last; c += kConvChannels) {
    const int64_t channels = std::min(kConvChannels, last - c);
    for (const StateRun& run : op.runs.runs) body(ConvInputs(op, run, c, channels, scratch), c, channels, run);
  }
}

}  // namespace tally
