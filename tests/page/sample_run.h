// SPDX-License-Identifier: Apache-2.0
// Runs to draw, made up: shapes of gpt-oss-20b and of a small dense model, plausible times, the same on every machine.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/page/report_data.h"

namespace tally::page {

inline std::vector<std::string> SampleByteKinds() { return {"weights stored", "weights packed", "KV read", "KV written"}; }

inline ReportWork SampleWork(uint64_t flops, uint64_t weights, uint64_t kv, uint64_t ns) {
  return {flops, 0, flops + flops / 32, 0, {weights, weights, kv, kv / 100}, ns};
}

inline void AddUp(ReportWork& sum, const ReportWork& work) {
  sum.flops += work.flops;
  sum.executed_flops += work.executed_flops;
  sum.ns += work.ns;
  sum.bytes.resize(work.bytes.size());
  for (size_t i = 0; i < work.bytes.size(); ++i) sum.bytes[i] += work.bytes[i];
}

// A step whose components cost these.
inline ReportStep SampleStep(uint64_t number, const std::string& phase, uint64_t rows, uint64_t context,
                             std::vector<ReportWork> components) {
  ReportStep step{number, phase, rows, 1, context, 0, {}, std::move(components), {}, {}, {}};
  for (const ReportWork& work : step.by_component) AddUp(step.all, work);
  return step;
}

inline ReportData SampleMoe(uint64_t decode_steps = 200) {
  ReportData run;
  run.title = "gpt-oss-20b.gguf";
  run.description = "gpt-oss, 24 layers, MXFP4 + BF16 + F32, 12.84 GiB";
  run.source = "tally run";
  run.version = "0.1.0";
  run.date = "2026-11-25 08:00";
  run.machine = "AMD EPYC 9R14";
  run.target = "AVX3_ZEN4";
  run.threads = 2;
  run.facts = {{"KV cache", "f16"}, {"prompt", "8 tokens"}};
  run.byte_kinds = SampleByteKinds();
  run.has_parameters = true;
  run.decode_steps = decode_steps;
  const auto component = [&](const char* name, const char* part, uint64_t total, uint64_t all, uint64_t head, uint64_t none,
                             uint64_t touched) {
    run.components.push_back({name, part, 24, {total, all, head, none, touched * decode_steps, touched}, total, total});
  };
  component("embedding", "embedding", 579133440, 579133440, 0, 0, 2880);
  component("attn.norm", "norms", 69120, 69120, 69120, 69120, 69120);
  component("attn.qkv", "attention", 354029568, 354029568, 354029568, 354029568, 354029568);
  component("attention", "attention", 1536, 1536, 1536, 1536, 1536);
  component("attn.output", "attention", 283172352, 283172352, 283172352, 283172352, 283172352);
  component("ffn.norm", "norms", 72000, 72000, 72000, 72000, 72000);
  component("router", "router", 2212608, 2212608, 2212608, 2212608, 2212608);
  component("ffn.gate_up", "experts", 12744622080, 1593077760, 1593077760, 1593077760, 1593077760);
  component("ffn.down", "experts", 6372311040, 796538880, 796538880, 796538880, 796538880);
  component("head", "head", 579133440, 579133440, 579133440, 0, 579133440);
  for (const ReportComponent& c : run.components) {
    for (size_t i = 0; i < kReportConventions; ++i) run.parameters[i] += c.parameters[i];
  }
  const auto step = [&](uint64_t number, const std::string& phase, uint64_t rows, uint64_t depth, double noise) {
    const auto ns = [&](double ms) { return static_cast<uint64_t>(ms * 1e6 * (1 + noise)); };
    return SampleStep(number, phase, rows, depth,
                      {SampleWork(0, 5760, 0, ns(.001)), SampleWork(rows * 280000, 276480, 0, ns(.05)),
                       SampleWork(rows * 708000000, 708059136, 0, ns(21)),
                       SampleWork(rows * 24 * 16384 * depth, 3072, 24 * 1024 * depth, ns(.4)),
                       SampleWork(rows * 566000000, 566344704, 0, ns(17)), SampleWork(rows * 280000, 276480, 0, ns(.05)),
                       SampleWork(rows * 4427040, 8850432, 0, ns(.5)),
                       SampleWork(rows * 3186155520, 847000000 * std::min<uint64_t>(rows, 4), 0, ns(24)),
                       SampleWork(rows * 1593077760, 424000000 * std::min<uint64_t>(rows, 4), 0, ns(12)),
                       SampleWork(1158266880, 1158266880, 0, ns(33))});
  };
  run.steps.push_back(step(0, "prefill", 8, 8, 0));
  for (uint64_t i = 0; i < decode_steps; ++i)
    run.steps.push_back(step(i + 1, "decode", 1, 9 + i, 0.04 * std::sin(static_cast<double>(i) * 12.9898)));
  for (int32_t layer = 0; layer < 24; ++layer) {
    ReportExperts experts{layer, 32, 4, {}, {{0, 8, 17, 21.1}}, 0, 32, 17000000};
    for (int e = 0; e < 32; ++e) {
      experts.tokens.push_back(static_cast<uint64_t>(90 * std::pow(std::abs(std::sin((layer * 37 + e * 11) * 1.7)), 4)));
      experts.run_union += experts.tokens.back() > 0 ? 1 : 0;
    }
    run.experts.push_back(experts);
  }
  run.roofs = {true, 2, 42e9, {{"f32", 250e9}, {"bf16", 480e9}, {"int8", 1.21e12}}, "measured with 2 threads"};
  run.metrics = {
      {"S-MBU", "decode", "MoE-CAP, arXiv 2412.07067", "The bytes of the experts that ran and of the rest, over the bandwidth.",
       "(weights read once a step + KV) / time / read bandwidth", "3,714,842,496 bytes / 0.113 s / 42.0 GB/s", true, 3714842496,
       0.113, 42e9, "read bandwidth", 0.7827},
      {"HFU", "decode", "PaLM, arXiv 2204.02311", "Executed FLOPs over the peak of their types.", "executed FLOPs / time / peak",
       "7,453,105,681 / 0.113 s / 1.10 TFLOP/s", false, 7453105681, 0.113, 1.1e12, "peak of the mix: 93 % int8, 7 % f32", 0.06},
      {"MFU",
       "prefill",
       "PaLM, arXiv 2204.02311",
       "Useful FLOPs over the peak.",
       "useful FLOPs / time / peak",
       "",
       false,
       1,
       0,
       0,
       "peak",
       {}}};
  const auto op_class = [&](const char* phase, const char* op, uint64_t flops, uint64_t bytes, uint64_t ns) {
    run.op_classes.push_back({phase, op, 4800, SampleWork(flops, bytes, 0, ns), bytes,
                              static_cast<double>(flops) / static_cast<double>(bytes),
                              static_cast<double>(flops) * 1e9 / static_cast<double>(ns), 1.21e12, "int8"});
  };
  op_class("decode", "matmul", 520000000000, 480000000000, 12500000000);
  op_class("decode", "gated_matmul", 960000000000, 260000000000, 8100000000);
  op_class("decode", "attention", 4200000000, 1100000000, 310000000);
  op_class("decode", "norm", 110000000, 220000000, 40000000);
  op_class("decode", "rope", 66000000, 130000000, 30000000);
  op_class("prefill", "matmul", 38000000000, 4100000000, 120000000);
  op_class("prefill", "gated_matmul", 49000000000, 5100000000, 130000000);
  for (int32_t layer = 0; layer < 24; ++layer) {
    for (const std::string phase : {"prefill", "decode"}) {
      uint64_t n = phase == "decode" ? decode_steps : 1;
      for (const std::string name :
           {"attn.norm", "attn.qkv", "attention", "attn.output", "ffn.norm", "router", "ffn.gate_up", "ffn.down"}) {
        n = n * 7 % 1013 + 1;
        run.rows.push_back({phase, layer, name,
                            name == "attention"      ? "attention"
                            : name.ends_with("norm") ? "norm"
                                                     : "matmul",
                            "hwy", "int8 x MXFP4", 200, SampleWork(n * 100000000, n * 3000000, 0, n * 700000)});
      }
    }
  }
  run.rows.push_back(
      {"decode", -1, "head", "matmul", "hwy", "bf16 x BF16", 200, SampleWork(231653376000, 231653376000, 0, 6600000000)});
  run.forms = {{"parameters", "token_embd", "V E", 579133440, 1}, {"parameters", "ffn_down_exps", "X F E", 265420800, 24}};
  run.symbols = {{"V", "vocabulary", 201088}, {"E", "width", 2880}, {"X", "experts", 32}};
  run.audit = ReportAudit{12758, 0, true, {}};
  run.speed = {{"prefill", 2, "f16", 0, 1, 512, 21.2, 20.8, 21.4, 0.41, "arithmetic peak"},
               {"decode", 2, "f16", 4096, 1, 32, 8.84, 8.6, 8.9, 0.78, "read bandwidth"}};
  run.absent = {"Nothing is known of the tokens themselves."};
  return run;
}

inline ReportData SampleDense() {
  ReportData run;
  run.title = "demo";
  run.source = "runs/demo.jsonl";
  run.byte_kinds = SampleByteKinds();
  run.has_parameters = true;
  run.parameters = {4541364, 4541364, 3541364, 3541364, 0, 4541364};
  run.components = {{"embedding", "embedding", 1, {1000000, 1000000, 0, 0, 0, 1000000}, 1, 1},
                    {"ffn", "feed-forward", 1, {3541364, 3541364, 3541364, 3541364, 0, 3541364}, 1, 1}};
  run.steps = {SampleStep(0, "prefill", 4, 4, {SampleWork(0, 1000, 0, 1000), SampleWork(28000000, 7000000, 512, 900000)}),
               SampleStep(1, "decode", 1, 5, {SampleWork(0, 1000, 0, 1000), SampleWork(7000000, 7000000, 640, 800000)})};
  run.rows = {{"decode", 0, "ffn", "matmul", "hwy", "f32 x F32", 1, SampleWork(7000000, 7000000, 0, 800000)},
              {"prefill", 0, "attention", "attention", "hwy", "f32", 1, SampleWork(1000000, 10000, 640, 90000)}};
  run.metrics = {{"HFU", "decode", "PaLM, arXiv 2204.02311", "Executed FLOPs over the peak of their types.",
                  "executed FLOPs / time / peak", "", false, 1, 1, 1, "peak", 0.031}};
  return run;
}

}  // namespace tally::page
