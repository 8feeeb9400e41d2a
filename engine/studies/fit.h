// SPDX-License-Identifier: Apache-2.0
// Whether a model fits a machine, and the speed that it cannot exceed there. No weights are read: memory is what LoadModel plans,
// bytes and FLOPs are the closed forms of count.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/books/communication.h"
#include "engine/base/export.h"
#include "engine/base/kinds.h"
#include "engine/base/status.h"
#include "engine/session/model.h"
#include "engine/studies/count.h"
#include "engine/studies/speed.h"

namespace tally {

// The arithmetic of a matrix product. kNarrow: int8 products with weights of 4 bits, small enough to be summed in
// 16 bits (ArithmeticPeaks::int8_narrow).
enum class FitUnit : uint8_t { kF32, kBF16, kInt8, kNarrow };
inline constexpr int kFitUnits = 4;
inline constexpr std::array<std::string_view, kFitUnits> kFitUnitNames = {"f32", "bf16", "int8",
                                                                          "int8"};  // as ParseMachine takes them

// The least and the best of the moments in which a rate was measured; 0: unknown.
struct RateRange {
  double low = 0, high = 0;
};

// The disk that weights are streamed from where they do not fit the memory.
enum class DiskSource : uint8_t { kAssumed, kGiven, kMeasured };
inline constexpr double kAssumedDisk = 3e9;  // bytes/s: an NVMe disk of PCIe 3, as laptops have them
struct FitDisk {
  double read = kAssumedDisk;  // bytes/s, sequential, past the page cache
  DiskSource source{};
  // Of a measured one: O_DIRECT is refused there; it was measured on a file that was made for it.
  bool refused_direct = false, written = false;
  std::string where = {};  // the file or directory
};

// What a machine has, and what it does in a second; 0: unknown. Rates are sustained ones: the median of the measurements, or what a whole
// run reached, if that is more.
struct FitMachine {
  std::string target = {};            // instruction set of the kernels; empty: not measured, but described
  int threads = 0;                    // which share the kernels' scratch and the peaks
  bool threads_assumed = false;       // of a machine that is described without them
  uint64_t total = 0, available = 0;  // bytes of memory; those that can be had now
  double read = 0;                    // bytes
  uint64_t caches = 0;                // bytes of all caches of data; 0: unknown
  std::array<double, kFitUnits> peaks = {};
  RateRange read_range = {};
  std::array<RateRange, kFitUnits> peak_ranges = {};
  bool bf16_dots = true;  // false: there is no bf16 dot product, and BF16 is multiplied in f32
  bool int8_dots = true;  // false: there is no dot product of bytes; kInt8 is then the peak of the instructions in its place
  FitDisk disk = {};
};

// "ram=16GiB,read=50GB/s,disk=3GB/s,int8=1T,bf16=500G,f32=250G,threads=8", in any order, each at most once. Sizes and rates are numbers
// with K, M, G or T (1000), or Ki, Mi, Gi or Ti (1024); "B", "/s" and "OP/s", "FLOP/s" may follow; less than 1e5 is refused, as it lacks
// its unit.
// bf16=none, int8dot=none: no such dot product. What is not given stays unknown; threads are assumed to be 8 then. kBadInput names the
// part that is wrong.
TALLY_API Result<FitMachine> ParseMachine(std::string_view text);

// This machine on `threads` threads (as EngineOptions::threads): memory as it is now, rates as measured in about two seconds. They are
// kept in `directory` ("": nowhere) for this boot, number of threads and instruction set, with the range of all moments that were
// measured, KeepBestRates included. A kept file that is damaged, of another boot or without ranges is measured anew and replaced.
// `anew`: the rates are those of now, replace those kept and widen the kept range.
TALLY_API Result<FitMachine> MeasureMachine(const std::string& directory, int threads, bool anew = false);
// What MeasureMachine has kept in `directory` for this boot, this number of threads (at least 1) and instruction set; nullopt: nothing
// valid. Measures nothing.
TALLY_API std::optional<FitMachine> FindMachine(const std::string& directory, int threads);
// Raises the range that MeasureMachine keeps to the best moments of a measurement of speed (SpeedReport::best), and its rates to those
// that the decodes and prefills reached themselves (medians), so that no measured speed exceeds the bounds computed from them. A decode
// counts if a step reads more than the caches hold. Nothing happens where nothing can be kept.
TALLY_API void KeepBestRates(const std::string& directory, const SpeedReport& report);
// The same of a run's decode, if rates are kept.
TALLY_API void KeepBestRates(const std::string& directory, const books::RunFigures& run);

// "3GB/s". kBadInput: it is no rate.
TALLY_API Result<FitDisk> ParseDisk(std::string_view text);
// The rate of the disk under `path`, a file (of weights, 64 MB or more) or a directory; of a path that does not exist the next directory
// above. It takes a second or two, and is kept in `directory` ("": nowhere) for this boot and file system. `anew`: measured again.
TALLY_API Result<FitDisk> MeasureFitDisk(const std::string& directory, const std::string& path, bool anew = false);

struct FitOptions {
  uint64_t context = 0;  // positions of each sequence; 0: as EngineOptions::context
  uint64_t prompt = 0;   // positions of a prefill; 0: 512, or the context where that is less
  uint64_t batch = 1;    // sequences
  KvType kv = KvType::kF16;
};

// The part of the int8 peak that products with weights of `type` can reach. A block of 32 columns takes 8 dot products of 4 and
// s = WeightFormat::scaling_multiplies() multiplies that apply its scales and minima. They run on the same units, so the part is
// 8 / (8 + s): MXFP4 8/9, Q8_0, Q4_0 and Q8_K .80, with a minimum (Q4_K, Q5_K) 8/11, with scales of 16 columns (Q6_K, Q3_K) 8/12, with
// both (Q2_K) 8/14. 1 for types that are not multiplied in int8.
//
// `tiles`: of the peak of matrix tiles (AMX). There 32 columns of 16 x 16 outputs would take 8 cycles, and s multiplies and a conversion of
// 16 vectors take one each, since the tiles take the other unit meanwhile: 8 / (16 + 16 s). Types with scales of 16 columns are multiplied
// by vectors all the same, whose peak is an eighth: 1 / (8 + s).
TALLY_API double PartOfInt8Peak(DType type, bool tiles = false);

// The least time of a step: that of reading its bytes, or that of its products, whichever is more.
struct StepBound {
  uint64_t tokens = 0;                       // of all sequences
  double bytes = 0;                          // of weights, experts chosen uniformly, and of KV read and written
  std::array<double, kFitUnits> flops = {};  // of the matrix products and of attention
  double reading = 0, computing = 0;         // seconds; 0: unknown
  double at_peaks = 0;                       // seconds that the FLOPs take at the peaks; computing: at PartOfInt8Peak of them
  std::string missing = {};                  // what the machine does not say: "read", "int8 and f32"; empty: nothing
  double tokens_per_second = 0;              // 0: unknown
  bool cached = false;                       // the bytes may lie in the machine's caches, so that `reading` is no bound
  bool tripled_attention = false;            // attention over f16 on matrix tiles: three products for one
  bool reads_longer() const { return !cached && reading >= computing; }
};

struct Fit {
  uint64_t context = 0, prompt = 0;   // with the defaults filled in
  MemoryPlan memory = {};             // at this context; `available` is the machine's
  std::optional<bool> fits = {};      // none: the machine's memory is unknown
  uint64_t longest = 0, trained = 0;  // the longest context that fits, at most the trained one (or the one asked for, if longer)
  StepBound prefill = {};             // all prompts, with the logits of each last row
  StepBound decode = {};              // one token of each sequence, which sees `context` positions
};

// Of the model with the weights that it is counted with. kBadInput: a batch of 0, a context beyond learned positions, a model or a type
// that cannot be run, counts that do not fit 64 bits.
TALLY_API Result<Fit> FitModel(const CountedModel& model, const FitOptions& options, const FitMachine& machine);
// The bounds alone, of other steps than those of a fit: a prefill of `prompt`, and a decode of `context` positions.
TALLY_API Result<Fit> BoundModel(const CountedModel& model, const FitOptions& options, const FitMachine& machine);

// ---- over several machines, a rank on each (docs/mpi.md)

// The network between them.
struct FitNetwork {
  double bandwidth = 1.25e9;  // bytes that a machine sends, and receives, in a second
  double latency = 30e-6;     // seconds until a gather begins to come in
};
// "10Gbit", "10Gbit/s" or "1.25GB/s"; 0: it is neither.
TALLY_API double ParseBandwidth(std::string_view text);
// "30us", "0.5ms"; negative: it is none.
TALLY_API double ParseLatency(std::string_view text);

// How a model is divided. kRows: every matrix by rows of its output. kExperts: experts by owner, all else on every rank.
enum class FitSplit : uint8_t { kRows, kExperts };
inline constexpr std::array<std::string_view, 2> kFitSplitNames = {"rows", "experts"};

// What ranks wait for in a step. waits: gathers, and the messages that keep the ranks in step. bytes: of each of these, those of the rank
// that sends or receives most.
struct CommunicationLoad {
  uint64_t waits = 0, bytes = 0;
  double Seconds(const FitNetwork& n) const {
    return static_cast<double>(waits) * n.latency + static_cast<double>(bytes) / n.bandwidth;
  }
};
TALLY_API CommunicationLoad LoadOf(const Recipe& recipe, const Shard& shard, const books::Workload& work,
                                   std::span<const books::RankRows> rows, const books::GatheredBytesOf& gathered = {});

struct FitRank {
  MemoryPlan memory = {};
  double bytes = 0;                         // that a decode step reads of weights, KV and states; of experts: the busiest rank's
  books::Communication communication = {};  // of a decode step; the first rank has the embedding
};
struct RanksFit {
  FitSplit split{};
  std::vector<FitRank> ranks = {};
  size_t largest = 0;  // the rank that needs most memory
  bool fits = true;    // every rank; or the machine's memory is not known
  // A decode step, in seconds. It reads or computes, then communicates. 0: unknown.
  double working = 0, communicating = 0;
  CommunicationLoad load = {};
  uint64_t gathers = 0;
  double tokens_per_second = 0;
};
// kBadInput: as FitModel; ranks below 1; experts by owner of a model without.
TALLY_API Result<RanksFit> FitRanks(const CountedModel& model, const FitOptions& options, const FitMachine& machine,
                                    const FitNetwork& network, int32_t ranks, FitSplit split);
// The faster of those that fit; if none does, kRows.
TALLY_API Result<RanksFit> FitRanks(const CountedModel& model, const FitOptions& options, const FitMachine& machine,
                                    const FitNetwork& network, int32_t ranks);
// How many of the `top_k` experts of a token the rank that owns most of them owns: the mean over all choices of top_k out of `experts`,
// each equally likely.
TALLY_API double BusiestOwner(int64_t experts, int64_t top_k, int32_t ranks);

// The same model with its weights as `type`. kBadInput: a type for experts only (formats.inc), and the model has none.
TALLY_API Result<CountedModel> CountedAs(const CountedModel& model, DType type);
// The same as Quantize would make it, by a preset's own name ("Q4_K_M"), where MXFP4 experts stay; or all matrices in a weight type
// ("Q4_K"). In any case.
// kBadInput: no such name.
TALLY_API Result<CountedModel> CountedAs(const CountedModel& model, std::string_view type);

// The presets that people run models at, from large to small, without those that give what the model has, or that are no smaller
// than one before (rows that are no whole blocks of 256 get larger types).
TALLY_API std::vector<std::string_view> FitPresets(const CountedModel& model);
// The preset that gives the matrices of a checkpoint the types they have ("Q4_K_M"); "": none.
TALLY_API std::string_view PresetOf(const CountedModel& model);

}  // namespace tally
