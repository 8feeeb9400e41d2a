// tally bench: prefill and decode speed beside the machine's roofs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

struct BenchFlags {
  ModelFlags model;
  SpeedOptions speed;
  bool json = false;
};

std::string Line(const char* format, double a, double b = 0, double c = 0) {
  char text[160];
  std::snprintf(text, sizeof text, format, a, b, c);
  return text;
}

void PrintText(const Engine& engine, const BenchFlags& flags, const SpeedReport& r) {
  const MemoryPlan& plan = engine.memory_plan();
  Print(Printable(engine.model().Description()) + "\n");
  Print(std::to_string(engine.threads()) + (engine.threads() == 1 ? " thread, " : " threads, ") + std::string(engine.target()) +
        (engine.used_blas() ? " kernels and OpenBLAS" : " kernels") + ", medians of " + std::to_string(flags.speed.repetitions) +
        "\n");
  Print("checked first: " + r.verified + "\n\n");
  Print(Line("read bandwidth     %10.2f GB/s\n", r.bandwidth / 1e9));
  Print(Line("f32 peak           %10.2f GFLOP/s  ", r.peaks.f32 / 1e9) + r.peaks.f32_instruction + "\n");
  if (r.peaks.bf16 > 0) Print(Line("bf16 peak          %10.2f GFLOP/s  ", r.peaks.bf16 / 1e9) + r.peaks.bf16_instruction + "\n");
  Print(Line("int8 peak          %10.2f GOP/s    ", r.peaks.int8 / 1e9) + r.peaks.int8_instruction + "\n");
  if (r.peaks.int8_narrow > r.peaks.int8) {
    Print(Line("int8 x 4-bit peak  %10.2f GOP/s    ", r.peaks.int8_narrow / 1e9) + r.peaks.int8_narrow_instruction + "\n");
  }
  Print("\n");
  Print("prefill " + std::to_string(flags.speed.prompt) +
        Line(" tokens: %.2f tokens/s, %.2f GFLOP/s (linear and attention, one head row)\n", r.prefill_tokens_per_second,
             r.prefill_flops / static_cast<double>(flags.speed.prompt) * r.prefill_tokens_per_second / 1e9));
  Print(Line("  %.1f %% of the peak of its arithmetic\n", 100 * r.prefill_ratio));
  Print("decode " + std::to_string(flags.speed.generate) +
        Line(" tokens: %.2f tokens/s, %.2f GB/s (packed weights and KV, %.1f MB a token)\n", r.decode_tokens_per_second,
             r.decode_bytes * r.decode_tokens_per_second / 1e9, r.decode_bytes / 1e6));
  Print(Line("  %.1f %% of the read bandwidth\n", 100 * r.decode_ratio));
  Print("memory: peak " + BytesText(r.peak_resident) + ", planned " + BytesText(plan.total()) +
        Line(" (%.3f times that)\n",
             static_cast<double>(r.peak_resident) / static_cast<double>(std::max<uint64_t>(1, plan.total()))));
}

Json Document(const Engine& engine, const BenchFlags& flags, const SpeedReport& r) {
  const MemoryPlan& plan = engine.memory_plan();
  Json by_type = Json::object();
  for (int a = 0; a < kAriths; ++a) by_type[std::string(kArithNames[a])] = Number(r.prefill_flops_by_type[a]);
  return {{"model", flags.model.model},
          {"description", engine.model().Description()},
          {"weight_types", JoinTypes(engine.model().matrix_types())},
          {"threads", engine.threads()},
          {"target", engine.target()},
          {"used_blas", engine.used_blas()},
          {"repetitions", flags.speed.repetitions},
          {"verified", r.verified},
          {"roofs",
           {{"read_bytes_per_second", r.bandwidth},
            {"f32_flops_per_second", r.peaks.f32},
            {"bf16_flops_per_second", r.peaks.bf16},
            {"int8_ops_per_second", r.peaks.int8},
            {"int8_narrow_ops_per_second", r.peaks.int8_narrow},
            {"f32_instruction", r.peaks.f32_instruction},
            {"bf16_instruction", r.peaks.bf16_instruction},
            {"int8_instruction", r.peaks.int8_instruction},
            {"int8_narrow_instruction", r.peaks.int8_narrow_instruction}}},
          {"prefill",
           {{"tokens", flags.speed.prompt},
            {"tokens_per_second", r.prefill_tokens_per_second},
            {"flops", Number(r.prefill_flops)},
            {"flops_by_type", by_type},
            {"ratio_of_peak", r.prefill_ratio}}},
          {"decode",
           {{"tokens", flags.speed.generate},
            {"tokens_per_second", r.decode_tokens_per_second},
            {"bytes_per_token", Number(r.decode_bytes)},
            {"ratio_of_bandwidth", r.decode_ratio}}},
          {"memory_bytes",
           {{"packed_weights", plan.packed_weights},
            {"kv", plan.kv},
            {"scratch", plan.scratch},
            {"planned", plan.total()},
            {"peak_resident", r.peak_resident}}}};
}

Result<int> RunBench(BenchFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(LoadOptions load, ToLoadOptions(flags.model));
  if (flags.speed.prompt < 1 || flags.speed.generate < 1 || flags.speed.repetitions < 1) {
    return BadInput("-p, -n and --repetitions must be 1 or more");
  }
  constexpr int64_t kMost = int64_t{1} << 30;
  if (flags.speed.prompt > kMost || flags.speed.generate > kMost) return BadInput("-p and -n must be at most 2^30");
  if (load.context == 0) load.context = flags.speed.prompt + flags.speed.generate;
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, Load(flags.model.model, load));
  flags.speed.interrupted = Interrupted;
  TALLY_ASSIGN_OR_RETURN(const SpeedReport report, MeasureSpeed(*loaded.engine, flags.speed));
  if (flags.json) {
    PrintJson(Document(*loaded.engine, flags, report));
  } else {
    PrintText(*loaded.engine, flags, report);
  }
  NoteUnusedBlas(*loaded.engine, load);
  return 0;
}

}  // namespace

Action AddBench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* c =
      app.add_subcommand("bench", "Prefill and decode speed beside the machine's bandwidth and peaks, measured in the same run");
  AddModelFlags(*c, flags->model);
  AddNumber(*c, "-p,--prompt", flags->speed.prompt, "prompt tokens");
  AddNumber(*c, "-n,--tokens", flags->speed.generate, "tokens to generate");
  AddNumber(*c, "--repetitions", flags->speed.repetitions, "medians are taken over these");
  AddNumber(*c, "--seed", flags->speed.seed, "of the random prompt");
  c->add_flag("--json", flags->json, "one JSON document on standard output");
  return [flags] {
    const Result<int> code = RunBench(*flags);
    return code.ok() ? *code : Report(code.status());
  };
}

}  // namespace tally::app
