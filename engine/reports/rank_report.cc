// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/rank_report.h"

#include <algorithm>
#include <utility>

#include "engine/base/format.h"
#include "engine/render/fields.h"
#include "engine/render/words.h"

namespace tally {
namespace {

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

Fields<Rank> Held() {
  return {{"process", "", &Rank::process},
          {"parameters", "parameters", &Rank::parameters},
          {"copied_parameters", "copied", &Rank::copied_parameters},
          {"stored_bytes", "stored bytes", &Rank::stored_bytes},
          {"packed_bytes", "packed bytes", &Rank::packed_bytes}};
}

bool Stream(const std::vector<Rank>& ranks) {
  return std::ranges::any_of(ranks, [](const Rank& r) { return r.useful.Bytes(ByteKind::kWeightsDisk) > 0; });
}

// `streams`: some bytes come from disk.
Fields<Rank> Work(double per, bool streams) {
  const auto flops = [per](Cost Rank::*cost) {
    return [=](const Rank& r) { return WholeCell(Each((r.*cost).TotalFlops(), per)); };
  };
  const auto bytes = [per](ByteKind kind) { return [=](const Rank& r) { return WholeCell(Each(r.useful.Bytes(kind), per)); }; };
  Fields<Rank> fields = {
      {nullptr, "", &Rank::process},
      {"flops", "FLOPs", flops(&Rank::useful)},
      {"copied_flops", "copied", flops(&Rank::copied)},
      {"executed_flops", "executed", flops(&Rank::executed)},
      {"weight_bytes", "weight bytes", bytes(ByteKind::kWeightsPacked)},
      {"cache_bytes", "cache bytes", [per](const Rank& r) { return WholeCell(Each(CacheBytes(r.useful), per)); }},
      {"sent_bytes", "sent", bytes(ByteKind::kSent)},
      {"received_bytes", "received", bytes(ByteKind::kReceived)}};
  if (streams) fields.push_back({"disk_bytes", "from disk", bytes(ByteKind::kWeightsDisk)});
  return fields;
}

Fields<AuditReport::Copy> Copies() {
  using Copy = AuditReport::Copy;
  return {{"component", "site", [](const Copy& c) { return ComponentName(c.component); }},
          {"parameters", "parameters", &Copy::parameters},
          {"flops", "FLOPs", [](const Copy& c) { return c.work.TotalFlops(); }},
          {"special", "special", [](const Copy& c) { return c.work.TotalSpecial(); }},
          {"weight_bytes", "weight bytes", [](const Copy& c) { return c.work.Bytes(ByteKind::kWeightsStored); }},
          {"cache_bytes", "cache bytes", [](const Copy& c) { return CacheBytes(c.work); }}};
}

std::vector<AuditReport::Copy> CopiesOf(const AuditReport& report) {
  std::vector<AuditReport::Copy> copies = report.copies;
  std::erase_if(copies, IsNone);
  return copies;
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
  std::string text =
      Render(TableOf("held by rank", Held(), rows), TableFormat::kText, width) + "\n" +
      Render(TableOf("work by rank, " + books.work_of, Work(books.per, Stream(rows)), rows), TableFormat::kText, width);
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

Value RanksJson(const RankBooks& books) {
  Value all = Value::Array();
  const auto both = [](const ProcessBooks::Traffic& t) { return Value{{"sent", t.sent}, {"received", t.received}}; };
  const bool streams = Stream(books.ranks);
  for (size_t i = 0; i < books.ranks.size(); ++i) {
    Value& rank = all.Add(ObjectOf(Held(), books.ranks[i]));
    rank.Update(ObjectOf(Work(books.per, streams), books.ranks[i]));
    if (books.traffic.empty()) continue;
    const RankBooks::Traffic& t = books.traffic[i];
    rank["traffic"] = {
        {"start", both(t.start)}, {"gathers", both(t.model)}, {"commands", both(t.commands)}, {"these_books", t.books}};
  }
  return all;
}

std::string AuditRanksText(const AuditReport& report, size_t width) {
  if (report.ranks.empty()) return "";
  const RankBooks books{report.ranks, 1, "of all steps"};
  const Rank all = SumOf(report.ranks);
  return RanksText(books, width) + "\n" +
         Render(TableOf("held or done by several ranks, without the first of them", Copies(), CopiesOf(report)),
                TableFormat::kText, width) +
         "\n" +
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

Value AuditRanksJson(const AuditReport& report) {
  return {{"ranks", RanksJson({report.ranks, 1, ""})},
          {"copies", ObjectsOf(Copies(), CopiesOf(report))},
          {"packed_alone", report.packed_alone},
          {"packed_copies", report.packed_copies},
          {"packed_padding", report.packed_padding}};
}

}  // namespace tally
