// SPDX-License-Identifier: Apache-2.0
#include "engine/app/run_books.h"

#include <algorithm>

#include "engine/app/draft.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

using books::WithThousands;

constexpr size_t kHalf = 46;  // columns of the first half of a line, where the second leaves so many

std::string Padded(const std::string& text, size_t columns, bool left) {
  const std::string blanks(columns - std::min(columns, text.size()), ' ');
  return left ? text + blanks : blanks + text;
}

// At least two blanks between the halves.
std::string Line(const std::string& first, const std::string& second) {
  if (second.empty()) return first + "\n";
  const size_t room = kPlainWidth - std::min(kPlainWidth, second.size());
  return Padded(first, std::max(first.size() + 2, std::min(kHalf, room)), true) + second + "\n";
}

// "decode         23 tokens      7,048 tokens/s"
std::string Speed(const std::string& phase, uint64_t tokens, double rate) {
  return Padded(phase, 8, true) + Padded(WithThousands(tokens), 9, false) + (tokens == 1 ? " token " : " tokens") +
         (rate > 0 ? Padded(ShortRate(rate), 9, false) + " tokens/s" : "");
}

std::string Bandwidth(const RunBooks& run) {
  const double bytes = run.figures.decode_gigabytes_per_second * 1e9;
  if (bytes <= 0) return "";
  const std::optional<double> ratio = RatioOfBandwidth(run);
  return ShortGigabytes(bytes) + (ratio ? ", " + OfRoof(*ratio) + " of read bandwidth" : "");
}

std::string Times(const RunBooks& run) {
  return "load " + ShortSeconds(run.load_seconds) +
         (run.first_token_seconds > 0 ? ", first token " + ShortSeconds(run.first_token_seconds) : "");
}

std::string Work(const RunBooks& run) {
  if (run.figures.decode_tokens == 0) return "a token  (none was decoded)";
  return "a token  " + Scaled(run.figures.all.useful, "FLOP") + ", " + Scaled(MovedBytesPerToken(run.figures), "B");
}

std::string HitWords(const ExpertUses& u) {
  const uint64_t all = u.hits + u.misses;
  return "hit " + OfRoof(static_cast<double>(u.hits) / static_cast<double>(std::max<uint64_t>(1, all))) + " of " +
         WithThousands(all);
}

std::string DiskOfToken(const books::RunFigures& f) {
  return Scaled(f.bytes_per_token[static_cast<size_t>(ByteKind::kWeightsDisk)], "B") + " a token from disk";
}

// "experts  hit 71 % of 4,608, 1.3 GB a token from disk"
std::string Experts(const books::RunFigures& f) {
  const std::string prompt = "prompt " + Scaled(static_cast<double>(f.prompt_experts.disk_bytes), "B");
  if (f.decode_tokens == 0) return Line("experts  " + HitWords(f.prompt_experts) + " in memory; from disk", prompt);
  return Line("experts  " + HitWords(f.decode_experts) + ", " + DiskOfToken(f), prompt);
}

// "layers   12 from disk, 774 MB a token"
std::string Layers(const books::RunFigures& f) {
  const std::string layers = "layers   " + WithThousands(f.streamed_layers) + " from disk";
  const std::string prompt = "prompt " + Scaled(static_cast<double>(f.prompt_layer_bytes), "B");
  if (f.decode_tokens == 0) return Line(layers, prompt);
  return Line(layers + ", " + Scaled(f.bytes_per_token[static_cast<size_t>(ByteKind::kWeightsDisk)], "B") + " a token", prompt);
}

// What the figures must not be read without.
std::string Warnings(const books::RunFigures& f) {
  std::string text;
  if (f.bad_touches > 0)
    text += WithThousands(f.bad_touches) + " touches named no weight: the touched figures are wrong (a defect)\n";
  if (f.used_blas) text += "OpenBLAS ran: results may depend on the number of threads\n";
  return text;
}

}  // namespace

RunBooks BooksOf(const Loaded& loaded, const GenerateResult& result, const SamplingOptions& sampling, bool seed_drawn) {
  RunBooks books{.figures = MeasureRun(*loaded.engine, result),
                 .ended = FinishName(result.finish),
                 .load_seconds = loaded.seconds,
                 .first_token_seconds = result.first_token_seconds,
                 .peak_resident = PeakResidentBytes(),
                 .planned_memory = loaded.engine->memory_plan().total(),
                 .seed = sampling.seed,
                 .samples = sampling.temperature > 0,
                 .seed_drawn = seed_drawn};
  books.read_bandwidth = KeptReadBandwidth(books.figures);
  return books;
}

const char* FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength: return "length";
    case FinishReason::kEos: return "end of text";
    case FinishReason::kStop: return "stop string";
    case FinishReason::kContextFull: return "context full";
    case FinishReason::kInterrupted: return "interrupted";
    case FinishReason::kError: return "error";
  }
  return "?";
}

std::string ExpertWords(const books::RunFigures& f) {
  if (f.decode_tokens > 0) return "experts " + HitWords(f.decode_experts) + ", " + DiskOfToken(f);
  return "experts " + HitWords(f.prompt_experts) + ", " + Scaled(static_cast<double>(f.prompt_experts.disk_bytes), "B") +
         " from disk";
}

double MovedBytesPerToken(const books::RunFigures& f) {
  double bytes = 0;
  for (const ByteKind kind : kMovedBytes) bytes += f.bytes_per_token[static_cast<size_t>(kind)];
  return bytes;
}

Json FiguresJson(const GenerateResult& result, const RunBooks& books, const Engine& engine) {
  const books::RunFigures& f = books.figures;
  return {{"description", engine.model().Description()},
          {"tokens", result.tokens},
          {"finish", books.ended},
          {"prompt_tokens", result.prompt_tokens},
          {"generated_tokens", result.tokens.size()},
          {"load_seconds", books.load_seconds},
          {"first_token_seconds", result.first_token_seconds > 0 ? Json(result.first_token_seconds) : Json()},
          {"prompt_seconds", result.prompt_seconds},
          {"generate_seconds", result.generate_seconds},
          {"prompt_tokens_per_second", f.prompt_tokens_per_second},
          {"parameters", ParametersJson(f)},
          {"flops_per_token", Number(f.all.useful)},
          {"bytes_per_token", Number(MovedBytesPerToken(f))},
          {"seed", books.seed},
          {"threads", engine.threads()},
          {"target", engine.target()},
          {"context", engine.context()},
          {"memory_bytes", MemoryJson(engine)}};
}

std::optional<double> RatioOfBandwidth(const RunBooks& run) {
  const double used = run.figures.decode_gigabytes_per_second * 1e9;
  return run.read_bandwidth && used > 0 ? std::optional(used / *run.read_bandwidth) : std::nullopt;
}

std::string RunScreen(const RunBooks& run) {
  const books::RunFigures& f = run.figures;
  const auto prompt = static_cast<uint64_t>(std::max<int64_t>(0, f.prompt_tokens));
  return Line(Speed("prompt", prompt, f.prompt_tokens_per_second), Times(run)) +
         Line(Speed("decode", f.decode_tokens, f.decode_tokens_per_second), Bandwidth(run)) +
         (f.drafted > 0 ? DraftWords(f) + "\n" : "") +
         (f.forced_tokens > 0 ? Line(Speed("forced", f.forced_tokens, 0), "the grammar left no choice") : "") +
         (f.streams_experts() ? Experts(f) : "") + (f.streamed_layers > 0 ? Layers(f) : "") +
         Line(Work(run), "active(all) " + WithThousands(f.parameters.active_all) + " of " + WithThousands(f.parameters.total)) +
         Line("memory   peak RSS " + BytesText(run.peak_resident),
              "ended: " + run.ended + (run.seed_drawn && run.samples ? ", seed " + std::to_string(run.seed) : "")) +
         Warnings(f);
}

std::string RunTables(const RunBooks& run, const std::string& description) {
  std::string text = Printable(description) + "\n" + RunSummary(run.figures) + "\n" + Times(run) + "\n" + "peak RSS " +
                     BytesText(run.peak_resident) + ", planned " + BytesText(run.planned_memory) + "\n";
  if (const std::optional<double> ratio = RatioOfBandwidth(run)) {
    text += "decode: " + OfRoof(*ratio) + " of the " + ShortGigabytes(*run.read_bandwidth) + " that fit or bench measured\n";
  }
  text += "ended: " + run.ended + "\n" + (run.samples ? "seed: " + std::to_string(run.seed) + "\n" : "");
  return run.ranks.ranks.empty()
             ? text
             : text + "\nabove: of rank 0, but for the model's parameters; by rank:\n\n" + RanksText(run.ranks, kPlainWidth);
}

}  // namespace tally::app
