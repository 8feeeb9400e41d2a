// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/count_layers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/render/words.h"
#include "engine/reports/count_report.h"
#include "engine/studies/count_figures.h"

namespace tally {
namespace {

using books::Count;

// FLOPs of a token of a step of so many.
Cell TokenCell(const books::Figure<uint64_t>& flops, uint64_t tokens) {
  const std::optional<uint64_t> n = flops.number();
  if (!n) return "partial";
  if (*n == 0) return "";
  return WholeCell(static_cast<double>(*n) / static_cast<double>(tokens));
}

Cell CountOrBlank(uint64_t n) { return n > 0 ? CountCell(n) : Cell(""); }

// "; total (run) and all that is behind it: without Qwen3.5-27B's visual".
std::string NotRunText(std::span<const CountedModel> models) {
  std::vector<std::string> parts;
  for (const CountedModel& m : models) {
    for (const PartNotRun& p : m.not_run) {
      std::string part = m.name + "'s " + p.name;
      if (p.parameters != 0u && std::ranges::find(parts, part) == parts.end()) parts.push_back(std::move(part));
    }
  }
  return "; total (run), and all that stands behind it: without what nothing runs here, which is " + Join(parts, ", ");
}

uint64_t PrefillTokens(const Count& c) { return c.options.batch * c.options.prompt; }

}  // namespace

Table LayerTable(const CountedModel& m) {
  const Count& c = m.count;
  Table t{m.name + ": layers; FLOPs a token of a prefill of P = " + WithThousands(c.options.prompt) +
              ", the head at every position, and of a decode token that sees S = " + WithThousands(c.options.context) +
              ": everything, and matmul, causal; KV: bytes of a position, " + KvNameOf(c),
          {"layer", "mixer", "feed-forward", "parameters", "active(all)", "KV", "prefill, everything", "prefill, matmul",
           "decode, everything", "decode, matmul"},
          {},
          {true, true, true}};
  LayerCost all;
  for (const LayerCost& l : LayerCosts(c)) {
    t.rows.push_back({l.layer < 0 ? Cell("outside") : Cell(std::to_string(l.layer), l.layer), l.mixer, l.network,
                      CountOrBlank(l.parameters), CountOrBlank(l.active), CountOrBlank(l.kv_bytes),
                      TokenCell(l.prefill, PrefillTokens(c)), TokenCell(l.prefill_matmul, PrefillTokens(c)),
                      TokenCell(l.decode, c.options.batch), TokenCell(l.decode_matmul, c.options.batch)});
  }
  const auto total = [](const books::FlopsCount& step, books::FlopsView view) { return step.total[static_cast<size_t>(view)]; };
  t.rows.push_back({"all", "", "", CountCell(c.parameters.total), CountCell(c.parameters.active_all),
                    CountOrBlank(c.kv_bytes_per_token),
                    TokenCell(total(c.prefill, books::FlopsView::kEverything), PrefillTokens(c)),
                    TokenCell(total(c.prefill, books::FlopsView::kCausal), PrefillTokens(c)),
                    TokenCell(total(c.decode, books::FlopsView::kEverything), c.options.batch),
                    TokenCell(total(c.decode, books::FlopsView::kCausal), c.options.batch)});
  return WithoutEmptyColumns(t);
}

Value LayersJson(const Count& c) {
  return Value::ListOf(LayerCosts(c), [](const LayerCost& l) -> Value {
    const auto flops = [](const books::Figure<uint64_t>& matmul, const books::Figure<uint64_t>& everything) -> Value {
      return {{"matmul_causal", matmul.number()}, {"everything", everything.number()}};
    };
    return {{"layer", l.layer < 0 ? Value() : Value(l.layer)},
            {"mixer", l.mixer},
            {"feed_forward", l.network},
            {"parameters", l.parameters},
            {"active", l.active},
            {"kv", l.kv_bytes},
            {"prefill", flops(l.prefill_matmul, l.prefill)},
            {"decode", flops(l.decode_matmul, l.decode)}};
  });
}

Table PaperTable(std::span<const CountedModel> models) {
  struct SweptOption {
    const char *symbol, *what;
    uint64_t books::CountOptions::*of;
  };
  constexpr SweptOption kSettings[] = {{"P", "positions of the prefill", &books::CountOptions::prompt},
                                       {"S", "positions that the decode token sees", &books::CountOptions::context},
                                       {"B", "sequences", &books::CountOptions::batch}};
  const Count& first = models.front().count;
  std::string title =
      "Parameters: total, and those of a token by three conventions (active(all): embedding, positions and head counted; "
      "active(head): only the head of these; active(none): none of these). Bytes of the weights, and of a token in a KV cache "
      "of " +
      KvNameOf(first) +
      ". FLOPs of a token, in the prefill and in a decode step: everything, and matrix products (matmul, causal)";
  std::vector<SweptOption> columns;  // those that differ
  for (const SweptOption& s : kSettings) {
    const bool same =
        std::ranges::all_of(models, [&](const CountedModel& m) { return m.count.options.*s.of == first.options.*s.of; });
    if (!same) columns.push_back(s);
    title += std::string("; ") + s.symbol + (same ? " = " + WithThousands(first.options.*s.of) : std::string()) + ", " + s.what;
  }
  const bool parts = std::ranges::any_of(models, &CountedModel::counts_part);
  Table t{title + (parts ? NotRunText(models) : "") + ".", {"model"}, {}, {true}};
  if (std::ranges::any_of(models, [](const CountedModel& m) { return m.count.prediction > 0; })) {
    t.title += " Layers for multi-token prediction are left out.";
  }
  for (const SweptOption& s : columns) t.columns.emplace_back(s.symbol);
  if (parts) t.columns.emplace_back("total");
  for (const char* column :
       {parts ? "total (run)" : "total", "active(all)", "active(head)", "active(none)", "weights", "KV a token",
        "prefill, everything", "prefill, matmul, causal", "decode, everything", "decode, matmul, causal"}) {
    t.columns.emplace_back(column);
  }
  for (const CountedModel& m : models) {
    const Count& c = m.count;
    const auto number = [](uint64_t n) { return Cell(ShortCount(static_cast<double>(n)), n); };
    const auto bytes = [](uint64_t n) { return Cell(Scaled(static_cast<double>(n), "B"), n); };
    const auto flops = [](const books::Figure<double>& f) { return FigureCell(f, [](double x) { return Scaled(x, ""); }); };
    const TokenCost prefill = PrefillCost(c), decode = DecodeCost(c);
    std::vector<Cell> row = {m.name};
    for (const SweptOption& s : columns) row.push_back(CountCell(c.options.*s.of));
    if (parts) {
      const std::optional<uint64_t> all = m.all_parameters();
      row.push_back(all ? number(*all) : Cell("not counted"));
    }
    for (Cell cell :
         {number(c.parameters.total), number(c.parameters.active_all), number(c.parameters.active_head),
          number(c.parameters.active_none), bytes(c.weight_bytes), bytes(c.kv_bytes_per_token), Cell(flops(prefill.flops[2])),
          Cell(flops(prefill.flops[1])), Cell(flops(decode.flops[2])), Cell(flops(decode.flops[1]))}) {
      row.push_back(std::move(cell));
    }
    t.rows.push_back(std::move(row));
  }
  return t;
}

}  // namespace tally
