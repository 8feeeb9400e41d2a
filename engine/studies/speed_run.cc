// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/speed_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/base/mix.h"
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/machine/machine.h"
#include "engine/recipe/recipe.h"

namespace tally {
namespace {

constexpr int64_t kVerifiedPrefix = 32;

Status Wrong(const std::string& what) { return InternalError("the benchmark's outputs are wrong: " + what); }

std::vector<float> Copied(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

// Whether the bits are the same. kInternal: they are not and should be (no OpenBLAS ran), or the greedy tokens differ.
Result<bool> Compare(const std::string& what, std::span<const float> expected, std::span<const float> got, bool blas) {
  if (Argmax(expected) != Argmax(got)) {
    return Wrong(what + ": greedy tokens " + std::to_string(Argmax(expected)) + " and " + std::to_string(Argmax(got)));
  }
  const bool same = expected.size() == got.size() && std::memcmp(expected.data(), got.data(), got.size_bytes()) == 0;
  if (!same && !blas) return Wrong(what + ": the logits differ");
  return same;
}

uint32_t Best(const Mat<const float>& logits, int64_t row) {
  return static_cast<uint32_t>(Argmax({logits.Row(row), static_cast<size_t>(logits.cols)}));
}

double StepBytes(const Cost& cost) { return static_cast<double>(cost.MovedBytes()); }

}  // namespace

bool SpeedRun::narrow() const {
  const std::span<const DType> types = engine_->model().matrix_types();
  return std::any_of(types.begin(), types.end(), [](DType t) { return FormatOf(t).narrow; });
}

Status SpeedRun::Poll() const {
  if (options_.interrupted && options_.interrupted()) return {StatusCode::kInterrupted, "interrupted"};
  return {};
}

int32_t SpeedRun::Token(int64_t sequence, int64_t position) const {
  const uint64_t index = (static_cast<uint64_t>(sequence) << 32) + static_cast<uint64_t>(position);
  return static_cast<int32_t>(SplitMix64(options_.seed * 0x9e3779b9u + index) %
                              static_cast<uint64_t>(engine_->model().recipe().vocab));
}

Result<std::span<const float>> SpeedRun::Push(int32_t sequence, int64_t stream, int64_t end, int64_t piece,
                                              const std::function<void(int64_t)>& on_piece) {
  Mat<const float> logits;
  for (int64_t position = engine_->Length(sequence); position < end;) {
    TALLY_RETURN_IF_ERROR(Poll());
    rows_.clear();
    const int64_t n = std::min(piece, end - position);
    for (int64_t i = 0; i < n; ++i) rows_.push_back({Token(stream, position + i), sequence});
    position += n;
    rows_.back().want_logits = position == end;
    TALLY_ASSIGN_OR_RETURN(logits, engine_->StepAll(rows_));
    if (on_piece) on_piece(n);
  }
  return std::span<const float>(logits.Row(0), static_cast<size_t>(logits.cols));
}

Result<std::string> SpeedRun::Verify(std::vector<float>& expected) {
  const int64_t prefix = std::min(kVerifiedPrefix, engine_->context());
  std::vector<float> whole;
  {
    TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, ScopedSequence::New(*engine_));
    TALLY_ASSIGN_OR_RETURN(const auto logits, Push(sequence.id(), 0, prefix, engine_->max_batch()));
    whole = Copied(logits);
  }
  const std::string tokens = std::to_string(prefix) + " tokens in one piece and one by one";
  bool same = false;
  {
    TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, ScopedSequence::New(*engine_));
    TALLY_ASSIGN_OR_RETURN(const auto single, Push(sequence.id(), 0, prefix, 1));
    // Engine errors already say so where a logit is not finite; this is for engines that do not.
    const auto finite = [](float x) { return std::isfinite(x); };
    if (!std::all_of(whole.begin(), whole.end(), finite) || !std::all_of(single.begin(), single.end(), finite)) {
      return Wrong("logits that are not finite");
    }
    if (std::all_of(whole.begin(), whole.end(), [&](float x) { return x == whole[0]; })) return Wrong("all logits are equal");
    TALLY_ASSIGN_OR_RETURN(same, Compare(tokens, whole, single, engine_->used_blas()));
  }
  if (expected.empty()) expected = whole;
  TALLY_RETURN_IF_ERROR(
      Compare("another number of threads, " + std::to_string(engine_->threads()), expected, whole, engine_->used_blas())
          .status());
  const int64_t batch = options_.generate.empty() ? 1 : *std::max_element(options_.batches.begin(), options_.batches.end());
  std::string checked = tokens;
  if (batch > 1) {
    TALLY_RETURN_IF_ERROR(CheckBatch(prefix, batch));
    checked += ", " + std::to_string(batch) + " sequences in one step and apart";
  }
  return checked + (same ? ": the same logits, bit for bit" : ": the same greedy token");
}

Status SpeedRun::CheckBatch(int64_t prefix, int64_t batch) {
  const int64_t before = std::max<int64_t>(0, prefix - 1);
  std::vector<std::vector<float>> together(static_cast<size_t>(batch));
  {
    std::vector<ScopedSequence> sequences;
    for (int64_t b = 0; b < batch; ++b) {
      TALLY_ASSIGN_OR_RETURN(ScopedSequence sequence, ScopedSequence::New(*engine_));
      if (before > 0) TALLY_RETURN_IF_ERROR(Push(sequence.id(), b, before, engine_->max_batch()).status());
      sequences.push_back(std::move(sequence));
    }
    rows_.clear();
    for (int64_t b = 0; b < batch; ++b) {
      rows_.push_back({Token(b, before), sequences[static_cast<size_t>(b)].id(), true, true});
    }
    TALLY_ASSIGN_OR_RETURN(const Mat<const float> logits, engine_->StepAll(rows_));
    for (int64_t b = 0; b < batch; ++b) {
      together[static_cast<size_t>(b)].assign(logits.Row(b), logits.Row(b) + logits.cols);
    }
  }
  for (int64_t b = 0; b < batch; ++b) {
    TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, ScopedSequence::New(*engine_));
    TALLY_ASSIGN_OR_RETURN(const auto alone, Push(sequence.id(), b, before + 1, engine_->max_batch()));
    TALLY_RETURN_IF_ERROR(Compare("sequence " + std::to_string(b) + " in one step with others and alone",
                                  together[static_cast<size_t>(b)], alone, engine_->used_blas())
                              .status());
  }
  return {};
}

Status SpeedRun::Fill(const std::function<void(int64_t)>& on_piece) {
  std::vector<int64_t> depths = options_.depths;
  std::sort(depths.begin(), depths.end());
  int32_t shorter = -1;  // each depth goes on from the one before and shares its memory
  for (const int64_t depth : depths) {
    if (depth == 0 || filled_.contains(depth)) continue;
    TALLY_ASSIGN_OR_RETURN(ScopedSequence sequence,
                           shorter < 0 ? ScopedSequence::New(*engine_) : ScopedSequence::Of(*engine_, shorter, true));
    TALLY_RETURN_IF_ERROR(Push(sequence.id(), 0, depth, engine_->max_batch(), on_piece).status());
    shorter = sequence.id();
    filled_.emplace(depth, std::move(sequence));
  }
  return {};
}

Result<ScopedSequence> SpeedRun::NewAt(int64_t depth, bool shared) {
  return depth == 0 ? ScopedSequence::New(*engine_) : ScopedSequence::Of(*engine_, filled_.at(depth).id(), shared);
}

Result<PrefillSample> SpeedRun::Prefill(int64_t tokens, int64_t depth, MomentaryRoofs* roofs) {
  PrefillSample sample;
  TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, NewAt(depth, true));
  engine_->ledger().Reset();
  if (roofs != nullptr) sample.before = roofs->Peaks();
  const double begin = MonotonicSeconds();
  TALLY_RETURN_IF_ERROR(Push(sequence.id(), 0, depth + tokens, engine_->max_batch()).status());
  sample.seconds = MonotonicSeconds() - begin;
  if (roofs != nullptr) sample.after = roofs->Peaks();
  const Account total = engine_->ledger().total(Phase::kPrefill);
  sample.by_type = AttentionByType(total.useful, total.executed);
  for (int a = 0; a < kAriths; ++a) {
    sample.by_type[static_cast<size_t>(a)] += static_cast<double>(total.useful.Flops(WorkClass::kLinear, static_cast<Arith>(a)));
  }
  sample.flops = static_cast<double>(total.useful.Flops(WorkClass::kLinear) + total.useful.Flops(WorkClass::kAttention));
  for (const ExpertUses& layer : engine_->ledger().expert_uses(Phase::kPrefill)) sample.experts += layer;
  sample.disk_bytes = static_cast<double>(total.useful.Bytes(ByteKind::kWeightsDisk));
  return sample;
}

void SpeedRun::TimeSampling(const Mat<const float>& logits, DecodeSample& sample) {
  const double begin = MonotonicSeconds();
  for (int64_t r = 0; r < logits.rows; ++r) {
    chosen_ ^= static_cast<uint32_t>(sampler_.Sample({logits.Row(r), static_cast<size_t>(logits.cols)}, {}));
  }
  const double middle = MonotonicSeconds();
  for (int64_t r = 0; r < logits.rows; ++r) chosen_ ^= Best(logits, r);
  sample.sampled_seconds += middle - begin;
  sample.greedy_seconds += MonotonicSeconds() - middle;
}

Result<DecodeSample> SpeedRun::Decode(int64_t steps, int64_t depth, int64_t batch, MomentaryRoofs* roofs) {
  DecodeSample sample;
  std::vector<ScopedSequence> sequences;
  for (int64_t b = 0; b < batch; ++b) {  // only the first shares: what several read must be in memory several times
    TALLY_ASSIGN_OR_RETURN(ScopedSequence sequence, NewAt(depth, b == 0));
    sequences.push_back(std::move(sequence));
  }
  engine_->ledger().Reset();
  double bandwidth = roofs != nullptr ? roofs->Bandwidth() : 0;
  sample.least_bandwidth = std::numeric_limits<double>::infinity();
  const int64_t pieces = std::min(MomentaryRoofs::kPieces, steps);
  int64_t step = 0;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    Mat<const float> logits;
    const double begin = MonotonicSeconds();
    for (; step < steps * (piece + 1) / pieces; ++step) {
      TALLY_RETURN_IF_ERROR(Poll());
      rows_.clear();
      for (int64_t b = 0; b < batch; ++b) {
        rows_.push_back({Token(b + 1, depth + step), sequences[static_cast<size_t>(b)].id(), true, true});
      }
      TALLY_ASSIGN_OR_RETURN(logits, engine_->StepAll(rows_));
      for (int64_t b = 0; b < batch; ++b) chosen_ ^= Best(logits, b);
    }
    const double seconds = MonotonicSeconds() - begin;
    sample.seconds += seconds;
    TimeSampling(logits, sample);
    if (roofs == nullptr) continue;
    const double after = roofs->Bandwidth(), during = (bandwidth + after) / 2;
    sample.readable += seconds * during;
    sample.least_bandwidth = std::min(sample.least_bandwidth, during);
    sample.most_bandwidth = std::max(sample.most_bandwidth, during);
    bandwidth = after;
  }
  const Cost& useful = engine_->ledger().total(Phase::kDecode).useful;
  sample.bytes = StepBytes(useful);
  sample.disk_bytes = static_cast<double>(useful.Bytes(ByteKind::kWeightsDisk));
  for (const ExpertUses& layer : engine_->ledger().expert_uses(Phase::kDecode)) sample.experts += layer;
  const double sampled = static_cast<double>(pieces * batch);
  sample.sampled_seconds /= sampled;
  sample.greedy_seconds /= sampled;
  return sample;
}

}  // namespace tally
