// SPDX-License-Identifier: Apache-2.0
// Models bigger than memory: figures of gpt-oss-120b and Llama-3.1-8B from their published shapes by hand, and what more memory, a
// faster disk and measured hit rates make of them.
#include "engine/studies/streaming_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/recipe/recipe.h"
#include "engine/studies/fit_models.h"
#include "engine/weights/records.h"
#include "loaders/loaders.h"
#include "models/family.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using books::Routing;

CountedModel Counted(const std::string& name, uint64_t batch = 1) {
  Result<CountedModel> counted = CountModel({.model = name, .settings = {}, .options = {.context = 4096, .batch = batch}});
  EXPECT_TRUE(counted.ok()) << counted.status().message();
  return counted.ok() ? std::move(counted).value() : CountedModel{};
}

// gpt-oss-120b: 36 layers of 128 experts, 4 a token; d_model and expert width 2,880, MXFP4 with 17 bytes for 32 elements. A matrix of an
// expert has 2,880 x 90 x 17 = 4,406,400 bytes, in whole pages of 4,096 4,407,296; a record is three of them.
constexpr double kLayers = 36;
constexpr uint64_t kRecord = 13'221'888;
constexpr double kExpertBytes = 3 * 4'406'400.0;

uint64_t Slots(const books::StreamedModel& m, uint64_t n) { return m.held() + 36 * n * kRecord; }

TEST(StreamingForecast, GptOss120bByHand) {
  const CountedModel counted = Counted("gpt-oss-120b");
  const books::StreamedModel m = StreamedModelOf(counted);
  ASSERT_EQ(m.layers.size(), 36u);
  double dense = m.outside_read, experts = 0;
  for (const books::StreamedLayer& l : m.layers) {
    EXPECT_EQ(l.experts, 128);
    EXPECT_EQ(l.top_k, 4);
    EXPECT_EQ(l.record, kRecord);
    EXPECT_DOUBLE_EQ(l.expert_read, kExpertBytes);
    dense += l.dense_read;
    experts += 4 * l.expert_read;
  }
  EXPECT_EQ(m.records(), 60'926'459'904u);
  const Result<Fit> fit = FitModel(counted, {.context = 4096}, {.threads = 2, .read = 60e9});
  ASSERT_TRUE(fit.ok()) << fit.status().message();
  EXPECT_EQ(m.all(), fit->memory.packed_weights);
  EXPECT_NEAR(dense + experts, fit->decode.bytes, 1e-9 * fit->decode.bytes);

  // 32 slots of a layer are a quarter. One record of each layer more, and no byte less, is a slot more.
  EXPECT_EQ(books::ResidencyOf(m, Slots(m, 33) - 1).slots, 32);
  EXPECT_EQ(books::ResidencyOf(m, Slots(m, 33)).slots, 33);
  const books::Residency between = books::ResidencyOf(m, Slots(m, 32) + 2 * kRecord + 5);
  EXPECT_EQ(std::ranges::count(between.slots_of, 33), 2);
  EXPECT_EQ(between.resident, Slots(m, 32) + 2 * kRecord);
  const StreamingForecast f = ForecastStreaming(m, Slots(m, 32), {.memory = 60e9, .disk = 5e9, .row = 10.2e9 / 400e9}, 512);
  EXPECT_EQ(f.at.resident, Slots(m, 32));
  EXPECT_DOUBLE_EQ(f.at.share, .25);

  const double b = 60e9, d = 5e9, one = kRecord / d, resident = 4 * kExpertBytes / b;
  const double miss_of[] = {.75, .307 * .75 * std::pow(.25, -.18), .042 + .13 * std::pow(.4, 1.6)};
  for (const Routing routing : {Routing::kUniform, Routing::kFlat, Routing::kLocal}) {
    const StreamingCurve* const curve = f.Curve(routing);
    ASSERT_NE(curve, nullptr);
    const double p = miss_of[static_cast<size_t>(routing)], q = 1 - p;
    EXPECT_DOUBLE_EQ(curve->hit_rate, 1 - p);
    EXPECT_DOUBLE_EQ(curve->decode.chosen, 144);
    EXPECT_NEAR(curve->decode.misses, 144 * p, 1e-9);
    EXPECT_NEAR(curve->decode.disk_bytes, 144 * p * kRecord, 1);
    EXPECT_NEAR(curve->decode.disk, 144 * p * kRecord / d, 1e-12);
    EXPECT_NEAR(curve->decode.memory, (dense + experts) / b, 1e-12);
    const double bound = dense / b + kLayers * std::max(resident, 4 * p * one);
    EXPECT_NEAR(curve->bound_rate, 1 / bound, 1e-9);
    const double ways[] = {q * q * q * q, 4 * p * q * q * q, 6 * p * p * q * q, 4 * p * p * p * q, p * p * p * p};
    double expected = dense / b;
    for (int i = 0; i <= 4; ++i) expected += kLayers * ways[i] * (std::max(resident, i * one) + (i > 0 ? kExpertBytes / b : 0));
    EXPECT_NEAR(curve->expected_rate, 1 / expected, 1e-9);
    EXPECT_LT(curve->expected_rate, curve->bound_rate);
  }
  // Three quarters of 60.9 GB at 5 GB/s are 9.14 s; a row's products 25.5 ms: 358 rows.
  EXPECT_NEAR(f.prompt.balanced, .75 * 60'926'459'904 / (5e9 * .0255), 1e-9);
  EXPECT_EQ(f.prompt.chunk, 512u);
  EXPECT_NEAR(f.prompt.seconds, 512 * .0255 + m.outside_read / b, 1e-9) << "the products take longer";
  EXPECT_NEAR(f.prompt.cold_seconds, std::max(512 * .0255, 60'926'459'904 / 5e9) + m.outside_read / b, 1e-5)
      << "all but 2 in 10^7 are touched";
}

// streaming.md's prototype: 4 layers of 10 MB beside 128 experts of 13.2 MB, 4 a token, at 10 % resident, 43.3 % missed, on a machine that
// reads 19.7 GB/s from memory and 2.75 from disk; measured 23.7 and 21.7 tokens/s, and 21.7 and 20.4 with 40 MB.
TEST(StreamingForecast, WhatThePrototypeMeasuredIsExpected) {
  books::StreamedModel m;
  m.layers.assign(
      4, {.experts = 128, .top_k = 4, .record = kRecord, .held = 10'000'000, .dense_read = 10e6, .expert_read = kRecord});
  const std::vector<double> misses(4, .433);
  const auto expected = [&] {
    return 1 / books::DecodeStreamed(m, books::ResidencyOf(m, m.held() + 4 * 13 * kRecord), misses,
                                     {.memory = 19.7e9, .disk = 2.75e9})
                   .expected;
  };
  EXPECT_NEAR(expected(), 22.7, .15 * 22.7);
  for (books::StreamedLayer& l : m.layers) l.held = 40'000'000, l.dense_read = 40e6;
  EXPECT_NEAR(expected(), 21.05, .15 * 21.05);
}

TEST(StreamingForecast, MoreMemoryAndAFasterDiskAreNoSlower) {
  for (const char* name : {"gpt-oss-120b", "Qwen3-30B-A3B", "DeepSeek-V2-Lite", "llama-3.1-8b"}) {
    for (const uint64_t batch : {1, 4}) {
      const books::StreamedModel m = StreamedModelOf(Counted(name, batch));
      const uint64_t least = books::ResidencyOf(m, 0).least;
      RateRange before = {};
      for (int i = 0; i <= 20; ++i) {
        SCOPED_TRACE(std::string(name) + " " + std::to_string(i));
        const uint64_t budget = least + (m.all() - least) / 20 * static_cast<uint64_t>(i) + (i == 20 ? 20 : 0);
        double rate = 0;
        RateRange fastest = {};
        for (const double disk : {1e9, 2e9, 5e9, 20e9}) {
          const StreamingForecast f = ForecastStreaming(m, budget, {.memory = 60e9, .disk = disk, .row = .001}, 512);
          ASSERT_TRUE(f.at.enough());
          EXPECT_LE(f.at.resident, budget);
          fastest = f.expected();
          EXPECT_LE(fastest.low, fastest.high);
          EXPECT_LE(fastest.high, f.bound().high * (1 + 1e-12));
          EXPECT_GE(fastest.low, rate);
          rate = fastest.low;
          EXPECT_LE(f.prompt.seconds, f.prompt.cold_seconds);
        }
        EXPECT_GE(fastest.low, before.low * (1 - 1e-12));
        EXPECT_GE(fastest.high, before.high * (1 - 1e-12));
        before = fastest;
        if (i < 20) continue;
        const StreamingForecast all = ForecastStreaming(m, budget, {.memory = 60e9, .disk = 1e9, .row = .001}, 512);
        EXPECT_TRUE(all.at.all_resident);
        EXPECT_EQ(all.at.resident, m.all());
        EXPECT_EQ(all.curves.front().decode.disk_bytes, 0);
        EXPECT_NEAR(all.expected().low, static_cast<double>(batch) * 60e9 / all.curves.front().decode.memory_bytes, 1e-6);
      }
    }
  }
}

TEST(StreamingForecast, LessThanKPlusTwoSlotsIsRefused) {
  const books::StreamedModel m = StreamedModelOf(Counted("gpt-oss-120b"));
  const uint64_t least = Slots(m, 6);
  const StreamingForecast enough = ForecastStreaming(m, least, {.disk = 3e9}, 512),
                          less = ForecastStreaming(m, least - 1, {.disk = 3e9}, 512);
  EXPECT_TRUE(CheckBudget(enough).ok());
  EXPECT_EQ(enough.at.slots, 6);
  EXPECT_TRUE(less.curves.empty());
  const Status refused = CheckBudget(less);
  EXPECT_EQ(refused.code(), StatusCode::kBadInput);
  for (const char* part :
       {"needs at least 6.79 GiB for weights", "6 slots of 12.61 MiB in each of 36 layers", "there are 6.78 GiB"}) {
    EXPECT_NE(refused.message().find(part), std::string::npos) << part << "\n" << refused.message();
  }
  EXPECT_EQ(refused.message().find('\n'), std::string::npos);
}

// Llama-3.1-8B in BF16: a layer has 2 x (2 x 4,096^2 + 2 x 1,024 x 4,096 + 3 x 4,096 x 14,336) bytes of matrices and two norms of 4,096
// f32. Norms stay; layers that do not are read in order, into two buffers.
TEST(StreamingForecast, DenseModelsAreReadLayerByLayer) {
  constexpr uint64_t kLayer = 436'207'616, kOutside = 2 * 2 * 128'256ull * 4'096 + (1 + 2 * 32) * 16'384;
  const books::StreamedModel m = StreamedModelOf(Counted("llama-3.1-8b"));
  EXPECT_EQ(m.outside, kOutside);
  EXPECT_EQ(m.all(), kOutside + 32 * kLayer);
  const StreamingForecast f = ForecastStreaming(m, kOutside + 12 * kLayer + 5, {.memory = 50e9, .disk = 2e9}, 512);
  EXPECT_EQ(f.at.resident_layers, 10);
  EXPECT_EQ(f.at.streamed, 22 * kLayer);
  EXPECT_DOUBLE_EQ(f.expected().low, 2e9 / (22.0 * kLayer));
  EXPECT_EQ(f.expected().low, f.bound().high);
  // The head's matrix takes the time of 2.4 layers: 22 of 34.4 layers are streamed, of which two buffers can be filled then.
  ASSERT_EQ(f.at.streamed_of.size(), 32u);
  EXPECT_EQ(std::ranges::count(f.at.streamed_of, true), 22);
  int64_t apart = 0, most = 0;  // layers that stay, side by side
  for (const bool streamed : f.at.streamed_of) most = std::max(most, apart = streamed ? 0 : apart + 1);
  EXPECT_EQ(most, 1);
  EXPECT_TRUE(f.at.streamed_of[0] && f.at.streamed_of[1]);
  const uint64_t least = kOutside + 2 * kLayer;
  EXPECT_TRUE(CheckBudget(ForecastStreaming(m, least, {}, 512)).ok());
  const Status refused = CheckBudget(ForecastStreaming(m, least - 1, {}, 512));
  EXPECT_NE(refused.message().find("needs at least 2.78 GiB for weights"), std::string::npos) << refused.message();
}

// Mixers with states, latent attention, dense layers first, and files of all families with experts: bytes are those of fit, records those
// that loading makes.
TEST(StreamingForecast, BytesAreThoseOfFitAndOfLoading) {
  for (const char* name : {"Qwen3-Next-80B-A3B", "DeepSeek-V3", "granite-4.0-h-small", "gemma-3-4b", "OLMoE-1B-7B"}) {
    const std::string_view known = KnownModelName(name);
    if (known.empty() || !KnownModelRuns(known)) continue;
    SCOPED_TRACE(name);
    for (const uint64_t batch : {1, 3}) {
      const CountedModel counted = Counted(name, batch);
      const Result<Fit> fit = FitModel(counted, {.context = 4096, .batch = batch}, {.threads = 2, .read = 1e9});
      ASSERT_TRUE(fit.ok()) << fit.status().message();
      const books::StreamedModel m = StreamedModelOf(counted);
      EXPECT_EQ(m.all(), fit->memory.packed_weights);
      const StreamingForecast f = ForecastStreaming(m, m.all(), {.memory = 1e9, .disk = 1e9}, 512);
      EXPECT_NEAR(f.curves.front().decode.memory_bytes, fit->decode.bytes, 1e-9 * fit->decode.bytes);
    }
  }
  int compared = 0;
  for (const auto& entry : fs::recursive_directory_iterator(std::string(TALLY_SOURCE_DIR) + "/tests/goldens")) {
    const bool gguf = entry.path().extension() == ".gguf";
    if (!gguf && entry.path().filename() != "config.json") continue;
    const std::string path = gguf ? entry.path().string() : entry.path().parent_path().string();
    const Result<Inventory> inventory = ReadCheckpoint(path);
    if (!inventory.ok()) continue;
    const Result<ModelSpec> spec = ReadFamily(*inventory);
    const auto counted = CountModel({.model = path, .settings = {}, .options = {}});
    if (!spec.ok() || !counted.ok()) continue;
    const Result<WeightPlan> plan = PlanWeights(*inventory, *spec, 0, {}, {.experts = true});
    if (!plan.ok()) continue;
    SCOPED_TRACE(path);
    const books::StreamedModel m = StreamedModelOf(*counted);
    const std::vector<ExpertRecords> records = ExpertRecordsOf(*plan);
    if (records.empty() || records.back().layer >= static_cast<int32_t>(m.layers.size())) continue;  // of a layer for prediction
    EXPECT_EQ(m.held(), plan->packed_bytes());
    for (const uint64_t part : {3, 7, 9}) {  // tenths of what is beyond the least
      const uint64_t least = books::ResidencyOf(m, 0).least;
      const books::Residency at = books::ResidencyOf(m, least + (m.all() - least) * part / 10);
      std::vector<int64_t> slots = at.slots_of;
      std::erase_if(slots, [](int64_t n) { return n == 0; });
      EXPECT_EQ(slots, SlotsIn(records, at.budget - m.held()));
    }
    for (const ExpertRecords& r : records) {
      const books::StreamedLayer& l = m.layers[static_cast<size_t>(r.layer)];
      EXPECT_EQ(l.record, r.bytes);
      EXPECT_EQ(l.experts, r.experts);
      ++compared;
    }
  }
  EXPECT_GT(compared, 5);
}

TEST(StreamingForecast, MeasuredHitRatesTakeTheCurvesPlace) {
  const TempFolder folder;
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  const CountedModel counted = Counted("gpt-oss-120b");
  const std::string id = RoutingId(counted.count.recipe);
  EXPECT_EQ(id, "gpt-oss-36-2880-201088-128-4-2880");
  EXPECT_TRUE(FindHitRates(id).empty());
  const auto all = [](double h) { return std::vector<double>(36, h); };
  KeepHitRates(id, {.slots = 32, .hit_rates = all(.8), .tokens = 63});  // too few
  KeepHitRates(id, {.slots = 32, .hit_rates = all(1.1), .tokens = 100});
  KeepHitRates(id, {.slots = 0, .hit_rates = all(.8), .tokens = 100});
  EXPECT_TRUE(FindHitRates(id).empty());
  KeepHitRates(id, {.slots = 32, .hit_rates = all(.8), .tokens = 100});
  KeepHitRates(id, {.slots = 32, .hit_rates = all(.6), .tokens = 300});
  KeepHitRates(id, {.slots = 96, .hit_rates = all(.95), .tokens = 64});
  const std::vector<KeptHits> kept = FindHitRates(id);
  ASSERT_EQ(kept.size(), 2u);
  KeepHitRates(id, {.slots = 32, .hit_rates = all(.1), .tokens = 100, .rows = RowsOfHits(3.4)});  // of several sequences
  EXPECT_EQ(FindHitRates(id).back().rows, 4);
  EXPECT_EQ(kept[0].slots, 32);
  EXPECT_EQ(kept[0].tokens, 400u);
  EXPECT_DOUBLE_EQ(kept[0].hit_rates[35], .65);

  const books::StreamedModel m = StreamedModelOf(counted);
  const auto hit_rate = [&](uint64_t slots) {
    const StreamingForecast f = ForecastStreaming(m, Slots(m, slots), {.memory = 60e9, .disk = 5e9}, 512, kept);
    EXPECT_EQ(f.expected().low, f.expected().high);
    return f.Curve(Routing::kMeasured)->hit_rate;
  };
  EXPECT_NEAR(hit_rate(32), .65, 1e-12);
  EXPECT_NEAR(hit_rate(16), .325, 1e-12) << "from none without slots";
  EXPECT_NEAR(hit_rate(64), .80, 1e-12) << "between the two";
  EXPECT_NEAR(hit_rate(112), .975, 1e-12) << "to all with all resident";
  const std::vector<KeptHits> other = {{.slots = 32, .hit_rates = {.5}, .tokens = 100}};
  EXPECT_EQ(ForecastStreaming(m, Slots(m, 32), {}, 512, other).Curve(Routing::kMeasured), nullptr) << "another model's";

  // Fit takes them by itself, and says what they come from.
  FitMachine machine = {.threads = 8, .total = uint64_t{16} << 30, .available = uint64_t{16} << 30, .read = 60e9};
  const FittedModel fitted = FitTypes(counted, "", false, {machine, {}});
  ASSERT_TRUE(fitted.rows[0].streaming && fitted.rows[0].streaming->measured);
  EXPECT_EQ(fitted.rows[0].streaming->measured->slots, 32);
  EXPECT_TRUE(fitted.more_memory.back().forecast.at.all_resident);

  for (const auto& entry : fs::directory_iterator(folder / "tally"))
    std::ofstream(entry.path(), std::ios::trunc) << "{\"tally_hits\":1";
  EXPECT_TRUE(FindHitRates(id).empty()) << "damaged";
  unsetenv("XDG_CACHE_HOME");
}

TEST(StreamingForecast, TheDiskInWordsAndMeasured) {
  EXPECT_EQ(ParseDisk("3GB/s")->read, 3e9);
  EXPECT_EQ(ParseMachine("ram=16GiB,disk=500MB/s")->disk.read, 5e8);
  for (const char* wrong : {"", "3", "fast", "-1GB/s", "1e300G", "nan"}) EXPECT_FALSE(ParseDisk(wrong).ok()) << wrong;
  const TempFolder folder;
  const auto measured = MeasureFitDisk(folder / "cache", folder / "not/there/yet");
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_EQ(measured->source, DiskSource::kMeasured);
  EXPECT_TRUE(measured->written);
  EXPECT_EQ(measured->where, folder.path());
  if (!fs::exists(folder / "cache")) GTEST_SKIP() << "nothing is kept where the boot is unknown";
  EXPECT_EQ(MeasureFitDisk(folder / "cache", folder.path())->read, measured->read) << "kept";
}

}  // namespace
}  // namespace tally
