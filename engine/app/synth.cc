// SPDX-License-Identifier: Apache-2.0
// tally synth: full-size checkpoints with random weights.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/output_files.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

struct SynthFlags {
  std::string model, out, type = "BF16", vocab_from;
  uint64_t seed = 0;
  int32_t layers = 0;
  bool json = false, force = false, prediction = false, packed = false;
};

Status RunSynth(const SynthFlags& flags) {
  SynthOptions options;
  TALLY_ASSIGN_OR_RETURN(options.type, ParseWeightType(flags.type));
  options.seed = flags.seed;
  options.vocab_from = flags.vocab_from;
  options.layers = flags.layers;
  options.prediction = flags.prediction;
  options.packed = flags.packed;
  ProgressBar bar("writing");
  options.progress = [&](uint64_t done, uint64_t total) {
    bar.Show(done, total);
    return !Interrupted();
  };
  TALLY_RETURN_IF_ERROR(CheckNotStandardStream(flags.out));
  TALLY_RETURN_IF_ERROR(CheckMayReplace(flags.out, flags.force));
  for (const char* const file : {"model.safetensors", "config.json"}) {  // of a directory
    TALLY_RETURN_IF_ERROR(CheckMayReplace((std::filesystem::path(flags.out) / file).string(), flags.force));
  }
  InstallInterruptHandlers();
  const double begin = MonotonicSeconds();
  TALLY_ASSIGN_OR_RETURN(const SynthReport report, Synthesize(flags.model, flags.out, options));
  const double seconds = MonotonicSeconds() - begin;
  bar.Wipe();
  if (flags.json) {
    PrintJson({{"model", flags.model},
               {"out", flags.out},
               {"type", DTypeName(options.type)},
               {"seed", flags.seed},
               {"packed", flags.packed},
               {"tensors", report.tensors},
               {"parameters", report.parameters},
               {"bytes", report.bytes},
               {"seconds", seconds}});
  } else {
    char rate[64];
    std::snprintf(rate, sizeof rate, "%.2f s, %.2f GB/s", seconds,
                  static_cast<double>(report.bytes) / std::max(seconds, 1e-9) / 1e9);
    Print(Printable(flags.out) + ": " + std::to_string(report.tensors) + " tensors, " + books::WithThousands(report.parameters) +
          " parameters, " + BytesText(report.bytes) + " in " + rate + "\n");
  }
  return {};
}

}  // namespace

Action AddSynth(Command& app) {
  auto flags = std::make_shared<SynthFlags>();
  Command c = app.Add("synth", "Write a full-size checkpoint with random weights");
  c.Option("NAME", flags->model, "a built-in model, one of those below, or a config.json").Type(kNameType).Required();
  FileOption(
      c.Option("OUT,-o,--out", flags->out, "the GGUF file to write (its name ends in .gguf), or else a Hugging Face directory"))
      .Required();
  Choices(c.Option("--type", flags->type, "of the matrices").Preset(), WeightTypeChoices());
  AddNumber(c, "-s,--seed", flags->seed, "of the random weights");
  FileOption(c.Option("--vocab-from", flags->vocab_from,
                      "GGUF whose tokenizer is copied (without: token ids only, which llama.cpp does not load)"));
  AddNumber(c, "--layers", flags->layers, "write only so many layers (0: all)");
  c.Flag("--mtp", flags->prediction, "with the model's layer for multi-token prediction, for --draft layers");
  c.Flag("--packed", flags->packed, "write OUT as the packed file that `pack` would make of it, without it");
  AddForce(c, flags->force);
  c.Flag("--json", flags->json, "one JSON document on standard output");
  c.Footer("Built-in names: " + Join(SynthModels(), ", "));
  AddExamples(c, {"tally synth gpt2 /tmp/gpt2.gguf --type Q8_0", "tally synth gpt-oss-20b gpt-oss-20b.gguf"});
  return [flags] { return Report(RunSynth(*flags)); };
}

}  // namespace tally::app
