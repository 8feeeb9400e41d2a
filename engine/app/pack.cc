// SPDX-License-Identifier: Apache-2.0
// tally pack: a checkpoint as a file that starts at the speed of the disk.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

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
#include "engine/render/words.h"

namespace tally::app {
namespace {

struct PackFlags {
  std::string in, out;
  PackOptions options;
  bool yes = false, json = false, force = false;
};

Status RunPack(PackFlags flags) {
  ProgressBar bar("packing");
  flags.options.progress = [&](uint64_t done, uint64_t total) {
    bar.Show(done, total);
    return !Interrupted();
  };
  TALLY_RETURN_IF_ERROR(CheckNotStandardStream(flags.out));
  TALLY_RETURN_IF_ERROR(CheckMayReplace(flags.out, flags.force));
  TALLY_ASSIGN_OR_RETURN(const std::string in, ModelPath(flags.in, flags.yes));
  InstallInterruptHandlers();
  const double begin = MonotonicSeconds();
  TALLY_ASSIGN_OR_RETURN(const PackReport report, PackModel(in, flags.out, flags.options));
  const double seconds = MonotonicSeconds() - begin;
  bar.Wipe();
  if (flags.json) {
    PrintJson({{"in", flags.in},
               {"out", flags.out},
               {"weights", report.weights},
               {"experts", report.experts},
               {"bytes_in", report.source_bytes},
               {"bytes", report.bytes},
               {"seconds", seconds}});
    return {};
  }
  char rate[64];
  std::snprintf(rate, sizeof rate, "%.1f s, %.2f GB/s", seconds,
                static_cast<double>(report.bytes) / std::max(seconds, 1e-9) / 1e9);
  Print(Printable(flags.out) + ": " + books::WithThousands(report.weights) + " weights, " +
        (report.experts > 0 ? books::WithThousands(report.experts) + " experts, " : "") + BytesText(report.bytes) + " of " +
        BytesText(report.source_bytes) + " in " + rate + "\n");
  return {};
}

}  // namespace

Action AddPack(Command& app) {
  auto flags = std::make_shared<PackFlags>();
  Command c = app.Add("pack", "Write a model as a file that starts at the disk's speed");
  c.Option("IN", flags->in,
           "GGUF file (the first of several), Hugging Face directory, ORG/NAME of its hub, or demo: the bundled model")
      .Type(kModelType)
      .Required();
  FileOption(c.Option("OUT,-o,--out", flags->out, "packed file to write, such as model.tally; about as large as the model"))
      .Required();
  c.Option("-t,--threads", flags->options.threads, "threads (0: all cores)").Preset().Within(0, 1024);
  AddForce(c, flags->force);
  AddYes(c, flags->yes);
  c.Flag("--json", flags->json, "one JSON document on standard output");
  AddExamples(c, {"tally pack demo /tmp/demo.tally", "tally pack gpt-oss-20b.gguf -o gpt-oss-20b.tally"});
  return [flags] { return Report(RunPack(*flags)); };
}

}  // namespace tally::app
