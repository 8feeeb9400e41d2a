// SPDX-License-Identifier: Apache-2.0
// The screens of `run` and `bench` with figures of any size: they fit 80 columns.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/app/bench_report.h"
#include "engine/app/run_books.h"
#include "engine/render/words.h"
#include "tests/app/screen.h"

namespace tally::app {
namespace {

TEST(Rates, HaveThreeDigits) {
  EXPECT_EQ(ShortRate(7.0449), "7.04");
  EXPECT_EQ(ShortRate(9.996), "10.0");
  EXPECT_EQ(ShortRate(43.14), "43.1");
  EXPECT_EQ(ShortRate(99.96), "100");
  EXPECT_EQ(ShortRate(7047.7), "7,048");
  EXPECT_EQ(ShortRate(0), "-");
  EXPECT_EQ(ShortSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(ShortSeconds(0.9999), "1.00 s");
  EXPECT_EQ(OfRoof(0.94), "94 %");
  EXPECT_EQ(OfRoof(1.02), "102 %");
}

RunBooks Llama() {
  RunBooks run;
  run.ended = "length";
  run.load_seconds = 0.5;
  run.first_token_seconds = 0.25;
  run.peak_resident = 1 << 20;
  books::RunFigures& f = run.figures;
  f.prompt_tokens = 12;
  f.prompt_tokens_per_second = 291.2;
  f.decode_tokens = 34;
  f.decode_tokens_per_second = 43.1;
  f.all.useful = 2.2e9;
  f.bytes_per_token[static_cast<size_t>(ByteKind::kWeightsPacked)] = 1e9;
  f.bytes_per_token[static_cast<size_t>(ByteKind::kKvRead)] = 2e8;
  f.bytes_per_token[static_cast<size_t>(ByteKind::kKvWritten)] = 1e7;
  f.decode_gigabytes_per_second = 45;
  f.parameters = {1100048384, 1100048384, 1034512384, 968976384};
  return run;
}

TEST(RunScreen, SaysWhatWasMeasured) {
  RunBooks run = Llama();
  run.read_bandwidth = 50e9;
  EXPECT_EQ(RunScreen(run),
            "prompt         12 tokens      291 tokens/s    load 500 ms, first token 250 ms\n"
            "decode         34 tokens     43.1 tokens/s    45.0 GB/s, 90 % of read bandwidth\n"
            "a token  2.20 GFLOP, 1.21 GB          active(all) 1,100,048,384 of 1,100,048,384\n"
            "memory   peak RSS 1.00 MiB                    ended: length\n");
  run.figures.used_blas = true;
  run.figures.bad_touches = 2;
  const std::string warned = RunScreen(run);
  EXPECT_NE(warned.find("\n2 touches named no weight"), std::string::npos) << warned;
  EXPECT_NE(warned.find("\nOpenBLAS ran"), std::string::npos) << warned;
}

TEST(RunScreen, FitsWhateverTheFigures) {
  RunBooks run = Llama();
  books::RunFigures& f = run.figures;
  f.prompt_tokens = 1048576;
  f.decode_tokens = 1048576;
  f.prompt_tokens_per_second = f.decode_tokens_per_second = 123456;
  f.all.useful = 99.99e12;
  f.bytes_per_token[static_cast<size_t>(ByteKind::kWeightsPacked)] = 12.34e9;
  f.parameters = {1026408232448, 32000000000, 32000000000, 32000000000};
  run.load_seconds = run.first_token_seconds = 1234;
  run.peak_resident = uint64_t{1023} << 30;
  run.read_bandwidth = 1300e9;
  f.decode_gigabytes_per_second = 1234;
  run.ended = "context full";
  run.samples = run.seed_drawn = true;
  run.seed = 4294967295;
  ExpectScreen(RunScreen(run), 80, 4);
  EXPECT_NE(RunScreen(run).find("seed 4294967295"), std::string::npos);
}

SpeedReport Report(const std::vector<int64_t>& depths, const std::vector<int64_t>& batches, const std::vector<int>& threads,
                   const std::vector<KvType>& kvs) {
  SpeedReport r;
  for (const KvType kv : kvs) {
    for (const int n : threads) {
      for (const int64_t depth : depths) {
        SpeedPoint p{.threads = n, .kv = kv, .depth = depth, .tokens = 512, .rounds = 5, .kept = 5};
        const double rate = 100 * n - static_cast<double>(depth) / 1000;
        p.rate = {rate, rate * 0.99, rate * 1.01};
        PrefillSpeed prefill{p};
        prefill.flops = 1e12;
        prefill.flops_by_type[static_cast<size_t>(Arith::kInt8)] = 0.95e12;
        prefill.flops_by_type[static_cast<size_t>(Arith::kF32)] = 0.05e12;
        prefill.ratio_of_peak = 0.69;
        r.prefill.push_back(prefill);
        for (const int64_t batch : batches) {
          DecodeSpeed decode{p};
          decode.batch = batch;
          decode.tokens = 64;
          decode.rate.median *= static_cast<double>(batch) / 2;
          decode.bytes_per_token = 1e9;
          decode.ratio_of_bandwidth = 0.94;
          r.decode.push_back(decode);
        }
      }
    }
  }
  for (const int n : threads) {
    MeasuredRoofs roofs;
    roofs.threads = n;
    roofs.bandwidth = 48e9;
    roofs.peaks.f32 = 475e9;
    roofs.peaks.int8 = 1874e9;
    r.roofs.push_back(roofs);
  }
  r.verified = "32 tokens in one piece and one by one: the same logits, bit for bit";
  r.target = "AVX3_ZEN4";
  return r;
}

// Wrapped words put together.
std::string OnOneLine(std::string text) {
  const std::string wrap = "\n" + std::string(10, ' ');
  for (size_t at = 0; (at = text.find(wrap, at)) != text.npos;) text.replace(at, wrap.size(), " ");
  return text;
}

TEST(BenchScreen, SaysTheVerdictFirst) {
  SpeedReport r = Report({0}, {1}, {2}, {KvType::kF16});
  const std::string screen = BenchScreen("llama, 22 layers, Q8_0, 1.09 GiB", 1.05, r);
  EXPECT_TRUE(
      screen.starts_with("decode    100 tokens/s, 94 % of read bandwidth\n"
                         "prefill   200 tokens/s, 69 % of int8 peak\n\n"))
      << screen;
  EXPECT_NE(screen.find("run       depth 0, batch 1, 2 threads, KV f16, AVX3_ZEN4"), std::string::npos) << screen;
  EXPECT_NE(OnOneLine(screen).find("medians of 5 rounds\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("\n  tokens  tokens/s   spread  GB/s  of read\n"), std::string::npos) << screen;
  ExpectScreen(screen, 80, 24);
  r.decode[0].kept = 0;
  r.prefill[0].kept = 3;
  const std::string moved = BenchScreen("m", 1, r);
  EXPECT_NE(OnOneLine(moved).find("at least 3 of 5 rounds"), std::string::npos) << moved;
  EXPECT_NE(moved.find(" %*"), std::string::npos) << moved;
  EXPECT_NE(moved.find("\n*: the roofs moved"), std::string::npos) << moved;
}

TEST(BenchScreen, OneRoundHasNoSpread) {
  SpeedReport r = Report({0}, {1}, {2}, {KvType::kF16});
  EXPECT_EQ(BenchScreen("m", 1, r).find("none of one round"), std::string::npos);
  r.decode[0].kept = 1;
  const std::string screen = BenchScreen("m", 1, r);
  EXPECT_EQ(PlusMinus(r.decode[0]), "-");
  EXPECT_EQ(PlusMinus(r.prefill[0]), "+-1.0 %");
  EXPECT_NE(screen.find("spread: half of the range of the rounds; none of one round; --full"), std::string::npos) << screen;
  ExpectScreen(screen, 80, 24);
}

TEST(BenchScreen, AGridFitsToo) {
  SpeedReport r = Report({0, 131072}, {1, 1024}, {1, 128}, {KvType::kF16, KvType::kQ8_0});
  const std::string screen = BenchScreen(std::string(100, 'x') + " of a model", 1.05, r);
  ExpectScreen(screen, 80, 60);
  EXPECT_NE(screen.find("tokens   depth  batch  threads    kv  "), std::string::npos) << screen;
  EXPECT_NE(OnOneLine(screen).find("the fastest, depth 0, batch 1,024, 128 threads, KV f16"), std::string::npos) << screen;
  EXPECT_EQ(screen.find("\nrun       batch"), screen.npos) << "not of all points\n" << screen;
  EXPECT_NE(screen.find("128 threads: reads 48.0 GB/s"), std::string::npos) << screen;
}

}  // namespace
}  // namespace tally::app
