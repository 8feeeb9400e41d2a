// SPDX-License-Identifier: Apache-2.0
// What fits: memory against what loading plans, bounds against numbers by hand, machines in words and measured.
#include "engine/studies/fit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/kernels/op.h"
#include "engine/machine/kept_file.h"
#include "engine/session/model.h"
#include "engine/studies/quantize.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

CountedModel MustCount(const std::string& name) {
  Result<CountedModel> counted = CountModel({.model = name, .settings = {}, .options = {}});
  EXPECT_TRUE(counted.ok()) << counted.status().message();
  return counted.ok() ? std::move(counted).value() : CountedModel{};
}

CountedModel As(const CountedModel& model, DType type) {
  Result<CountedModel> as = CountedAs(model, type);
  EXPECT_TRUE(as.ok()) << as.status().message();
  return as.ok() ? std::move(as).value() : CountedModel{};
}

Fit MustFit(const CountedModel& model, const FitOptions& options, const FitMachine& machine) {
  const Result<Fit> fit = FitModel(model, options, machine);
  EXPECT_TRUE(fit.ok()) << fit.status().message();
  return fit.ok() ? *fit : Fit{};
}

double Unit(const StepBound& b, FitUnit unit) { return b.flops[static_cast<size_t>(unit)]; }

// mini-gpt: V = E = H D = 64, F = 256, 2 layers, tied, LayerNorm and feed-forward with biases: 2 (4 E^2 + 2 E F) + V E = 102,400
// elements of matrices, 1,280 of vectors.
TEST(Fit, NumbersByHand) {
  const CountedModel f32 = As(MustCount("mini-gpt"), DType::kF32);
  FitMachine machine{.threads = 1, .read = 1e9, .peaks = {1e9, 2e9, 4e9, 4e9}};
  const FitOptions options{.context = 33, .prompt = 8};
  const Fit fit = MustFit(f32, options, machine);
  // Decode: all parameters once, 33 positions of 2 x 2 x 64 f16 read and one written; 2 FLOPs an element of a matrix, 4 x 64 a
  // position and layer.
  EXPECT_EQ(fit.decode.bytes, 4 * 103'680 + 33 * 512 + 512);
  EXPECT_EQ(Unit(fit.decode, FitUnit::kF32), 2 * 102'400 + 2 * 33 * 256);
  EXPECT_EQ(Unit(fit.decode, FitUnit::kBF16) + Unit(fit.decode, FitUnit::kInt8) + Unit(fit.decode, FitUnit::kNarrow), 0);
  EXPECT_TRUE(fit.decode.reads_longer());
  EXPECT_DOUBLE_EQ(fit.decode.tokens_per_second, 1e9 / 432'128);
  // Prefill of 8: the head of the last row, 8 x 9 / 2 positions seen.
  EXPECT_EQ(fit.prefill.bytes, 4 * 103'680 + 8 * 512);
  EXPECT_EQ(Unit(fit.prefill, FitUnit::kF32), 8 * 2 * 98'304 + 2 * 4'096 + 2 * 36 * 256);
  EXPECT_FALSE(fit.prefill.reads_longer());
  EXPECT_DOUBLE_EQ(fit.prefill.tokens_per_second, 8 * 1e9 / 1'599'488);
  EXPECT_FALSE(fit.fits.has_value()) << "the machine's memory is unknown";

  // bf16 products at 2 G, attention in f32 at 1 G.
  const CountedModel bf16 = As(f32, DType::kBF16);
  const Fit half = MustFit(bf16, options, machine);
  EXPECT_EQ(half.decode.bytes, 2 * 103'680 + 33 * 512 + 512);
  EXPECT_EQ(Unit(half.prefill, FitUnit::kBF16), 1'581'056);
  EXPECT_EQ(Unit(half.prefill, FitUnit::kF32), 18'432);
  EXPECT_DOUBLE_EQ(half.prefill.computing, 1'581'056 / 2e9 + 18'432 / 1e9);
  machine.bf16_dots = false;  // then all of it is f32's
  EXPECT_DOUBLE_EQ(MustFit(bf16, options, machine).prefill.computing, 1'599'488 / 1e9);

  // Q8_0: 34 bytes for 32 elements of a matrix, vectors f32. A cache of q8_0: a scale of 2 bytes for each head's 16 elements; q.k in
  // int8, p.v in bf16.
  const Fit q8 = MustFit(As(f32, DType::kQ8_0), {.context = 33, .prompt = 8, .kv = KvType::kQ8_0}, machine);
  EXPECT_EQ(q8.decode.bytes, 102'400 / 32 * 34 + 4 * 1'280 + 34 * 2 * (128 + 16));
  EXPECT_EQ(Unit(q8.decode, FitUnit::kInt8), 204'800 + 8'448);
  EXPECT_EQ(Unit(q8.decode, FitUnit::kBF16), 8'448);

  // Four sequences read the weights once.
  const Fit four = MustFit(f32, {.context = 33, .prompt = 8, .batch = 4}, machine);
  EXPECT_EQ(four.decode.bytes, 4 * 103'680 + 4 * 34 * 512);
  EXPECT_EQ(four.decode.tokens, 4u);
  EXPECT_DOUBLE_EQ(four.decode.tokens_per_second, 4 / std::max(four.decode.bytes / 1e9, 4 * (204'800 + 16'896) / 1e9));
}

// A block of 32 columns has 8 dot products; the multiplies that apply its scales and minima take their units (fit.h).
TEST(Fit, ScalesOfBlocksTakePartOfThePeak) {
  const std::pair<DType, double> parts[] = {{DType::kQ8_0, 8. / 10},   {DType::kQ4_0, 8. / 10}, {DType::kQ8_K, 8. / 10},
                                            {DType::kIQ4_XS, 8. / 10}, {DType::kMXFP4, 8. / 9}, {DType::kQ4_1, 8. / 11},
                                            {DType::kQ4_K, 8. / 11},   {DType::kQ5_K, 8. / 11}, {DType::kQ6_K, 8. / 12},
                                            {DType::kQ3_K, 8. / 12},   {DType::kQ2_K, 8. / 14}, {DType::kBF16, 1},
                                            {DType::kF32, 1},          {DType::kFP8, 1}};
  for (const auto& [type, part] : parts) EXPECT_DOUBLE_EQ(PartOfInt8Peak(type), part) << DTypeName(type);

  const CountedModel f32 = As(MustCount("mini-gpt"), DType::kF32);
  FitMachine machine{.threads = 1, .read = 1e15, .peaks = {1e9, 2e9, 4e9, 4e9}};
  const FitOptions options{.context = 33, .prompt = 8};
  StepBound q8 = MustFit(As(f32, DType::kQ8_0), options, machine).prefill;
  EXPECT_DOUBLE_EQ(q8.at_peaks, 1'581'056 / 4e9 + 18'432 / 1e9);
  EXPECT_DOUBLE_EQ(q8.computing, 1.25 * 1'581'056 / 4e9 + 18'432 / 1e9);
  EXPECT_DOUBLE_EQ(q8.tokens_per_second, 8 / q8.computing);
  machine.int8_dots = false;  // another instruction's peak, of which nothing is known
  q8 = MustFit(As(f32, DType::kQ8_0), options, machine).prefill;
  EXPECT_DOUBLE_EQ(q8.computing, q8.at_peaks);

  // Of a mixed model each matrix by its FLOPs: of two layers the first's feed-forward in Q6_K, all else in Q8_0.
  machine.int8_dots = true;
  CountedModel mixed = As(f32, DType::kQ8_0);
  for (const books::ParameterForm& p : mixed.count.tensors) {
    if (p.layer == 0 && (p.name == "ffn_up" || p.name == "ffn_down")) mixed.stored_types[p.full_name()] = DType::kQ6_K;
  }
  const double ffn = 8.0 * 2 * (2 * 64 * 256), others = 1'581'056 - ffn;
  const Result<Fit> both = BoundModel(mixed, options, machine);
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_NEAR(both->prefill.computing, (1.25 * others + 1.5 * ffn) / 4e9 + 18'432 / 1e9, 1e-15);
}

// Of 32 columns a matrix tile has 16 x 16 sums after 8 cycles' worth of its peak, and each of their 16 vectors takes a conversion and the
// multiplies that scale it. Formats with two sums in 32 columns are multiplied by vectors.
TEST(Fit, ScalesOfBlocksTakeMostOfThePeakOfTiles) {
  const std::pair<DType, double> parts[] = {{DType::kQ8_0, 1. / 6}, {DType::kQ4_0, 1. / 6},  {DType::kMXFP4, 1. / 4},
                                            {DType::kQ4_K, 1. / 8}, {DType::kQ6_K, 1. / 12}, {DType::kQ2_K, 1. / 14},
                                            {DType::kBF16, 1}};
  for (const auto& [type, part] : parts) EXPECT_DOUBLE_EQ(PartOfInt8Peak(type, /*tiles=*/true), part) << DTypeName(type);

  const CountedModel q8 = As(MustCount("mini-gpt"), DType::kQ8_0);
  const FitMachine machine{.target = "AMX", .threads = 1, .read = 1e15, .peaks = {1e9, 2e9, 4e9, 4e9}};
  StepBound bound = MustFit(q8, {.context = 33, .prompt = 8}, machine).prefill;
  EXPECT_DOUBLE_EQ(bound.computing, 6 * 1'581'056 / 4e9 + 3 * 18'432 / 2e9) << "attention over f16: three products for one";
  EXPECT_TRUE(bound.tripled_attention);
  bound = MustFit(q8, {.context = 33, .prompt = 8, .kv = KvType::kBF16}, machine).prefill;
  EXPECT_DOUBLE_EQ(bound.computing, 6 * 1'581'056 / 4e9 + 18'432 / 2e9);
  EXPECT_FALSE(bound.tripled_attention);
}

// What the caches hold is not bound by the memory.
TEST(Fit, CachesHoldASmallModel) {
  const CountedModel f32 = As(MustCount("mini-gpt"), DType::kF32);
  FitMachine machine{.threads = 1, .read = 1e6, .caches = 432'127, .peaks = {1e9, 2e9, 4e9, 4e9}};
  const FitOptions options{.context = 33, .prompt = 8};
  EXPECT_DOUBLE_EQ(MustFit(f32, options, machine).decode.tokens_per_second, 1e6 / 432'128);
  ++machine.caches;
  const StepBound decode = MustFit(f32, options, machine).decode;
  EXPECT_TRUE(decode.cached);
  EXPECT_DOUBLE_EQ(decode.tokens_per_second, 1e9 / (204'800 + 16'896));
}

// Of experts a step of one token reads top_k, and of an untied embedding one row.
TEST(Fit, ExpertsAsCountHasThem) {
  const CountedModel model = MustCount("gpt-oss-20b");
  const Fit fit = MustFit(model, {.context = 4096}, {.threads = 2, .read = 40e9, .peaks = {1e11, 1e12, 1e12, 1e12}});
  // Windows of 128 in every second layer; 2,048 bytes a layer and position.
  const double kv = 2'048.0 * (12 * 4096 + 12 * 128 + 24);
  EXPECT_EQ(fit.decode.bytes, 3'708'089'088 + kv);
  EXPECT_NEAR(fit.decode.tokens_per_second, 40e9 / (3'708'089'088 + kv), 1e-9);
  const double products =
      Unit(fit.decode, FitUnit::kBF16) + Unit(fit.decode, FitUnit::kInt8) + Unit(fit.decode, FitUnit::kNarrow);
  EXPECT_NEAR(products, 7'209'861'120, 1) << "class linear, as the README's run was charged";
  EXPECT_EQ(Unit(fit.decode, FitUnit::kF32), 12.0 * (4096 + 128) * 4 * 64 * 64);
}

TEST(Fit, WhatTheMachineDoesNotSay) {
  const CountedModel q8 = As(MustCount("mini-gpt"), DType::kQ8_0);
  Fit fit = MustFit(q8, {}, {.threads = 1, .read = 1e9});
  EXPECT_EQ(fit.decode.missing, "f32 and int8");
  EXPECT_DOUBLE_EQ(fit.decode.tokens_per_second, 1e9 / fit.decode.bytes) << "a bound by memory alone";
  EXPECT_EQ(fit.prefill.tokens_per_second, 0);
  fit = MustFit(q8, {}, {.threads = 1, .peaks = {1e9, 0, 1e9, 1e9}});
  EXPECT_EQ(fit.prefill.missing, "read");
  EXPECT_GT(fit.prefill.computing, 0);
  EXPECT_EQ(fit.prefill.tokens_per_second, 0);
}

TEST(Fit, FitsToTheByte) {
  const CountedModel model = MustCount("llama-3.2-1b");
  FitMachine machine{.threads = 2, .total = uint64_t{1} << 40, .available = uint64_t{1} << 40};
  const FitOptions options{.context = 1000};
  Fit fit = MustFit(model, options, machine);
  EXPECT_EQ(fit.fits, true);
  EXPECT_EQ(fit.longest, fit.trained);
  machine.available = fit.memory.total();
  fit = MustFit(model, options, machine);
  EXPECT_EQ(fit.fits, true);
  EXPECT_GE(fit.longest, 1000u);
  EXPECT_LT(fit.longest, 2000u);
  --machine.available;
  fit = MustFit(model, options, machine);
  EXPECT_EQ(fit.fits, false);
  EXPECT_LT(fit.longest, 1000u);
  machine.available = 1000;
  EXPECT_EQ(MustFit(model, options, machine).longest, 0u);
}

TEST(Fit, RefusesWhatCannotBe) {
  const CountedModel gpt2 = MustCount("gpt2");
  EXPECT_EQ(FitModel(gpt2, {.context = 2000}, {}).status().code(), StatusCode::kBadInput);  // learned positions
  EXPECT_EQ(FitModel(gpt2, {.batch = 0}, {}).status().code(), StatusCode::kBadInput);
  EXPECT_EQ(CountedAs(gpt2, DType::kMXFP4).status().code(), StatusCode::kBadInput);
  EXPECT_EQ(CountedAs(gpt2, "Q9_X").status().code(), StatusCode::kBadInput);
}

TEST(Fit, PresetsAsPeopleNameThem) {
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(FitPresets(MustCount("llama-3.2-1b")), Names({"Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M"}));  // published as BF16
  EXPECT_EQ(FitPresets(MustCount("gpt-oss-20b")), Names({"Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M"}));   // experts stay MXFP4
  const CountedModel model = MustCount("llama-3.2-1b");
  const Result<CountedModel> q4 = CountedAs(model, "q4_k_m");
  ASSERT_TRUE(q4.ok()) << q4.status().message();
  EXPECT_EQ(q4->stored_as, "Q4_K_M");
  EXPECT_EQ(PresetOf(*q4), "Q4_K_M");
  for (const char* type : {"q3_k", "Q4_K", "Q5_K"}) {  // types as count takes them, no presets
    const Result<CountedModel> as = CountedAs(model, type);
    ASSERT_TRUE(as.ok()) << as.status().message();
    EXPECT_EQ(as->count.weight_bytes, As(model, ParseWeightType(type).value()).count.weight_bytes);
    EXPECT_NE(as->count.weight_bytes, CountedAs(model, std::string(type) + "_M")->count.weight_bytes);
  }
  EXPECT_EQ(q4->stored_types.at("token_embd"), DType::kQ6_K);  // it is the head too
  EXPECT_EQ(q4->stored_types.at("blk.0.attn_v"), DType::kQ6_K);
  EXPECT_EQ(q4->stored_types.at("blk.2.attn_v"), DType::kQ4_K);
  EXPECT_EQ(q4->stored_types.at("blk.0.attn_norm"), DType::kF32);
  EXPECT_EQ(PresetOf(model), "") << "no checkpoint";
}

// Of every GGUF file of the goldens: the types and bytes are those that quantize would write.
TEST(Fit, PresetsAreThoseOfQuantize) {
  int compared = 0;
  for (const auto& entry : fs::recursive_directory_iterator(std::string(TALLY_SOURCE_DIR) + "/tests/goldens")) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string path = entry.path().string();
    const auto counted = CountModel({.model = path, .settings = {}, .options = {}});
    if (!counted.ok() || !counted->not_run.empty()) continue;
    for (const char* preset : {"Q8_0", "Q4_K_M", "Q3_K_M"}) {
      QuantizeOptions options;
      options.type = preset;
      options.requantize = options.dry_run = true;
      const auto quantised = Quantize(path, "/nowhere.gguf", options);
      if (!quantised.ok()) continue;
      SCOPED_TRACE(path + " as " + preset);
      const auto as = CountedAs(*counted, preset);
      ASSERT_TRUE(as.ok()) << as.status().message();
      uint64_t bytes = 0;
      for (const auto& [type, of] : quantised->types) bytes += type == DType::kF32 ? 0 : of.bytes;
      uint64_t of_types = 0;
      for (const books::ParameterForm& p : as->count.tensors) {
        const DType type = as->stored_types.at(p.full_name());
        of_types += type == DType::kF32 ? 0 : books::StoredBytesAs(p, type);
      }
      EXPECT_EQ(of_types, bytes);
      ++compared;
    }
  }
  EXPECT_GT(compared, 20);
}

// Every checkpoint of the goldens, of all families: memory is what loading it plans.
TEST(Fit, MemoryIsWhatLoadingPlans) {
  int compared = 0;
  for (const auto& entry : fs::recursive_directory_iterator(std::string(TALLY_SOURCE_DIR) + "/tests/goldens")) {
    const bool gguf = entry.path().extension() == ".gguf";
    if (!gguf && entry.path().filename() != "config.json") continue;
    const std::string path = gguf ? entry.path().string() : entry.path().parent_path().string();
    EngineOptions load;
    load.threads = 2;
    load.kv = KvType::kF16;
    const auto loaded = LoadModel(path, load);
    const auto counted = CountModel({.model = path, .settings = {}, .options = {}});
    if (!loaded.ok() || !counted.ok()) continue;
    SCOPED_TRACE(path);
    const MemoryPlan& plan = (*loaded)->memory_plan();
    const Fit fit =
        MustFit(*counted, {.context = static_cast<uint64_t>(plan.context)}, {.threads = 2, .bf16_dots = HwyTargetHasBf16Dot()});
    EXPECT_EQ(fit.memory.packed_weights, plan.packed_weights);
    EXPECT_EQ(fit.memory.kv, plan.kv);
    EXPECT_EQ(fit.memory.scratch, plan.scratch);
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

TEST(Fit, MachineInWords) {
  const auto parsed = ParseMachine("ram=16GiB,read=50GB/s,int8=1T,bf16=500 GFLOP/s, f32=0.25T,threads=6");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->total, uint64_t{16} << 30);
  EXPECT_EQ(parsed->available, parsed->total);
  EXPECT_EQ(parsed->read, 50e9);
  EXPECT_EQ(parsed->peaks, (std::array<double, kFitUnits>{250e9, 500e9, 1e12, 1e12}));
  EXPECT_EQ(parsed->threads, 6);
  EXPECT_EQ(parsed->target, "");
  EXPECT_TRUE(parsed->int8_dots);
  const auto without = ParseMachine("ram=8G,bf16=none,int8dot=none");
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->total, 8'000'000'000u);
  EXPECT_EQ(without->threads, 8);
  EXPECT_FALSE(without->bf16_dots);
  EXPECT_FALSE(without->int8_dots);
  EXPECT_EQ(without->read, 0);
  for (const char* wrong : {"",           "ram",       "ram=",
                            "ram=16GiX",  "ram=-1G",   "ram=0",
                            "ram=1e999G", "ram=nan",   "ram=16G,ram=8G",
                            "ram=16i",    "speed=3",   "threads=0",
                            "threads=2x", "ram=16",    "read=50",
                            "f32=250",    "read=fast", "int8=none",
                            "int8dot=1T", "ram=16G,",  "ram=99999999999T",
                            "=5"}) {
    const auto refused = ParseMachine(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.status().code(), StatusCode::kBadInput) << wrong;
    EXPECT_TRUE(refused.status().message().starts_with("--machine: ")) << refused.status().message();
    EXPECT_EQ(refused.status().message().find('\n'), std::string::npos);
  }
}

std::string TextOf(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// What was measured is taken from the file of this boot, and measured anew where that is anything else.
TEST(Fit, RatesAreKept) {
  const TempFolder folder;
  const std::string directory = folder / "cache/tally";
  const auto measured = MeasureMachine(directory, 1);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_GT(measured->read, 1e8);
  EXPECT_GT(measured->peaks[0], 1e8);
  EXPECT_LE(measured->available, measured->total);
  EXPECT_GT(measured->read_range.low, 0);
  EXPECT_LE(measured->read_range.low, measured->read);
  EXPECT_LE(measured->read, measured->read_range.high);
  EXPECT_LE(measured->peak_ranges[0].low, measured->peaks[0]);
  EXPECT_LE(measured->peaks[0], measured->peak_ranges[0].high);
  if (!fs::exists("/proc/sys/kernel/random/boot_id")) GTEST_SKIP() << "nothing is kept where the boot is unknown";
  ASSERT_FALSE(fs::is_empty(directory));
  const std::string file = fs::directory_iterator(directory)->path().string();
  Json kept = Json::parse(TextOf(file));
  EXPECT_DOUBLE_EQ(kept["read"].get<double>(), measured->read);
  kept["read"] = 123e15;  // no machine's
  const auto write = [&](const std::string& text) { std::ofstream(file, std::ios::trunc) << text; };
  const auto again = [&] {
    const auto machine = MeasureMachine(directory, 1);
    return machine.ok() ? machine->read : -1;
  };
  write(kept.dump());
  EXPECT_EQ(again(), 123e15);
  Json other = kept;
  other["boot"] = "another";
  Json negative = kept;
  negative["f32"] = -1;
  Json old = kept;  // of the best moments alone
  old["tally_machine"] = 2;
  old.erase("read_low");
  for (const std::string& text : {other.dump(), negative.dump(), old.dump(), kept.dump().substr(0, 40)}) {
    write(text);
    const double read = again();
    EXPECT_GT(read, 1e8) << text;
    EXPECT_LT(read, 1e15) << text;
    EXPECT_LT(Json::parse(TextOf(file))["read"].get<double>(), 1e15) << "and replaced";
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), fs::directory_iterator()), 1) << "no drafts are left";
}

// What bench saw in its best moments widens the range that is kept, before and after it is measured, and is no rate that holds.
TEST(Fit, BenchWidensTheRange) {
  if (!fs::exists("/proc/sys/kernel/random/boot_id")) GTEST_SKIP() << "nothing is kept where the boot is unknown";
  const TempFolder folder;
  SpeedReport report;
  report.target = std::string(MeasureMachine("", 1)->target);
  report.best = {{.threads = 1, .bandwidth = 123e15, .peaks = {}}};  // of a bench without a prefill
  KeepBestRates(folder.path(), report);
  EXPECT_FALSE(FindMachine(folder.path(), 1)) << "no rate is known";
  const auto measured = MeasureMachine(folder.path(), 1);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_EQ(measured->read_range.high, 123e15);
  EXPECT_LT(measured->read, 1e15);
  const size_t int8 = static_cast<size_t>(FitUnit::kInt8);
  const double high = 2 * measured->peak_ranges[int8].high;
  report.best = {{.threads = 1, .bandwidth = 1, .peaks = {.f32 = 1, .int8 = high}},
                 {.threads = 2, .bandwidth = 1e17, .peaks = {}}};
  KeepBestRates(folder.path(), report);
  const auto again = MeasureMachine(folder.path(), 1);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->read_range.high, 123e15) << "two threads' are theirs";
  EXPECT_DOUBLE_EQ(again->peak_ranges[int8].high, high);
  EXPECT_DOUBLE_EQ(again->peaks[int8], measured->peaks[int8]) << "kept, not measured again";
  EXPECT_DOUBLE_EQ(again->read, measured->read);
}

// The same machine twice as fast for a moment: the bound is that of the rate that holds, and the range is said.
TEST(Fit, AReachedRateRaisesTheKept) {
  const TempFolder folder;
  const auto now = MeasureMachine(folder.path(), 1);
  ASSERT_TRUE(now.ok()) << now.status().message();
  if (BootId().empty() || now->caches == 0) GTEST_SKIP() << "nothing is kept";
  const auto kept = [&] { return FindMachine(folder.path(), 1); };
  SpeedReport report;
  report.target = now->target;
  report.best = {{.threads = 1, .bandwidth = 1e3, .peaks = {.int8 = 1e3}}};
  books::RunFigures run;
  run.threads = 1;
  run.decode_steps = 10;
  run.generate_seconds = 1e-6;
  run.decode_gigabytes_per_second = 2e7 * static_cast<double>(now->caches) / 1e9;  // two caches a step
  KeepBestRates(folder.path(), report);
  EXPECT_DOUBLE_EQ(kept()->read, now->read);
  KeepBestRates(folder.path(), run);
  EXPECT_DOUBLE_EQ(kept()->read, 2e7 * static_cast<double>(now->caches));
  EXPECT_DOUBLE_EQ(kept()->read_range.low, now->read_range.low);
  const double before = kept()->read;
  run.decode_gigabytes_per_second *= 10;
  run.generate_seconds = 4e-8;  // .8 caches a step
  KeepBestRates(folder.path(), run);
  EXPECT_EQ(kept()->read, before);

  DecodeSpeed decode;
  decode.threads = 1;
  decode.bytes_per_token = 0.6 * static_cast<double>(now->caches);
  decode.rate = {.median = 1e9, .least = 1e9, .most = 1e9};
  PrefillSpeed prefill;
  prefill.threads = 1;
  prefill.flops_by_type[static_cast<size_t>(Arith::kInt8)] = 1;
  prefill.peaks = {.f32 = 1e17, .int8 = 1e16};
  prefill.ratio_of_peak = 2;
  report.decode = {decode};
  report.prefill = {prefill};
  KeepBestRates(folder.path(), report);
  EXPECT_EQ(kept()->read, before) << "of a step that caches can hold";
  EXPECT_DOUBLE_EQ(kept()->peaks[static_cast<size_t>(FitUnit::kInt8)], 2e16);
  EXPECT_EQ(kept()->peaks[static_cast<size_t>(FitUnit::kF32)], now->peaks[0]) << "it did nothing in f32";
  report.decode[0].batch = 2;
  KeepBestRates(folder.path(), report);
  EXPECT_DOUBLE_EQ(kept()->read, std::max(before, 6e8 * static_cast<double>(now->caches)));

  const auto anew = MeasureMachine(folder.path(), 1, true);
  ASSERT_TRUE(anew.ok());
  const size_t int8 = static_cast<size_t>(FitUnit::kInt8);
  EXPECT_LT(anew->peaks[int8], 1e15) << "what it does now";
  EXPECT_LT(anew->peak_ranges[int8].high, 1e15);
  EXPECT_EQ(kept()->peaks[int8], anew->peaks[int8]);
  EXPECT_GE(kept()->peak_ranges[int8].high, 2e16) << "the boot's range stays";
}

}  // namespace
}  // namespace tally
