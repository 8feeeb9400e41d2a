// SPDX-License-Identifier: Apache-2.0
#include "engine/session/group.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "engine/machine/communicator.h"
#include "engine/session/commands.h"

namespace tally {
namespace {

// A first message of fixed size: the commands of most steps are shorter. It holds their length and as many of them as fit.
constexpr size_t kFirst = 1024;
using First = std::array<uint8_t, kFirst>;
constexpr size_t kInFirst = kFirst - sizeof(uint64_t);

// A row of a step in few bytes.
struct SentRow {
  int32_t token, sequence, bill;
  bool want_logits, generated, again, draft, want_hidden, more;
};
// What a row is besides a token; its embedding follows.
struct SentMore {
  RowIdentity identity;
  RowPosition position;
  RowSpan both_ways;
};

}  // namespace

void CommandArgument<std::span<const BatchRow>>::Put(CommandWriter& out, std::span<const BatchRow> rows) {
  out.Put(static_cast<uint64_t>(rows.size()));
  for (const BatchRow& r : rows) {
    const bool more =
        !r.embedding.empty() || r.identity != RowIdentity() || r.position != RowPosition() || r.both_ways != RowSpan();
    out.Put(SentRow{r.token, r.sequence, r.bill, r.want_logits, r.generated, r.again, r.draft, r.want_hidden, more});
    if (more) out.Put(SentMore{r.identity, r.position, r.both_ways}).PutAll(r.embedding);
  }
}

CommandArgument<std::span<const BatchRow>>::Kept CommandArgument<std::span<const BatchRow>>::Get(CommandReader& in) {
  Kept kept;
  for (uint64_t left = in.Get<uint64_t>(); left > 0 && !in.empty(); --left) {
    const SentRow sent = in.Get<SentRow>();
    BatchRow& row = kept.rows_.emplace_back();
    row.token = sent.token;
    row.sequence = sent.sequence;
    row.bill = sent.bill;
    row.want_logits = sent.want_logits;
    row.generated = sent.generated;
    row.again = sent.again;
    row.draft = sent.draft;
    row.want_hidden = sent.want_hidden;
    if (!sent.more) continue;
    const SentMore more = in.Get<SentMore>();
    row.identity = more.identity;
    row.position = more.position;
    row.both_ways = more.both_ways;
    row.embedding = kept.embeddings_.emplace_back(in.GetAll<float>());
  }
  return kept;
}

uint64_t RanksHere(const Communicator* group) {
  if (group == nullptr) return 1;
  uint64_t n = 0;
  for (int r = 0; r < group->ranks(); ++r) n += group->Host(r) == group->Host(group->rank()) ? 1 : 0;
  return n;
}

void WriteCost(const Cost& cost, CommandWriter& out) {
  uint64_t entries = 0;
  cost.ForEachEntry([&](size_t, uint64_t) { ++entries; });
  out.Put(entries);
  cost.ForEachEntry([&](size_t entry, uint64_t n) { out.Put(static_cast<uint64_t>(entry)).Put(n); });
}

Cost ReadCost(CommandReader& in) {
  Cost cost;
  for (uint64_t left = in.Get<uint64_t>(); left > 0; --left) {
    const size_t entry = in.Get<uint64_t>();
    cost.AddEntry(entry, in.Get<uint64_t>());
  }
  return cost;
}

void WriteBooks(const ProcessBooks& books, CommandWriter& out) {
  out.PutText(books.process).Put(static_cast<uint64_t>(books.accounts.size()));
  for (const SiteAccount& a : books.accounts) {
    out.Put(a.phase).Put(a.site).Put(a.account.ops);
    for (const Cost* cost : {&a.account.useful, &a.account.executed, &a.account.copied}) WriteCost(*cost, out);
  }
  out.Put(books.parameters).Put(books.copied_parameters).Put(books.stored_bytes).Put(books.packed_bytes);
  out.Put(static_cast<uint64_t>(books.weights.size()));
  for (const WeightInfo& w : books.weights) {
    out.PutText(w.name).Put(w.layer).Put(w.component).Put(w.slices).Put(w.experts).Put(w.rows).Put(w.cols);
    out.Put(w.stored_bytes).Put(w.scale_bytes).Put(w.row_scale_bytes).Put(w.packed_bytes).Put(w.copied).Put(w.kind);
  }
  out.PutAll(std::span<const uint64_t>(books.touched)).PutAll(std::span<const uint64_t>(books.expert_rows));
  out.Put(books.bad_touches).Put(books.start).Put(books.all);
}

ProcessBooks ReadBooks(CommandReader& in) {
  ProcessBooks books;
  books.process = in.GetText();
  books.accounts.resize(in.Get<uint64_t>());
  for (SiteAccount& a : books.accounts) {
    a.phase = in.Get<Phase>();
    a.site = in.Get<Site>();
    a.account.ops = in.Get<uint64_t>();
    for (Cost* cost : {&a.account.useful, &a.account.executed, &a.account.copied}) *cost = ReadCost(in);
  }
  for (uint64_t* n : {&books.parameters, &books.copied_parameters, &books.stored_bytes, &books.packed_bytes}) {
    *n = in.Get<uint64_t>();
  }
  books.weights.resize(in.Get<uint64_t>());
  for (WeightInfo& w : books.weights) {
    w.name = in.GetText();
    w.layer = in.Get<int32_t>();
    w.component = in.Get<Component>();
    w.slices = in.Get<uint32_t>();
    w.experts = in.Get<bool>();
    for (uint64_t* n : {&w.rows, &w.cols, &w.stored_bytes, &w.scale_bytes, &w.row_scale_bytes, &w.packed_bytes, &w.copied}) {
      *n = in.Get<uint64_t>();
    }
    w.kind = in.Get<WeightInfo::Kind>();
  }
  books.touched = in.GetAll<uint64_t>();
  books.expert_rows = in.GetAll<uint64_t>();
  books.bad_touches = in.Get<uint64_t>();
  books.start = in.Get<ProcessBooks::Traffic>();
  books.all = in.Get<ProcessBooks::Traffic>();
  return books;
}

Status GroupLog::Flush() {
  std::vector<uint8_t>& bytes = pending_.bytes();
  if (bytes.empty()) return {};
  First first{};
  const uint64_t size = bytes.size(), now = std::min<uint64_t>(size, kInFirst);
  std::memcpy(first.data(), &size, sizeof(size));
  std::memcpy(first.data() + sizeof(size), bytes.data(), now);
  TALLY_RETURN_IF_ERROR(group_.Broadcast(first, Communicator::Wait::kIdle));
  if (size > now) TALLY_RETURN_IF_ERROR(group_.Broadcast(std::span(bytes).subspan(now), Communicator::Wait::kStep));
  bytes.clear();
  return {};
}

Result<std::vector<uint8_t>> ReceiveCommands(Communicator& group) {
  First first{};
  TALLY_RETURN_IF_ERROR(group.Broadcast(first, Communicator::Wait::kIdle));
  uint64_t size = 0;
  std::memcpy(&size, first.data(), sizeof(size));
  const uint64_t now = std::min<uint64_t>(size, kInFirst);
  std::vector<uint8_t> bytes(size);
  std::memcpy(bytes.data(), first.data() + sizeof(size), now);
  if (size > now) TALLY_RETURN_IF_ERROR(group.Broadcast(std::span(bytes).subspan(now), Communicator::Wait::kStep));
  return bytes;
}

Status AgreeOnStatus(Communicator* group, const Status& own) { return group == nullptr ? own : Together(*group, own); }

void Follower::NewEngine(int32_t id, const EngineOptions& given) {
  EngineOptions options = given;
  if (options.threads <= 0) options.threads = options_.threads;
  Result<std::unique_ptr<Stepper>> made = Stepper::Create(model_, options);
  if (made.ok()) engines_[id] = std::move(made).value();
}

Status Follower::Run() {
  Communicator& group = *model_->group();
  while (!ended_) {
    TALLY_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReceiveCommands(group));
    for (CommandReader in(bytes); !in.empty() && !ended_;) {
      const size_t command = in.Get<uint8_t>();
      if (command >= std::size(kCommands)) return InternalError("a command that is none: " + std::to_string(command));
      const CommandRow& row = kCommands[command];
      if (!row.make(*this, in)) return InternalError(std::string(row.name) + " of an engine that is none");
      if (row.ranks == CommandRanks::kTogether) TALLY_RETURN_IF_ERROR(group.status());
    }
  }
  return {};
}

Status FollowGroup(const std::shared_ptr<const Model>& model, const EngineOptions& engine) {
  const auto loaded = std::dynamic_pointer_cast<const LoadedModel>(model);
  if (loaded == nullptr || loaded->group() == nullptr) return InternalError("a model without a group has nobody to follow");
  return Follower(loaded, engine).Run();
}

}  // namespace tally
