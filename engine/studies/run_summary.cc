// SPDX-License-Identifier: Apache-2.0
// The figures of a run as text.
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "engine/studies/summary.h"

namespace tally {
namespace {

using books::RunFigures;

constexpr int kByteRows[] = {static_cast<int>(ByteKind::kWeightsStored), static_cast<int>(ByteKind::kWeightsPacked),
                             static_cast<int>(ByteKind::kKvRead), static_cast<int>(ByteKind::kKvWritten)};
// Shown for models with recurrent layers only.
constexpr int kStateRows[] = {static_cast<int>(ByteKind::kStateRead), static_cast<int>(ByteKind::kStateWritten)};

uint64_t NotNegative(int64_t n) { return n > 0 ? static_cast<uint64_t>(n) : 0; }

void Print(std::string& out, const char* format, ...) __attribute__((format(printf, 2, 3)));
void Print(std::string& out, const char* format, ...) {
  char line[256];  // every line is bounded by its format: labels are ours, numbers have at most 27 characters
  va_list arguments;
  va_start(arguments, format);
  const int n = std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (n > 0) out.append(line, std::min<size_t>(static_cast<size_t>(n), sizeof line - 1));
}

// Three digits, and all before the point.
std::string Short(double x) {
  if (x >= 999.5) return books::WithThousands(x);
  std::string text;
  Print(text, "%.*f", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x);
  return text;
}

void PrintSpeed(std::string& out, const char* label, uint64_t tokens, double seconds, double rate) {
  const bool short_time = seconds < 0.9995;
  Print(out, "%-11s%12s tokens in%10s %-2s", label, books::WithThousands(tokens).c_str(),
        Short(short_time ? seconds * 1e3 : seconds).c_str(), short_time ? "ms" : "s");
  if (rate > 0) Print(out, "%12s tokens/s", Short(rate).c_str());
  out += '\n';
}

void PrintParameters(std::string& out, const char* label, double n, uint64_t total) {
  Print(out, "  %-28s%20s", label, books::WithThousands(n).c_str());
  if (total > 0) Print(out, "%10.2f %%", 100 * n / static_cast<double>(total));
  out += '\n';
}

// The arithmetic a class of work ran in.
std::string_view TypeOf(const RunFigures::Work& work) {
  std::string_view type;
  for (int a = 0; a < kAriths; ++a) {
    if (work.useful_by_type[a] > 0) type = type.empty() ? kArithNames[a] : "mixed";
  }
  return type;
}

void PrintWork(std::string& out, std::string_view label, const RunFigures::Work& work) {
  Print(out, "  %-14s%-6s%19s%19s%18s\n", std::string(label).c_str(), std::string(TypeOf(work)).c_str(),
        books::WithThousands(work.useful).c_str(), books::WithThousands(work.executed).c_str(),
        books::WithThousands(work.special).c_str());
}

}  // namespace

std::string RunSummary(const RunFigures& f) {
  std::string out;
  PrintSpeed(out, "prompt", NotNegative(f.prompt_tokens), f.prompt_seconds, f.prompt_tokens_per_second);
  PrintSpeed(out, "decoded", f.decode_tokens, f.generate_seconds, f.decode_tokens_per_second);
  if (f.forced_tokens > 0)
    Print(out, "%-11s%12s tokens, not drawn: the grammar left no other\n", "forced",
          books::WithThousands(f.forced_tokens).c_str());
  if (f.drafted > 0) {
    Print(out, "%-11s%12s tokens, accepted %s (%.0f %%), %.1f tokens a pass\n", "drafted",
          books::WithThousands(f.drafted).c_str(), books::WithThousands(f.accepted).c_str(),
          100 * static_cast<double>(f.accepted) / static_cast<double>(f.drafted),
          static_cast<double>(f.decode_tokens) / static_cast<double>(std::max<uint64_t>(1, f.decode_steps)));
    Print(out, "%-11s%12s FLOPs, %s bytes: part of what follows\n", "in vain", books::WithThousands(f.rejected_flops).c_str(),
          books::WithThousands(f.rejected_bytes).c_str());
  }
  if (f.predicting_flops > 0) {
    Print(out, "%-11s%12s FLOPs, %s bytes, the prompt's too\n", "predicting", books::WithThousands(f.predicting_flops).c_str(),
          books::WithThousands(f.predicting_bytes).c_str());
  }
  Print(out, "%-11s%12s tokens%s\n", "generated", books::WithThousands(NotNegative(f.generated_tokens)).c_str(),
        f.generated_tokens > 0 ? ", the first of them by the prompt's last row" : "");
  if (f.threads > 0 || !f.target.empty()) {
    out += "ran on";
    if (f.threads > 0) Print(out, " %d thread%s", f.threads, f.threads == 1 ? "" : "s");
    if (!f.target.empty()) Print(out, "%s %.40s kernels", f.threads > 0 ? "," : "", f.target.c_str());
    out += '\n';
  }
  if (f.used_blas) out += "OpenBLAS ran: results may depend on the number of threads\n";

  const uint64_t total = f.parameters.total;
  Print(out, "\nparameters\n");
  PrintParameters(out, "total", static_cast<double>(total), 0);
  if (f.decode_steps > 0) PrintParameters(out, "touched per decode step", f.touched_per_decode_step, total);
  PrintParameters(out, "touched in the whole run", static_cast<double>(f.touched_in_run), total);
  PrintParameters(out, "active(all)", static_cast<double>(f.parameters.active_all), total);
  PrintParameters(out, "active(head)", static_cast<double>(f.parameters.active_head), total);
  PrintParameters(out, "active(none)", static_cast<double>(f.parameters.active_none), total);
  out += "  all: embedding, positions and head counted; head: the head only; none: neither\n";
  if (f.tied) out += "  embedding and head are one matrix (tied), counted once\n";
  if (f.head_copy > 0) {
    Print(out, "  the head is stored too, a copy of the embedding: %s as stored\n",
          books::WithThousands(total + f.head_copy).c_str());
  }
  if (f.bad_touches > 0) {
    Print(out, "  %s touches named no weight: the touched figures are wrong (a defect)\n",
          books::WithThousands(f.bad_touches).c_str());
  }

  if (f.streamed_layers > 0) {
    Print(out, "\nlayers from disk%12s\n", books::WithThousands(f.streamed_layers).c_str());
    Print(out, "  prompt%20s bytes\n  decode%20s bytes\n", books::WithThousands(f.prompt_layer_bytes).c_str(),
          books::WithThousands(f.decode_layer_bytes).c_str());
    out += "  their matrices, once a step, whatever its rows\n";
  }
  if (f.streams_experts()) {
    Print(out, "\nexperts%21s%15s%15s%24s\n", "in memory", "from disk", "first uses", "bytes from disk");
    const auto uses = [&](const char* phase, const ExpertUses& u) {
      Print(out, "  %-10s%16s%15s%15s%24s\n", phase, books::WithThousands(u.hits).c_str(), books::WithThousands(u.misses).c_str(),
            books::WithThousands(u.first_uses).c_str(), books::WithThousands(u.disk_bytes).c_str());
    };
    uses("prompt", f.prompt_experts);
    uses("decode", f.decode_experts);
    out += "  each expert of a layer once a step, whatever its rows\n";
  }
  if (f.decode_tokens == 0) {
    out += "\nno decode step ran: nothing to say of a generated token\n";
    return out;
  }
  Print(out, "\nper generated token (mean of %s), FLOPs\n", books::WithThousands(f.decode_tokens).c_str());
  Print(out, "  %-14s%-6s%19s%19s%18s\n", "", "type", "useful", "executed", "special");
  for (int c = 0; c < kWorkClasses; ++c) {
    const RunFigures::Work& work = f.work[c];
    if (work.useful > 0 || work.executed > 0 || work.special > 0) PrintWork(out, kWorkClassNames[c], work);
  }
  PrintWork(out, "all", f.all);
  out += "  special: exp, divide, sqrt and their like, counted beside the FLOPs\n";

  Print(out, "\nper generated token, bytes\n");
  const auto row = [&](int k) {
    Print(out, "  %-28s%20s\n", std::string(kByteKindNames[k]).c_str(), books::WithThousands(f.bytes_per_token[k]).c_str());
  };
  const bool states = f.bytes_per_token[kStateRows[0]] > 0;
  for (const int k : kByteRows) row(k);
  for (const int k : kStateRows) {
    if (states) row(k);
  }
  if (f.streams()) row(static_cast<int>(ByteKind::kWeightsDisk));
  if (f.decode_gigabytes_per_second > 0) {
    Print(out, "  %-28s%20.2f GB/s\n", states ? "packed weights, KV, states" : "packed weights and KV",
          f.decode_gigabytes_per_second);
  }
  return out;
}

}  // namespace tally
