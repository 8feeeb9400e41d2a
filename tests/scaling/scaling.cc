// SPDX-License-Identifier: Apache-2.0
#include "tests/scaling/scaling.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include "engine/base/amx.h"
#include "engine/page/charts.h"
#include "engine/page/figure.h"
#include "engine/recipe/shard.h"
#include "engine/session/split.h"
#include "engine/studies/count.h"
#include "engine/studies/fit.h"
#include "engine/studies/fit_parts.h"

namespace tally {
namespace {

using books::WithThousands;

constexpr std::array<const char*, 3> kModels = {"gpt-oss-120b", "Qwen3-235B-A22B", "DeepSeek-V3"};
constexpr std::array<const char*, 3> kTypes = {"", "Q4_K_M", "Q4_K_M"};  // "": as published
constexpr std::array<int32_t, 7> kRanks = {1, 2, 4, 8, 16, 32, 64};
constexpr const char* kMachine = "ram=128GiB,read=200GB/s,int8=4T,bf16=2T,f32=1T,threads=32";
struct Cable {
  const char *name, *bandwidth, *latency;
};
constexpr std::array<Cable, 4> kNetworks = {{{"10 Gbit/s, 30 us", "10Gbit", "30us"},
                                             {"25 Gbit/s, 20 us", "25Gbit", "20us"},
                                             {"100 Gbit/s, 10 us", "100Gbit", "10us"},
                                             {"400 Gbit/s, 5 us", "400Gbit", "5us"}}};
constexpr double kKnee = 1.25;  // what doubling the machines must bring to be worth it

std::string Number(double x, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  return text;
}
std::string Rate(double x) { return Number(x, x < 10 ? 2 : 1); }

struct Point {
  std::array<RanksFit, 2> of;  // by split
  double Rate(size_t split, const FitNetwork& n) const {
    return of[split].working > 0 ? 1 / (of[split].working + of[split].load.Seconds(n)) : 0;
  }
  size_t Best(const FitNetwork& n) const {
    if (of[0].fits != of[1].fits) return of[0].fits ? 0 : 1;
    return Rate(1, n) > Rate(0, n) ? 1 : 0;
  }
};

CountedModel Counted(const char* name, std::string_view type) {
  Result<CountedModel> counted = CountModel({.model = name, .settings = {}, .options = {}});
  if (counted.ok() && !type.empty()) counted = CountedAs(*counted, type);
  return counted.ok() ? std::move(counted).value() : CountedModel();
}

// One row for each gather of a decode step, like ones together.
std::string FormsTable(const CountedModel& model, FitSplit split, const FitMachine& machine) {
  const Recipe& recipe = model.count.recipe;
  const bool owned = split == FitSplit::kExperts;
  constexpr int32_t kShown = 4;
  std::vector<books::RankRows> rows(kShown);
  rows[0].embedded = 1;
  for (books::RankRows& r : rows) r.routed.assign(recipe.layers.size(), static_cast<uint64_t>(recipe.all.experts.top_k) / kShown);
  const Shard shard{.rank = 0, .ranks = kShown, .whole_mixers = owned, .own_experts = owned};
  const Result<PackedViews> packed = PackedOf(model, shard);
  if (!packed.ok()) return "";
  const auto gathered = [&](Role role, int32_t layer) {
    return GatheredAs(packed->View(recipe, role, layer).dtype, ActivationMode::kAuto, machine.bf16_dots);
  };
  struct Like {
    uint64_t times = 0, received = 0;
  };
  std::vector<std::string> order;
  std::map<std::string, Like> likes;
  for (const books::CommunicationForm& f : books::CommunicationForms(recipe, shard, {.context = 4096}, rows, gathered)) {
    const std::string key = std::string(ComponentName(f.component)) + " | " + f.sent.text() + " | " + f.received.text() + " | ";
    if (likes.find(key) == likes.end()) order.push_back(key);
    ++likes[key].times;
    likes[key].received += f.received.value();
  }
  std::string text =
      "| after | a rank sends | a rank receives | gathers | bytes received, rank 0 of 4 |\n| --- | --- | --- | ---: | ---: |\n";
  for (const std::string& key : order) {
    text += "| " + key + WithThousands(likes[key].times) + " | " + WithThousands(likes[key].received) + " |\n";
  }
  return text;
}

}  // namespace

Page ScalingPage() {
  UseAmx(false);  // the kernels' scratch is that of machines without tiles, wherever the page is printed
  Page page;
  std::string& text = page.text;
  text =
      "# One model over many machines\n\nWhat do ranks send each other, and how many machines help?\n\n"
      "Written by build/release/tests/scaling/scaling_page; scaling_page_test compares. docs/mpi.md says how several machines "
      "are used.\n\n"
      "## Bytes and messages of a step\n\n"
      "A gather gives each of Z ranks the whole of a matrix of which each has computed a part: a rank sends its part to Z - 1 "
      "others, a message\n"
      "each, and receives theirs. What a product reads next is sent as the product reads it, if every rank has whole blocks of "
      "it: 44/32 is 44\n"
      "bytes for 32 elements (int8 codes, a scale, sums), 4/2 bf16. All else is f32, 4 bytes an element. own(n) is the rank's "
      "part of n columns,\n"
      "R_o the rows whose embedding it has, M the rows routed to its experts; counters/books/communication.h has the other "
      "symbols where\n"
      "closed_form.h does not. Logits go to rank 0 alone. A step has two messages more, by which ranks keep in step: 1,024 "
      "bytes to each rank,\n"
      "and 8 from each.\n\n"
      "`mpirun -n N tally audit MODEL` compares these forms with the ledger of every rank, site by site; "
      "tests/goldens/shards_test does so for\n"
      "every family of the catalogue on 2, 3, 4 and 7 ranks. tests/mpi/witness_test compares the ledgers with the bytes that a "
      "witness between\n"
      "program and MPI saw.\n\n";
  std::array<CountedModel, kModels.size()> models;
  for (size_t m = 0; m < kModels.size(); ++m) models[m] = Counted(kModels[m], kTypes[m]);
  Result<FitMachine> machine = ParseMachine(kMachine);
  if (!machine.ok()) return page;
  text += "All outputs divided (`rows`), " + std::string(kModels[0]) + ", a decoded token:\n\n" +
          FormsTable(models[0], FitSplit::kRows, *machine);
  text += "\nExperts by owner, all else on every rank (`experts`):\n\n" + FormsTable(models[0], FitSplit::kExperts, *machine);

  text += "\n## Predictions\n\nDecode of one sequence at position 4,096, tokens/s, at most: every machine has " +
          std::string(kMachine) +
          " (invented, the same for\nall; `tally fit MODEL --ranks 2,4,8 --machine ... --network ... --latency ...` takes "
          "yours). A step takes what the rank that reads most takes to read its\n"
          "weights and cache, and for each gather the latency and the bytes of the rank that has most over the bandwidth; "
          "nothing overlaps. Experts are\n"
          "chosen evenly; with experts by owner the busiest rank has more than its share of them. The faster split is shown: r "
          "rows, e experts. The knee is the\n"
          "last number of machines that brought at least " +
          Number(kKnee, 2) + " times what half as many do.\n";
  FitOptions options{.context = 4096, .prompt = 1};
  for (size_t m = 0; m < kModels.size() && machine.ok(); ++m) {
    std::vector<Point> points;
    for (const int32_t n : kRanks) {
      Point p;
      for (const FitSplit split : {FitSplit::kRows, FitSplit::kExperts}) {
        Result<RanksFit> fit = FitRanks(models[m], options, *machine, {}, n, split);
        if (fit.ok()) p.of[static_cast<size_t>(split)] = std::move(fit).value();
      }
      points.push_back(std::move(p));
    }
    text += "\n### " + std::string(kModels[m]) + ", " + models[m].stored_as + "\n\n| machines | memory, largest |";
    for (const Cable& n : kNetworks) text += std::string(" ") + n.name + " |";
    text += " gathers r, e | bytes r, e |\n| ---: | ---: |";
    for (size_t i = 0; i < kNetworks.size(); ++i) text += " ---: |";
    text += " ---: | ---: |\n";
    page::LineChart chart;
    chart.x_name = "machines";
    chart.y_name = "tokens/s";
    Table data{"decode tokens/s by machines", {"machines"}, {}};
    for (size_t i = 0; i < kRanks.size(); ++i) {
      const Point& p = points[i];
      const auto memory = [&](size_t split) { return p.of[split].ranks[p.of[split].largest].memory.total(); };
      text += "| " + std::to_string(kRanks[i]) + " | " + Number(static_cast<double>(memory(0)) / (1 << 30), 1) + " GiB" +
              (p.of[0].fits ? "" : ", too much") + " |";
      chart.x.push_back(kRanks[i]);
      data.rows.push_back({Cell(std::to_string(kRanks[i]), kRanks[i])});
      for (size_t k = 0; k < kNetworks.size(); ++k) {
        const FitNetwork network{ParseBandwidth(kNetworks[k].bandwidth), ParseLatency(kNetworks[k].latency)};
        const size_t best = p.Best(network);
        const double rate = p.Rate(best, network);
        text += " " + Rate(rate) + (kRanks[i] == 1 ? "" : best == 0 ? " r" : " e") + " |";
        if (i == 0) {
          chart.series.push_back({kNetworks[k].name, {}, k + 1 == kNetworks.size() ? "accent" : "grey"});
          data.columns.push_back(kNetworks[k].name);
        }
        chart.series[k].values.push_back(rate);
        data.rows.back().push_back(Cell(Rate(rate), rate));
      }
      text += " " + std::to_string(p.of[0].load.waits) + ", " + std::to_string(p.of[1].load.waits) + " | " +
              WithThousands(p.of[0].load.bytes) + ", " + WithThousands(p.of[1].load.bytes) + " |\n";
    }
    text += "| knee | |";
    for (const page::LineChart::Series& s : chart.series) {
      size_t knee = 0;
      while (knee + 1 < s.values.size() && s.values[knee + 1] >= kKnee * s.values[knee]) ++knee;
      text += " " + std::to_string(kRanks[knee]) + " |";
    }
    text += " | |\n";
    std::string name = "scaling-" + std::string(kModels[m]) + ".svg";
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    text += "\n![decode tokens/s of " + std::string(kModels[m]) + " by number of machines](" + name + ")\n";
    page::Figure figure{.name = "scaling",
                        .title = std::string(kModels[m]) + " over several machines",
                        .summary = "Decode tokens/s, at most, by number of machines and network.",
                        .draw = page::Drawn(std::move(chart), page::DrawLines),
                        .data = std::move(data)};
    page.drawings.emplace_back(name, page::FigureSvg(figure));
  }
  return page;
}

}  // namespace tally
