// SPDX-License-Identifier: Apache-2.0
// Runs to draw, made up: shapes of gpt-oss-20b and of a small dense model, plausible times, the same on every machine.
#pragma once

#include <cmath>
#include <string>

#include "engine/report/report_data.h"

namespace tally::report {

inline ReportData SampleMoe(uint64_t steps = 200) {
  ReportData run;
  run.model = "gpt-oss-20b.gguf";
  run.run = "gpt-oss-20b.jsonl";
  run.facts = {"gpt-oss, 24 layers, MXFP4 + BF16 + F32, 12.84 GiB; prompt of 8 tokens, 200 decoded; 2 threads, AVX3_ZEN4 kernels"};
  run.headlines = {{"active of total", "17.25 %", "3,608,307,264 of 20,914,757,184, active(head)"},
                   {"decode", "8.84 tokens/s"},
                   {"share of the bandwidth roof", "78.2 %", "32.8 of 42.0 GB/s"},
                   {"FLOPs of a token", "7.22 G"},
                   {"bytes of a token", "3.72 GB"},
                   {"peak memory", "13.1 GiB"}};
  run.symbols = {"L = 24 layers", "E = 2,880 width", "X = 32 experts", "k = 4 chosen"};
  run.parts = {{"embedding", 579133440}, {"attention", 637203456}, {"experts", 19116933120}, {"router", 2212608}, {"norms", 141120}, {"head", 579133440}};
  run.conventions = {{"active(all)", "embedding and head counted", {579133440, 637203456, 2389616640, 2212608, 141120, 579133440}},
                     {"active(head)", "the head counted", {0, 637203456, 2389616640, 2212608, 141120, 579133440}},
                     {"active(none)", "neither", {0, 637203456, 2389616640, 2212608, 141120, 0}},
                     {"touched", "what a decode step read, mean", {2880, 637203456, 2389616640, 2212608, 141120, 579133440}}};
  run.components = {"attn.qkv", "attention", "attn.output", "router", "ffn.gate_up", "ffn.down", "head", "norms", "rope"};
  for (uint64_t i = 0; i < steps; ++i) {
    const double depth = static_cast<double>(9 + i), noise = std::sin(static_cast<double>(i) * 12.9898) * 0.03;
    StepCost step{9 + i, 1, true, 0.113 * (1 + noise), {}, {}, 3714842496, 24 * 2048 * (depth + 1)};
    step.flops = {7.1e8, 24 * 64 * 64 * 4 * depth, 5.66e8, 4.4e6, 3.2e9, 1.6e9, 1.16e9, 5.6e5, 3.3e5};
    step.bytes = {7.1e8, 24 * 2048 * (depth + 1), 5.66e8, 8.8e6, 8.47e8, 4.24e8, 1.158e9, 1.1e6, 1e4};
    run.steps.push_back(step);
  }
  run.metrics = {{"S-MBU", 0.782, "bytes that the step's experts and the rest took, over the roof", "(union of weights + KV) / time / roof", "42.0 GB/s, measured with 2 threads"},
                 {"dense MBU", 3.9, "the same with all experts, as if the model were dense", "(all weights + KV) / time / roof", "42.0 GB/s, measured with 2 threads"},
                 {"S-MFU", 0.041, "useful FLOPs over the peak", "useful FLOPs / time / peak", "1.21 TFLOP/s, int8, measured"},
                 {"HFU", 0.043, "executed FLOPs over the peak", "executed FLOPs / time / peak", "1.21 TFLOP/s, int8, measured"}};
  for (int64_t layer = 0; layer < 24; ++layer) {
    LayerExperts experts{layer, {}, 4.2 + 0.4 * std::sin(static_cast<double>(layer)), 4.6};
    for (int e = 0; e < 32; ++e) {
      experts.tokens.push_back(static_cast<uint64_t>(90 * std::pow(std::abs(std::sin(static_cast<double>(layer * 37 + e * 11) * 1.7)), 4)));
    }
    run.experts.push_back(experts);
  }
  run.roofs = {42e9, {{"f32", 250e9}, {"bf16", 480e9}, {"int8", 1.21e12}}, "measured with 2 threads before the run"};
  run.op_classes = {{"linear int8", true, 9.6e11, 2.6e11, 8.1}, {"linear bf16", true, 4.9e11, 4.9e11, 12.5}, {"attention f32", true, 4.2e9, 1.1e9, 0.31},
                    {"norm f32", true, 1.1e8, 2.2e8, 0.04}, {"rope f32", true, 6.6e7, 1.3e8, 0.03}, {"linear int8", false, 3.8e10, 4.1e9, 0.12}};
  const char* const components[] = {"attn.norm", "attn.qkv", "rope", "attention", "attn.output", "router", "ffn.gate_up", "ffn.down"};
  double weight = 1;
  for (const char* component : components) {
    for (const char* phase : {"prefill", "decode"}) {
      weight = std::fmod(weight * 7.3, 11);
      run.ops.push_back({component, "matmul", phase, "hwy", "0-23", 24 * steps, static_cast<uint64_t>(weight * 1e10), static_cast<uint64_t>(weight * 1.03e10),
                         static_cast<uint64_t>(weight * 4e9), weight * 0.3});
    }
  }
  run.ops.push_back({"head", "matmul", "decode", "hwy", "-", steps, 231653376000, 231653376000, 231653376000, 5.9});
  run.closed_forms = {{"parameters, total", "2 V E + L (2 E + ...)", 20914757184}, {"experts of a layer", "X (3 E F + 2 F + E)", 796538880}};
  run.audit = AuditVerdict{12758, 0, {}};
  return run;
}

inline ReportData SampleDense() {
  ReportData run;
  run.model = "demo";
  run.run = "demo.jsonl";
  run.headlines = {{"decode", "1,204 tokens/s"}};
  run.parts = {{"embedding", 1000000}, {"attention", 1500000}, {"feed-forward", 2041364}};
  run.conventions = {{"active(all)", "", {1000000, 1500000, 2041364}}};
  run.components = {"attention", "ffn"};
  run.steps = {{5, 4, false, 0.01, {4e6, 8e6}, {1e6, 2e6}, 3e6, 1e4}, {6, 1, true, 0.001, {1e6, 2e6}, {1e6, 2e6}, 3e6, 1e4}};
  run.ops = {{"ffn", "matmul", "decode", "hwy", "0-3", 4, 2000000, 2000000, 2000000, 0.0006}, {"attention", "attention", "decode", "hwy", "0-3", 4, 1000000, 1000000, 10000, 0.0002}};
  run.metrics = {{"HFU", 0.031, "executed FLOPs over the peak", "executed FLOPs / time / peak", "1.21 TFLOP/s, int8, measured"}};
  return run;
}

}  // namespace tally::report
