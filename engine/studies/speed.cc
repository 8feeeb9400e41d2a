#include "engine/studies/speed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/mix.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/machine/machine.h"
#include "engine/machine/roofs.h"
#include "engine/session/scoped_sequence.h"

namespace tally {
namespace {

constexpr int64_t kVerifiedPrefix = 32;
constexpr uint64_t kFewestRoofBytes = uint64_t{64} << 20;

double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  const size_t n = x.size();
  return n == 0 ? 0 : n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

// A sequence, and the logits of its last token.
class Run {
 public:
  static Result<Run> Begin(Engine& engine) {
    TALLY_ASSIGN_OR_RETURN(ScopedSequence sequence, ScopedSequence::New(engine));
    return Run(engine, std::move(sequence));
  }

  // Steps through `tokens` in pieces of at most `piece`.
  Status Push(std::span<const int32_t> tokens, int64_t piece, const SpeedOptions& options, bool generated = false) {
    std::vector<BatchRow> rows;
    while (!tokens.empty()) {
      if (options.interrupted && options.interrupted()) return {StatusCode::kInterrupted, "interrupted"};
      rows.clear();
      for (const int32_t token : tokens.first(std::min(tokens.size(), static_cast<size_t>(piece)))) {
        rows.push_back({token, sequence_.id(), false, generated});
      }
      tokens = tokens.subspan(rows.size());
      rows.back().want_logits = tokens.empty();
      TALLY_ASSIGN_OR_RETURN(last_, engine_->Step(rows));
    }
    return {};
  }
  std::span<const float> last() const { return {last_.Row(0), static_cast<size_t>(last_.cols)}; }

 private:
  Run(Engine& engine, ScopedSequence sequence) : engine_(&engine), sequence_(std::move(sequence)) {}
  Engine* engine_;
  ScopedSequence sequence_;
  Mat<const float> last_;
};

// Engine errors already say so where a logit is not finite; this checks that the two ways of running agree.
Result<std::string> Verify(Engine& engine, std::span<const int32_t> prompt, const SpeedOptions& options) {
  const auto prefix = prompt.first(std::min<size_t>(prompt.size(), kVerifiedPrefix));
  std::vector<float> expected;
  {
    TALLY_ASSIGN_OR_RETURN(Run whole, Run::Begin(engine));
    TALLY_RETURN_IF_ERROR(whole.Push(prefix, engine.max_batch(), options));
    expected.assign(whole.last().begin(), whole.last().end());
  }
  TALLY_ASSIGN_OR_RETURN(Run single, Run::Begin(engine));
  TALLY_RETURN_IF_ERROR(single.Push(prefix, 1, options));
  const std::span<const float> got = single.last();
  const auto finite = [](float x) { return std::isfinite(x); };
  if (!std::all_of(expected.begin(), expected.end(), finite) || !std::all_of(got.begin(), got.end(), finite)) {
    return InternalError("the benchmark's outputs are wrong: logits that are not finite");
  }
  if (std::all_of(expected.begin(), expected.end(), [&](float x) { return x == expected[0]; })) {
    return InternalError("the benchmark's outputs are wrong: all logits are equal");
  }
  const std::string tokens = std::to_string(prefix.size()) + " tokens in one piece and one by one: ";
  if (Argmax(expected) != Argmax(got)) {
    return InternalError("the benchmark's outputs are wrong: " + tokens + "greedy tokens " + std::to_string(Argmax(expected)) +
                         " and " + std::to_string(Argmax(got)));
  }
  const bool same_bits = std::memcmp(expected.data(), got.data(), got.size_bytes()) == 0;
  if (!same_bits && !engine.used_blas()) {
    return InternalError("the benchmark's outputs are wrong: " + tokens + "the logits differ");
  }
  return tokens + (same_bits ? "the same logits, bit for bit" : "the same greedy token");
}

// What the machine allows, measured between the pieces of a run: a shared machine's bandwidth changes by half within seconds.
class Roofs {
 public:
  Roofs(int threads, std::span<const uint8_t> memory, double seconds) : team_(threads), read_(team_, memory), seconds_(seconds) {}

  ArithmeticPeaks Peaks() { return MeasurePeaks(team_, seconds_ / 2); }
  const Status& status() const { return team_.status(); }
  double Bandwidth() { return read_.Measure(seconds_ / kPieces); }
  static constexpr int64_t kPieces = 8;  // of a decode, at most

 private:
  Team team_;
  ReadRoof read_;
  double seconds_;
};

ArithmeticPeaks Mean(const ArithmeticPeaks& a, const ArithmeticPeaks& b) {
  ArithmeticPeaks mean = a;  // with its names: the best instructions of a moment
  mean.f32 = (a.f32 + b.f32) / 2;
  mean.bf16 = (a.bf16 + b.bf16) / 2;
  mean.int8 = (a.int8 + b.int8) / 2;
  mean.int8_narrow = (a.int8_narrow + b.int8_narrow) / 2;
  return mean;
}

double DecodeBytes(Engine& engine) {
  const Cost decode = engine.ledger().total(Phase::kDecode).useful;
  return static_cast<double>(decode.Bytes(ByteKind::kWeightsPacked) + decode.Bytes(ByteKind::kKvRead) +
                             decode.Bytes(ByteKind::kKvWritten));
}

// One prefill and decode, with the roofs between their pieces, and without where `roofs` is null. Fills the FLOPs and bytes of
// the report, which are the same in every repetition.
struct Sample {
  double prefill = 0, decode = 0;  // seconds
  ArithmeticPeaks peaks;           // mean of those before and after the prefill
  double readable = 0;             // bytes that could have been read while the decode ran
};
Result<Sample> RunOnce(Engine& engine, std::span<const int32_t> prompt, const SpeedOptions& options, Roofs* roofs,
                       SpeedReport& report) {
  Sample sample;
  TALLY_ASSIGN_OR_RETURN(Run run, Run::Begin(engine));
  engine.ledger().Reset();
  const ArithmeticPeaks before = roofs != nullptr ? roofs->Peaks() : ArithmeticPeaks{};
  double begin = MonotonicSeconds();
  TALLY_RETURN_IF_ERROR(run.Push(prompt, engine.max_batch(), options));
  sample.prefill = MonotonicSeconds() - begin;
  if (roofs != nullptr) sample.peaks = Mean(before, roofs->Peaks());
  const Cost prefill = engine.ledger().total(Phase::kPrefill).useful;
  report.prefill_flops = 0;
  for (int a = 0; a < kAriths; ++a) {
    report.prefill_flops_by_type[a] = static_cast<double>(prefill.Flops(WorkClass::kLinear, static_cast<Arith>(a)) +
                                                          prefill.Flops(WorkClass::kAttention, static_cast<Arith>(a)));
    report.prefill_flops += report.prefill_flops_by_type[a];
  }
  engine.ledger().Reset();
  double bandwidth = roofs != nullptr ? roofs->Bandwidth() : 0;
  const int64_t pieces = std::min(Roofs::kPieces, options.generate);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t steps = options.generate * (piece + 1) / pieces - options.generate * piece / pieces;
    begin = MonotonicSeconds();
    for (int64_t i = 0; i < steps; ++i) {
      const int32_t next = Argmax(run.last());
      TALLY_RETURN_IF_ERROR(run.Push({&next, 1}, 1, options, /*generated=*/true));
    }
    const double seconds = MonotonicSeconds() - begin;
    sample.decode += seconds;
    if (roofs != nullptr) {
      const double after = roofs->Bandwidth();
      sample.readable += seconds * (bandwidth + after) / 2;
      bandwidth = after;
    }
  }
  report.decode_bytes = DecodeBytes(engine) / static_cast<double>(options.generate);
  return sample;
}

// Whether some products are summed in 16 bits where the machine has no int8 dot product.
bool HasNarrowMatrices(const Model& model) {
  const std::span<const DType> types = model.matrix_types();
  return std::any_of(types.begin(), types.end(), [](DType t) { return FormatOf(t).narrow; });
}

Result<AnonymousMemory> RoofMemory(uint64_t wanted) {
  const uint64_t bytes = std::min(wanted, AvailableMemoryBytes() / 4);
  if (bytes < kFewestRoofBytes) {
    return BadInput("too little memory to measure its bandwidth: " + std::to_string(bytes) + " bytes, at least " +
                    std::to_string(kFewestRoofBytes) + " are needed");
  }
  TALLY_ASSIGN_OR_RETURN(AnonymousMemory memory, AnonymousMemory::Allocate(bytes, true));
  for (size_t i = 0; i < memory.size(); i += 64)
    memory.data()[i] = static_cast<uint8_t>(i >> 6);  // pages of our own, not the zero page
  return memory;
}

}  // namespace

Result<SpeedReport> MeasureSpeed(Engine& engine, const SpeedOptions& options) {
  const int64_t context = engine.context();
  if (options.prompt < 1 || options.generate < 1 || options.repetitions < 1) {
    return BadInput("a benchmark needs at least one prompt token, one generated token and one repetition");
  }
  if (!(options.roof_seconds > 0 && options.roof_seconds <= 3600)) {
    return BadInput("a roof is measured for more than 0 and at most 3600 seconds, not " + std::to_string(options.roof_seconds));
  }
  if (options.prompt > context || options.generate > context - options.prompt) {
    return BadInput("a prompt of " + std::to_string(options.prompt) + " tokens and " + std::to_string(options.generate) +
                    " generated ones do not fit the context of " + std::to_string(context));
  }
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < options.prompt; ++i) {
    prompt.push_back(static_cast<int32_t>(SplitMix64(options.seed * 0x9e3779b9u + static_cast<uint64_t>(i)) %
                                          static_cast<uint64_t>(engine.model().recipe().vocab)));
  }
  SpeedReport report;
  TALLY_ASSIGN_OR_RETURN(report.verified, Verify(engine, prompt, options));
  TALLY_ASSIGN_OR_RETURN([[maybe_unused]] const Sample warm, RunOnce(engine, prompt, options, nullptr, report));
  report.peak_resident = PeakResidentBytes();

  TALLY_ASSIGN_OR_RETURN(const AnonymousMemory memory, RoofMemory(options.roof_bytes));
  Roofs roofs(engine.threads(), {memory.data(), memory.size()}, options.roof_seconds);
  TALLY_RETURN_IF_ERROR(roofs.status());
  const bool narrow_int8 = HasNarrowMatrices(engine.model());
  std::vector<double> bandwidth, f32, bf16, int8, narrow, prefill, prefill_ratio, decode, decode_ratio;
  for (int32_t i = 0; i < options.repetitions; ++i) {
    if (options.interrupted && options.interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
    TALLY_ASSIGN_OR_RETURN(const Sample sample, RunOnce(engine, prompt, options, &roofs, report));
    const ArithmeticPeaks& peaks = sample.peaks;
    bandwidth.push_back(sample.readable / sample.decode);
    f32.push_back(peaks.f32);
    bf16.push_back(peaks.bf16);
    int8.push_back(peaks.int8);
    narrow.push_back(peaks.int8_narrow);
    report.peaks = peaks;  // for the names of the instructions
    const double by_type[kAriths] = {peaks.f32, peaks.bf16 > 0 ? peaks.bf16 : peaks.f32,
                                     narrow_int8 ? peaks.int8_narrow : peaks.int8};
    double at_peak = 0;
    for (int a = 0; a < kAriths; ++a) at_peak += by_type[a] > 0 ? report.prefill_flops_by_type[a] / by_type[a] : 0;
    prefill.push_back(static_cast<double>(options.prompt) / sample.prefill);
    prefill_ratio.push_back(at_peak / sample.prefill);
    const double generated = static_cast<double>(options.generate);
    decode.push_back(generated / sample.decode);
    decode_ratio.push_back(report.decode_bytes * generated / sample.readable);
  }
  report.bandwidth = Median(std::move(bandwidth));
  report.peaks.f32 = Median(std::move(f32));
  report.peaks.bf16 = Median(std::move(bf16));
  report.peaks.int8 = Median(std::move(int8));
  report.peaks.int8_narrow = Median(std::move(narrow));
  report.prefill_tokens_per_second = Median(std::move(prefill));
  report.prefill_ratio = Median(std::move(prefill_ratio));
  report.decode_tokens_per_second = Median(std::move(decode));
  report.decode_ratio = Median(std::move(decode_ratio));
  return report;
}

}  // namespace tally
