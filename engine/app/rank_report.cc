// SPDX-License-Identifier: Apache-2.0
#include "engine/app/rank_report.h"

#include <algorithm>
#include <utility>

#include "engine/app/numbers.h"
#include "engine/app/table.h"
#include "engine/app/words.h"

namespace tally::app {
namespace {

using books::WithThousands;
using Rank = AuditReport::Rank;

double Each(uint64_t n, double per) { return per > 0 ? static_cast<double>(n) / per : 0; }

uint64_t CacheBytes(const Cost& c) {
  uint64_t sum = 0;
  for (const ByteKind kind : {ByteKind::kKvRead, ByteKind::kKvWritten, ByteKind::kStateRead, ByteKind::kStateWritten}) {
    sum += c.Bytes(kind);
  }
  return sum;
}

// Activations alone, which every process reads for itself.
bool IsNone(const AuditReport::Copy& c) {
  return c.parameters == 0 && c.work.TotalFlops() == 0 && c.work.TotalSpecial() == 0 && CacheBytes(c.work) == 0 &&
         c.work.Bytes(ByteKind::kWeightsStored) == 0;
}

Rank SumOf(const std::vector<Rank>& ranks) {
  Rank sum;
  sum.process = "all";
  for (const Rank& r : ranks) {
    sum.parameters += r.parameters;
    sum.copied_parameters += r.copied_parameters;
    sum.stored_bytes += r.stored_bytes;
    sum.packed_bytes += r.packed_bytes;
    sum.useful += r.useful;
    sum.copied += r.copied;
    sum.executed += r.executed;
  }
  return sum;
}

Json RankJson(const Rank& r, double per) {
  return {{"process", r.process},
          {"parameters", r.parameters},
          {"copied_parameters", r.copied_parameters},
          {"stored_bytes", r.stored_bytes},
          {"packed_bytes", r.packed_bytes},
          {"flops", Number(Each(r.useful.TotalFlops(), per))},
          {"copied_flops", Number(Each(r.copied.TotalFlops(), per))},
          {"executed_flops", Number(Each(r.executed.TotalFlops(), per))},
          {"weight_bytes", Number(Each(r.useful.Bytes(ByteKind::kWeightsPacked), per))},
          {"cache_bytes", Number(Each(CacheBytes(r.useful), per))},
          {"sent_bytes", Number(Each(r.useful.Bytes(ByteKind::kSent), per))},
          {"received_bytes", Number(Each(r.useful.Bytes(ByteKind::kReceived), per))}};
}

}  // namespace

Result<RankBooks> RankBooksOf(Engine& engine) {
  TALLY_ASSIGN_OR_RETURN(const std::vector<ProcessBooks> books, engine.Books());
  RankBooks all{.per = static_cast<double>(engine.ledger().rows(Phase::kDecode)), .work_of = "a decoded token"};
  if (books.size() < 2) return all;
  for (const ProcessBooks& b : books) {
    Rank rank{b.process, b.parameters, b.copied_parameters, b.stored_bytes, b.packed_bytes, {}, {}, {}};
    RankBooks::Traffic traffic{.start = b.start, .books = b.message_bytes};
    for (const SiteAccount& a : b.accounts) {
      traffic.model.sent += a.account.useful.Bytes(ByteKind::kSent);
      traffic.model.received += a.account.useful.Bytes(ByteKind::kReceived);
      if (a.phase != Phase::kDecode) continue;
      rank.useful += a.account.useful;
      rank.copied += a.account.copied;
      rank.executed += a.account.executed;
    }
    all.ranks.push_back(std::move(rank));
    traffic.commands = {b.all.sent - b.start.sent - traffic.model.sent,
                        b.all.received - b.start.received - traffic.model.received};
    all.traffic.push_back(traffic);
  }
  return all;
}

std::string RanksText(const RankBooks& books, size_t width) {
  if (books.ranks.empty()) return "";
  std::vector<Rank> rows = books.ranks;
  rows.push_back(SumOf(books.ranks));
  Table held{"held by rank", {"", "parameters", "copied", "stored bytes", "packed bytes"}, {}, {true}};
  Table work{"work by rank, " + books.work_of,
             {"", "FLOPs", "copied", "executed", "weight bytes", "cache bytes", "sent", "received"},
             {},
             {true}};
  for (const Rank& r : rows) {
    held.rows.push_back({r.process, WithThousands(r.parameters), WithThousands(r.copied_parameters),
                         WithThousands(r.stored_bytes), WithThousands(r.packed_bytes)});
    const auto each = [&](uint64_t n) { return WithThousands(Each(n, books.per)); };
    work.rows.push_back({r.process, each(r.useful.TotalFlops()), each(r.copied.TotalFlops()), each(r.executed.TotalFlops()),
                         each(r.useful.Bytes(ByteKind::kWeightsPacked)), each(CacheBytes(r.useful)),
                         each(r.useful.Bytes(ByteKind::kSent)), each(r.useful.Bytes(ByteKind::kReceived))});
  }
  std::string text = Render(held, TableFormat::kText, width) + "\n" + Render(work, TableFormat::kText, width);
  if (books.traffic.empty()) return text;
  Table traffic{"bytes between ranks, sent and received: start, the model's gathers (the ledger), commands and answers",
                {"", "start", "", "gathers", "", "commands", ""},
                {},
                {true}};
  for (size_t r = 0; r < books.traffic.size(); ++r) {
    traffic.rows.push_back({books.ranks[r].process});
    for (const ProcessBooks::Traffic& t : {books.traffic[r].start, books.traffic[r].model, books.traffic[r].commands}) {
      traffic.rows.back().push_back(WithThousands(t.sent));
      traffic.rows.back().push_back(WithThousands(t.received));
    }
  }
  return text + "\n" + Render(traffic, TableFormat::kText, width);
}

Json RanksJson(const RankBooks& books) {
  Json all = Json::array();
  const auto both = [](const ProcessBooks::Traffic& t) { return Json{{"sent", t.sent}, {"received", t.received}}; };
  for (size_t i = 0; i < books.ranks.size(); ++i) {
    all.push_back(RankJson(books.ranks[i], books.per));
    if (books.traffic.empty()) continue;
    const RankBooks::Traffic& t = books.traffic[i];
    all.back()["traffic"] = {
        {"start", both(t.start)}, {"gathers", both(t.model)}, {"commands", both(t.commands)}, {"these_books", t.books}};
  }
  return all;
}

std::string AuditRanksText(const AuditReport& report, size_t width) {
  if (report.ranks.empty()) return "";
  const RankBooks books{report.ranks, 1, "of all steps"};
  Table copies{"held or done by several ranks, without the first of them",
               {"site", "parameters", "FLOPs", "special", "weight bytes", "cache bytes"},
               {},
               {true}};
  for (const AuditReport::Copy& c : report.copies) {
    if (IsNone(c)) continue;
    copies.rows.push_back({std::string(ComponentName(c.component)), WithThousands(c.parameters),
                           WithThousands(c.work.TotalFlops()), WithThousands(c.work.TotalSpecial()),
                           WithThousands(c.work.Bytes(ByteKind::kWeightsStored)), WithThousands(CacheBytes(c.work))});
  }
  const Rank all = SumOf(report.ranks);
  return RanksText(books, width) + "\n" + Render(copies, TableFormat::kText, width) + "\n" +
         Paragraph("packed",
                   WithThousands(all.packed_bytes) + " bytes = " + WithThousands(report.packed_alone) + " of one process + " +
                       WithThousands(report.packed_copies) + " of copies + " + WithThousands(report.packed_padding) +
                       " that pad the panels of parts",
                   width) +
         Paragraph("executed",
                   WithThousands(all.executed.TotalFlops()) + " FLOPs; useful " + WithThousands(all.useful.TotalFlops()) + ", " +
                       WithThousands(all.copied.TotalFlops()) +
                       " of them copied; padding, masked lanes and quantisation take the rest",
                   width);
}

Json AuditRanksJson(const AuditReport& report) {
  Json copies = Json::array();
  for (const AuditReport::Copy& c : report.copies) {
    if (IsNone(c)) continue;
    copies.push_back({{"component", ComponentName(c.component)},
                      {"parameters", c.parameters},
                      {"flops", c.work.TotalFlops()},
                      {"special", c.work.TotalSpecial()},
                      {"weight_bytes", c.work.Bytes(ByteKind::kWeightsStored)},
                      {"cache_bytes", CacheBytes(c.work)}});
  }
  return {{"ranks", RanksJson({report.ranks, 1, ""})},
          {"copies", std::move(copies)},
          {"packed_alone", report.packed_alone},
          {"packed_copies", report.packed_copies},
          {"packed_padding", report.packed_padding}};
}

}  // namespace tally::app
