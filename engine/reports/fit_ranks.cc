// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/fit_ranks.h"

#include <algorithm>
#include <utility>

#include "engine/base/format.h"
#include "engine/render/table.h"
#include "engine/render/words.h"

namespace tally {
namespace {

std::string RankNeeds(uint64_t bytes) { return BytesText(bytes, Rounding::kUp); }
std::string Milliseconds(double seconds) { return seconds > 0 ? Fixed(seconds * 1e3, 2) : "-"; }
const FitRank& Largest(const RanksFit& f) { return f.ranks[f.largest]; }
const char* SplitText(const RanksFit& f) {
  return f.ranks.size() == 1 ? "-" : kFitSplitNames[static_cast<size_t>(f.split)].data();
}

}  // namespace

std::string FitRanksText(const FitRanksPage& page, size_t width) {
  Table t{page.name + ", " + page.type + ", a rank on each of several machines",
          {"ranks", "split", "fits", "largest", "weights", "KV", "scratch", "sent", "received", "gathers", "work ms",
           "network ms", "decode/s"},
          {},
          {false, true, true, true}};
  for (const RanksFit& f : page.fits) {
    const MemoryPlan& m = Largest(f).memory;
    uint64_t sent = 0, received = 0;
    for (const FitRank& r : f.ranks) {
      sent = std::max(sent, r.communication.sent);
      received = std::max(received, r.communication.received);
    }
    t.rows.push_back({std::to_string(f.ranks.size()), SplitText(f),
                      page.machine.available == 0 ? "-"
                      : f.fits                    ? "yes"
                                                  : "no",
                      "rank " + std::to_string(f.largest) + ", " + RankNeeds(m.total()), RankNeeds(m.packed_weights),
                      RankNeeds(m.kv), RankNeeds(m.scratch), WithThousands(sent), WithThousands(received),
                      WithThousands(f.gathers), Milliseconds(f.working), Milliseconds(f.communicating),
                      f.tokens_per_second > 0 ? Fixed(f.tokens_per_second, f.tokens_per_second < 10 ? 2 : 1) : "-"});
  }
  return Render(t, TableFormat::kText, width) + "\n" +
         Paragraph("",
                   "largest: the rank that needs most memory; sent, received: most bytes of a rank in a decode step; decode/s: "
                   "tokens/s, "
                   "at most, by the bytes that a rank reads and what its gathers take",
                   width, 0) +
         Paragraph("with",
                   "context " + WithThousands(page.options.context > 0 ? page.options.context : 4096) + ", " +
                       Counted(static_cast<int64_t>(page.options.batch), "sequence") + ", " +
                       Scaled(page.network.bandwidth * 8, "bit/s") + " each way, " + Fixed(page.network.latency * 1e6, 0) +
                       " us a gather",
                   width);
}

Value FitRanksJson(const FitRanksPage& page) {
  const Value all = Value::ListOf(page.fits, [&](const RanksFit& f) -> Value {
    const Value ranks = Value::ListOf(f.ranks, [](const FitRank& r) -> Value {
      return {{"packed_weights", r.memory.packed_weights},
              {"kv", r.memory.kv},
              {"scratch", r.memory.scratch},
              {"total", r.memory.total()},
              {"read_bytes", r.bytes},
              {"sent_bytes", r.communication.sent},
              {"received_bytes", r.communication.received},
              {"messages_sent", r.communication.messages_sent},
              {"messages_received", r.communication.messages_received}};
    });
    return {{"ranks", f.ranks.size()},
            {"split", SplitText(f)},
            {"fits", page.machine.available > 0 ? Value(f.fits) : Value(nullptr)},
            {"largest", f.largest},
            {"gathers", f.gathers},
            {"work_seconds", f.working},
            {"network_seconds", f.communicating},
            {"decode_tokens_per_second", f.tokens_per_second > 0 ? Value(f.tokens_per_second) : Value(nullptr)},
            {"by_rank", ranks}};
  });
  return {{"name", page.name},
          {"type", page.type},
          {"network_bytes_per_second", page.network.bandwidth},
          {"latency_seconds", page.network.latency},
          {"fits", all}};
}

Status CheckFits(const FitRanksPage& page) {
  if (std::ranges::any_of(page.fits, [](const RanksFit& f) { return f.fits; })) return {};
  const auto least = std::ranges::min_element(page.fits, {}, [](const RanksFit& f) { return Largest(f).memory.total(); });
  const MemoryPlan& m = Largest(*least).memory;
  return BadInput(page.name + " does not fit on " + Counted(static_cast<int64_t>(least->ranks.size()), "machine") + ": rank " +
                  std::to_string(least->largest) + " needs " + RankNeeds(m.packed_weights) + " of weights + " + RankNeeds(m.kv) +
                  " of KV cache + " + RankNeeds(m.scratch) + " of scratch = " + RankNeeds(m.total()) + ", of " +
                  BytesText(m.available, Rounding::kDown) + " available");
}

}  // namespace tally
