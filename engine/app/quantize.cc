// SPDX-License-Identifier: Apache-2.0
// tally quantize: a GGUF file, or a Hugging Face directory as one, with other types of weights.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/hub_models.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/output_files.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"

namespace tally::app {
namespace {

struct QuantizeFlags {
  std::string in, out;
  QuantizeOptions options;
  bool yes = false, json = false, force = false;
};

Status RunQuantize(QuantizeFlags flags) {
  ProgressBar bar("quantizing");
  flags.options.progress = [&](uint64_t done, uint64_t total) {
    bar.Show(done, total);
    return !Interrupted();
  };
  TALLY_RETURN_IF_ERROR(CheckNotStandardStream(flags.out));
  const std::vector<std::string_view> presets = QuantizePresets();
  if (std::find(presets.begin(), presets.end(), flags.out) != presets.end()) {
    return BadInput("OUT is a file's name, not a type: write OUT --type " + flags.out);
  }
  if (!flags.options.dry_run) TALLY_RETURN_IF_ERROR(CheckMayReplace(flags.out, flags.force));
  TALLY_ASSIGN_OR_RETURN(const std::string in, ModelPath(flags.in, flags.yes));
  InstallInterruptHandlers();
  const double begin = MonotonicSeconds();
  TALLY_ASSIGN_OR_RETURN(const QuantizeReport report, Quantize(in, flags.out, flags.options));
  const double seconds = MonotonicSeconds() - begin;
  bar.Wipe();
  const double bits = 8 * static_cast<double>(report.bytes) / static_cast<double>(std::max<uint64_t>(1, report.elements));
  if (flags.json) {
    Json types = Json::Object();
    for (const auto& [type, of] : report.types) {
      types[std::string(DTypeName(type))] = {{"tensors", of.tensors}, {"elements", of.elements}, {"bytes", of.bytes}};
    }
    PrintJson({{"in", flags.in},
               {"out", flags.out},
               {"type", flags.options.type},
               {"dry_run", flags.options.dry_run},
               {"tensors", report.tensors},
               {"elements", report.elements},
               {"bytes_in", report.bytes_in},
               {"bytes", report.bytes},
               {"bits_per_weight", bits},
               {"types", types},
               {"fallbacks", report.fallbacks},
               {"without_importance", report.without_importance},
               {"no_tokenizer", report.no_tokenizer},
               {"notes", report.notes},
               {"tokenizer_losses", report.tokenizer_losses},
               {"seconds", seconds}});
    return {};
  }
  for (const auto& [type, of] : report.types) {
    char line[160];
    std::snprintf(line, sizeof line, "  %-7s %5llu tensors %20s elements %12s\n", std::string(DTypeName(type)).c_str(),
                  static_cast<unsigned long long>(of.tensors), books::WithThousands(of.elements).c_str(),
                  BytesText(of.bytes).c_str());
    Print(line);
  }
  char rest[120];
  std::snprintf(rest, sizeof rest, ", %.2f bits a weight, %.1f s\n", bits, seconds);
  Print(Printable(flags.out) + (flags.options.dry_run ? " (not written): " : ": ") + flags.options.type + ", " +
        BytesText(report.bytes) + " of " + BytesText(report.bytes_in) + rest);
  if (report.fallbacks > 0) {
    Note("note: " + std::to_string(report.fallbacks) +
         " tensors have rows that are not whole blocks of their type, and got another\n");
  }
  for (const std::string& note : report.notes) Note("note: " + note + "\n");
  for (const std::string& loss : report.tokenizer_losses) Note("note: other engines will not read " + loss + "\n");
  if (!report.no_tokenizer.empty()) Note("note: no vocabulary was written: " + report.no_tokenizer + "\n");
  if (report.without_importance > 0) {
    Note("note: " + std::to_string(report.without_importance) + " quantised tensors are not in the importance file\n");
  }
  return {};
}

}  // namespace

Action AddQuantize(Command& app) {
  auto flags = std::make_shared<QuantizeFlags>();
  Command c = app.Add("quantize", "Write a checkpoint as GGUF, with other types of weights");
  c.Option("IN", flags->in,
           "GGUF file (the first of several), Hugging Face directory, ORG/NAME of its hub, or demo: the bundled model")
      .Type(kModelType)
      .Required();
  FileOption(c.Option("OUT", flags->out, "GGUF file to write")).Required();
  Choices(c.Option("--type", flags->options.type, "preset").Preset(), QuantizePresets());
  c.Flag("--pure", flags->options.pure, "the preset's type for every matrix, without its rules");
  c.Flag("--requantize", flags->options.requantize, "weights that are quantised already too");
  FileOption(c.Option("--importance", flags->options.importance, "GGUF file of llama.cpp's imatrix"));
  Choices(c.Option("--allow-tokenizer-loss", flags->options.tokenizer_loss,
                   "what GGUF cannot say of a directory's tokenizer and may be lost to other engines, several with commas")
              .Commas()
              .OneEach(),
          TokenizerLossNames());
  c.Option("-t,--threads", flags->options.threads, "threads (0: all cores)").Preset().Within(0, 1024);
  AddForce(c, flags->force);
  AddYes(c, flags->yes);
  c.Flag("--dry-run", flags->options.dry_run, "say what would be written");
  c.Flag("--json", flags->json, "one JSON document on standard output");
  AddExamples(
      c, {"tally quantize demo /tmp/demo-q8_0.gguf --type Q8_0", "tally quantize demo /tmp/demo.gguf --requantize --dry-run"});
  return [flags] { return Report(RunQuantize(*flags)); };
}

}  // namespace tally::app
