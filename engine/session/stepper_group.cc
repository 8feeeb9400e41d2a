// SPDX-License-Identifier: Apache-2.0
// A stepper as one of a group's: what the first process tells the others, their answers, and how they follow.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/checked.h"
#include "engine/kernels/gather/gather.h"
#include "engine/machine/communicator.h"
#include "engine/session/commands.h"
#include "engine/session/stepper.h"

namespace tally {
namespace {

constexpr uint64_t kPartPieceBytes = uint64_t{1} << 20;
constexpr size_t kMostKept = size_t{1} << 19;  // ops that a process keeps

bool IsGather(std::string_view op) { return op == GatherOp::kName || op == GatherPackOp::kName; }

void WriteOps(const RankOps& kept, CommandWriter& out) {
  out.PutText(kept.process).Put(kept.left_out).Put(static_cast<uint64_t>(kept.ops.size()));
  for (const RankOp& op : kept.ops) {
    out.Put(op.step).Put(op.index).Put(op.phase).Put(op.site).PutText(op.op);
    out.Put(op.flops).Put(op.bytes).Put(op.sent).Put(op.received).Put(op.start_nanoseconds).Put(op.nanoseconds);
  }
}

RankOps ReadOps(CommandReader& in) {
  RankOps kept{.process = in.GetText(), .left_out = in.Get<uint64_t>()};
  kept.ops.resize(in.Get<uint64_t>());
  for (RankOp& op : kept.ops) {
    for (uint64_t* n : {&op.step, &op.index}) *n = in.Get<uint64_t>();
    op.phase = in.Get<Phase>();
    op.site = in.Get<Site>();
    op.op = in.GetText();
    for (uint64_t* n : {&op.flops, &op.bytes, &op.sent, &op.received}) *n = in.Get<uint64_t>();
    op.start_nanoseconds = in.Get<int64_t>();
    op.nanoseconds = in.Get<uint64_t>();
  }
  return kept;
}

// The difference that turns a process's times into the first one's. The k-th gather of a step ends in all processes at about the same time;
// this is the median of the differences. `first`: the gathers of the first process.
int64_t ClockDifference(std::span<const RankOp> first, std::span<const RankOp> other) {
  std::vector<int64_t> differences;
  const auto end = [](const RankOp& op) { return op.start_nanoseconds + static_cast<int64_t>(op.nanoseconds); };
  size_t a = 0;
  for (const RankOp& op : other) {
    if (!IsGather(op.op)) continue;
    if (a == first.size() || first[a].step != op.step) break;
    differences.push_back(end(first[a++]) - end(op));
  }
  if (differences.empty()) return 0;
  const auto middle = differences.begin() + static_cast<ptrdiff_t>(differences.size() / 2);
  std::ranges::nth_element(differences, middle);
  return *middle;
}

// One rank's part of an exported sequence, which goes in pieces between that rank and the first one. Every rank takes part in each piece.
// Every 16 pieces all ranks wait for each other without a deadline: the first one may be slow, since it reads or writes a file, and must
// not be sent more than it can hold.
class Part {
 public:
  Part(Communicator& group, size_t of, uint64_t bytes) : group_(group), of_(of), left_(bytes) {}
  uint64_t left() const { return left_; }

  // The next piece, which this rank gives, gets, or neither; empty: there are no more, or the group has failed.
  std::span<const uint8_t> Gather() {
    const uint64_t n = NextSize();
    std::vector<uint64_t> sizes(static_cast<size_t>(group_.ranks()));
    sizes[of_] = n;
    const bool ok = n > 0 && group_.Gather(sizes, piece_.data(), piece_.data()).ok();
    return ok ? std::span<const uint8_t>(piece_).first(n) : std::span<const uint8_t>();
  }
  std::span<const uint8_t> Broadcast() {
    const uint64_t n = NextSize();
    const std::span<uint8_t> piece = std::span(piece_).first(n);
    return n > 0 && group_.Broadcast(piece, Communicator::Wait::kStep).ok() ? piece : std::span<const uint8_t>();
  }
  // The place for the bytes of the next piece, as many as it has.
  std::span<uint8_t> next() { return std::span(piece_).first(std::min(left_, kPartPieceBytes)); }

 private:
  uint64_t NextSize() {
    constexpr int kAtOnce = 16;
    const uint64_t n = std::min(left_, kPartPieceBytes);
    if (n > 0 && pieces_++ % kAtOnce == 0 && !group_.AwaitAll().ok()) return left_ = 0;
    left_ -= n;
    return n;
  }
  Communicator& group_;
  const size_t of_;
  uint64_t left_;
  int pieces_ = 0;
  std::vector<uint8_t> piece_ = std::vector<uint8_t>(kPartPieceBytes);
};

}  // namespace

Result<int32_t> Stepper::NewSequence() {
  Tell<Command::kNewSequence>(log_, id_);
  return store_->NewSequence();
}

Result<int32_t> Stepper::Fork(int32_t sequence, int64_t length) {
  Tell<Command::kFork>(log_, id_, sequence, length);
  return store_->Fork(sequence, length);
}

Result<int32_t> Stepper::Copy(int32_t sequence) {
  Tell<Command::kCopy>(log_, id_, sequence);
  return store_->Copy(sequence);
}

Result<int32_t> Stepper::NewSequenceFor(std::string_view key, std::span<const int32_t> tokens, std::span<const PrefixRow> rows) {
  Tell<Command::kNewSequenceFor>(log_, id_, key, tokens, rows);
  return store_->NewSequenceFor(key, tokens, rows);
}

void Stepper::Remember(int32_t sequence, std::string_view key, std::span<const int32_t> tokens, int32_t states) {
  Tell<Command::kRemember>(log_, id_, sequence, key, tokens, states);
  store_->Remember(sequence, key, tokens, states);
}

Status Stepper::Truncate(int32_t sequence, int64_t length) {
  Tell<Command::kTruncate>(log_, id_, sequence, length);
  return store_->Truncate(sequence, length);
}

void Stepper::Free(int32_t sequence) {
  Tell<Command::kFree>(log_, id_, sequence);
  if (predictor_ != nullptr) predictor_->Forget(sequence);
  store_->Free(sequence);
}

int32_t Stepper::OpenBill() {
  Tell<Command::kOpenBill>(log_, id_);
  return ledger_.OpenBill();
}

// Sends the other processes what they need to make the same step.
Status Stepper::TellStep(std::span<const BatchRow> rows) {
  if (log_ == nullptr) return {};
  TALLY_RETURN_IF_ERROR(CheckRows(rows));
  TellReset();
  return TellNow<Command::kStep>(log_, id_, store_->BytesInUse(), rows);
}

void Stepper::TellReset() {
  if (const uint64_t resets = ledger_.resets(); resets != std::exchange(resets_, resets)) Tell<Command::kResetLedger>(log_, id_);
}

Result<std::vector<ProcessBooks>> Stepper::Books() {
  if (log_ != nullptr) {
    TellReset();
    TALLY_RETURN_IF_ERROR(TellNow<Command::kBooks>(log_, id_));
  }
  return GatherBooks();
}

Bill Stepper::CloseBill(int32_t id) {
  (void)TellNow<Command::kCloseBill>(log_, id_, id);
  Bill bill = ledger_.CloseBill(id);
  if (group_ != nullptr) (void)GatherBill(bill);
  NoteGroup();
  return bill;
}

Status Stepper::GatherBill(Bill& bill) {
  CommandWriter own;
  uint64_t touched = 0;
  for (size_t w = 0; w < ledger_.weights().size(); ++w) {
    const uint64_t n = bill.touched.touched(static_cast<WeightId>(w));
    touched += n - std::min(n, ledger_.weights()[w].copied);
  }
  own.Put(touched);
  for (const BillWork& work : bill.work) WriteCost(work.useful, own);
  WriteCost(bill.drafts.in_vain, own);
  TALLY_ASSIGN_OR_RETURN(const auto all, GatherBytes(*group_, own.text(), true));
  for (size_t r = 1; r < all.size(); ++r) {
    CommandReader in(all[r]);
    bill.touched_elsewhere += in.Get<uint64_t>();
    for (BillWork& work : bill.work) work.useful += ReadCost(in);
    bill.drafts.in_vain += ReadCost(in);
  }
  return {};
}

Result<std::vector<ProcessBooks>> Stepper::GatherBooks() {
  std::vector<ProcessBooks> books = {BooksOf(ledger_, group_ != nullptr ? group_->Place(group_->rank()) : "")};
  if (group_ == nullptr) return books;
  const Communicator::Traffic all_so_far = group_->traffic();
  books[0].start = {start_.sent, start_.received};
  books[0].all = {all_so_far.sent, all_so_far.received};
  CommandWriter own;
  WriteBooks(books[0], own);
  TALLY_ASSIGN_OR_RETURN(const auto all, GatherBytes(*group_, own.text(), true));
  for (size_t r = 1; r < all.size(); ++r) {
    CommandReader in(all[r]);
    books.push_back(ReadBooks(in));
    books.back().message_bytes = all[r].size();
  }
  return books;
}

// The first process needs its gathers alone, for the clocks.
void Stepper::Keep(const OpRecord& r) {
  if (group_->rank() == 0 && !IsGather(r.op)) return;
  if (kept_->ops.size() >= kMostKept) {
    kept_->left_out += r.part == 0 ? 1 : 0;
    return;
  }
  if (r.part == 0) {
    kept_->ops.push_back({.step = r.step,
                          .index = r.index,
                          .phase = r.phase,
                          .site = r.site,
                          .op = std::string(r.op),
                          .start_nanoseconds = static_cast<int64_t>(r.start_nanoseconds),
                          .nanoseconds = r.nanoseconds});
  }
  RankOp& op = kept_->ops.back();
  const auto bytes = [&](ByteKind kind) { return r.useful.Bytes(kind); };
  op.flops += r.useful.TotalFlops();
  op.bytes += bytes(ByteKind::kWeightsPacked) + bytes(ByteKind::kKvRead) + bytes(ByteKind::kStateRead);
  op.sent += bytes(ByteKind::kSent);
  op.received += bytes(ByteKind::kReceived);
}

Status Stepper::RecordRanks() {
  if (group_ == nullptr) return {};
  Tell<Command::kRecordRanks>(log_, id_);
  kept_.emplace().process = group_->Place(group_->rank());
  if (group_->rank() == 0) return {};
  recorded_steps_ = recorded_ops_ = 0;
  SetExecutorRecorder();
  return {};
}

Result<std::vector<RankOps>> Stepper::RankRecords() {
  std::vector<RankOps> others;
  if (!kept_) return others;
  TALLY_RETURN_IF_ERROR(TellNow<Command::kRankRecords>(log_, id_));
  const RankOps own = std::move(*kept_);
  kept_.reset();
  CommandWriter out;
  if (group_->rank() > 0) {
    SetExecutorRecorder();
    WriteOps(own, out);
  }
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> all, GatherBytes(*group_, out.text(), true));
  for (size_t r = 1; r < all.size(); ++r) {
    CommandReader in(all[r]);
    RankOps& other = others.emplace_back(ReadOps(in));
    const int64_t later = ClockDifference(own.ops, other.ops);
    for (RankOp& op : other.ops) op.start_nanoseconds += later;
  }
  return others;
}

// Tells all processes the bytes of each one's part of an exported sequence.
Result<std::vector<uint64_t>> Stepper::PartBytes(int32_t sequence) const {
  uint64_t own = 0;
  TALLY_RETURN_IF_ERROR(store_->Export(sequence, [&](std::span<const uint8_t> bytes) {
    own += bytes.size();
    return Status();
  }));
  std::vector<uint64_t> all = {own};
  if (group_ == nullptr) return all;
  all.resize(static_cast<size_t>(group_->ranks()));
  const std::vector<uint64_t> each(all.size(), sizeof own);
  TALLY_RETURN_IF_ERROR(group_->AllGather(each, reinterpret_cast<const uint8_t*>(&own), reinterpret_cast<uint8_t*>(all.data())));
  return all;
}

Result<uint64_t> Stepper::ExportedBytes(int32_t sequence) const {
  if (!store_->IsLive(sequence)) return BadInput("no sequence " + std::to_string(sequence));
  TALLY_RETURN_IF_ERROR(TellNow<Command::kExportedBytes>(log_, id_, sequence));
  TALLY_ASSIGN_OR_RETURN(const std::vector<uint64_t> parts, PartBytes(sequence));
  uint64_t bytes = group_ != nullptr ? (parts.size() + 1) * sizeof(uint64_t) : 0;
  for (const uint64_t n : parts) bytes += n;
  return bytes;
}

// A group writes the number of processes and the bytes of each one's part, 8 bytes each, then the parts.
Status Stepper::Export(int32_t sequence, const SequenceStore::Sink& write) const {
  if (group_ == nullptr) return store_->Export(sequence, write);
  if (!store_->IsLive(sequence)) return BadInput("no sequence " + std::to_string(sequence));
  TALLY_RETURN_IF_ERROR(TellNow<Command::kExport>(log_, id_, sequence));
  TALLY_ASSIGN_OR_RETURN(const std::vector<uint64_t> parts, PartBytes(sequence));
  const bool first = group_->rank() == 0;
  Status written;
  const auto put = [&](std::span<const uint8_t> bytes) {
    if (first && written.ok()) written = write(bytes);
  };
  std::vector<uint64_t> header = {parts.size()};
  header.insert(header.end(), parts.begin(), parts.end());
  put({reinterpret_cast<const uint8_t*>(header.data()), header.size() * sizeof(uint64_t)});
  if (first) (void)store_->Export(sequence, [&](std::span<const uint8_t> bytes) { return put(bytes), Status(); });
  for (size_t r = 1; r < parts.size(); ++r) {
    Part part(*group_, r, parts[r]);
    if (group_->rank() == static_cast<int>(r)) {
      uint64_t at = 0;
      (void)store_->Export(sequence, [&](std::span<const uint8_t> bytes) {
        while (!bytes.empty()) {
          const std::span<uint8_t> to = part.next();
          const uint64_t n = std::min<uint64_t>(bytes.size(), to.size() - at);
          std::memcpy(to.data() + at, bytes.data(), n);
          bytes = bytes.subspan(n);
          at += n;
          if (at == to.size()) (void)part.Gather(), at = 0;
        }
        return Status();
      });
    } else {
      while (part.left() > 0) put(part.Gather());  // an error of `write` is the first process's alone
    }
  }
  NoteGroup();
  return group_->status().ok() ? written : group_->status();
}

Result<int32_t> Stepper::Import(const SequenceStore::Source& read) {
  if (group_ == nullptr) return store_->Import(read);
  uint64_t ranks = 0;
  TALLY_RETURN_IF_ERROR(read({reinterpret_cast<uint8_t*>(&ranks), sizeof ranks}));
  if (ranks != static_cast<uint64_t>(group_->ranks())) return BadInput("a KV cache of another number of processes");
  std::vector<uint64_t> parts(ranks);
  TALLY_RETURN_IF_ERROR(read({reinterpret_cast<uint8_t*>(parts.data()), parts.size() * sizeof(uint64_t)}));
  for (const uint64_t n : parts) {
    if (n > SaturatingAdd(SaturatingMul(store_->Budget(), 2), kPartPieceBytes))
      return NoRoom("a KV cache of more bytes than there is room for");
  }
  TALLY_RETURN_IF_ERROR(TellNow<Command::kImport>(log_, id_, parts));
  return ImportParts(parts, read);
}

// Checks that all processes have as many positions of a sequence as the first one.
Status Stepper::HaveLength(int32_t sequence) {
  const int64_t own = store_->Length(sequence);
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                         GatherBytes(*group_, {reinterpret_cast<const char*>(&own), sizeof own}));
  const bool same = std::ranges::all_of(all, [&](const std::string& other) { return other == all[0]; });
  return same ? Status() : BadInput("a KV cache whose parts are of different lengths");
}

// Makes the new sequence in all processes or in none. `read`: of the first one.
Result<int32_t> Stepper::ImportParts(std::span<const uint64_t> parts, const SequenceStore::Source& read) {
  const size_t rank = static_cast<size_t>(group_->rank());
  const auto beyond = [] { return BadInput("a KV cache that is cut short"); };
  Result<int32_t> sequence = beyond();
  Status source;  // of the first process: an error of `read`; the others are sent what there is
  if (rank == 0) {
    uint64_t left = parts[0];
    sequence = store_->Import([&](std::span<uint8_t> bytes) {
      if (bytes.size() > left) return beyond();
      left -= bytes.size();
      return read(bytes);
    });
    // Skips bytes that were not taken, so that the next process's part follows.
    std::vector<uint8_t> skipped(std::min(left, kPartPieceBytes));
    const bool whole = left == 0;
    for (; left > 0 && source.ok(); left -= skipped.size()) {
      skipped.resize(std::min(left, kPartPieceBytes));
      source = read(skipped);
    }
    if (sequence.ok() && !whole) {
      store_->Free(*sequence);
      sequence = beyond();
    }
  }
  for (size_t r = 1; r < parts.size(); ++r) {
    Part part(*group_, r, parts[r]);
    if (rank == r) {
      std::span<const uint8_t> got;
      sequence = store_->Import([&](std::span<uint8_t> bytes) {
        while (!bytes.empty()) {
          if (got.empty()) got = part.Broadcast();
          if (got.empty()) return beyond();
          const size_t n = std::min(bytes.size(), got.size());
          std::memcpy(bytes.data(), got.data(), n);
          got = got.subspan(n);
          bytes = bytes.subspan(n);
        }
        return Status();
      });
      if (sequence.ok() && (!got.empty() || part.left() > 0)) {
        store_->Free(*sequence);
        sequence = beyond();
      }
    }
    while (part.left() > 0 && group_->status().ok()) {
      if (rank == 0 && source.ok()) source = read(part.next());
      (void)part.Broadcast();
    }
  }
  Status own = sequence.ok() ? Status() : sequence.status();
  if (!source.ok()) own = source;
  Status all = AgreeOnStatus(group_, own);
  if (all.ok()) all = HaveLength(*sequence);
  NoteGroup();
  if (all.ok()) return sequence;
  if (sequence.ok()) store_->Free(*sequence);
  return own.ok() ? all : own;
}

// Its errors are the first process's.
void Stepper::FollowStep(uint64_t in_use, std::span<const BatchRow> rows) {
  if (store_->BytesInUse() != in_use) {
    group_->Fail(InternalError("the processes of a group have come to hold different sequences"));
    return;
  }
  (void)Step(rows);
}

// After a step: gathers the failed rows of all processes at the first one, if there are any.
Status Stepper::FindBadRows() {
  bad_.assign(decoder_->bad_rows().begin(), decoder_->bad_rows().end());
  if (group_ == nullptr) return {};
  const uint64_t own = bad_.size();
  const std::vector<uint64_t> each(static_cast<size_t>(group_->ranks()), sizeof(own));
  std::vector<uint64_t> found(log_ != nullptr ? each.size() : 0);
  TALLY_RETURN_IF_ERROR(group_->Gather(each, reinterpret_cast<const uint8_t*>(&own), reinterpret_cast<uint8_t*>(found.data())));
  if (std::ranges::all_of(found, [](uint64_t n) { return n == 0; })) return {};
  TALLY_RETURN_IF_ERROR(TellNow<Command::kBadRows>(log_, id_));
  return SendBadRows();
}

Status Stepper::SendBadRows() {
  CommandWriter own;
  for (const Decoder::BadRow& b : decoder_->bad_rows()) own.Put(b.row).Put(b.of_logits).PutText(b.why);
  TALLY_ASSIGN_OR_RETURN(const auto all, GatherBytes(*group_, own.text(), true));
  for (size_t r = 1; r < all.size(); ++r) {
    for (CommandReader in(all[r]); !in.empty();) {
      const int32_t row = in.Get<int32_t>();
      const bool of_logits = in.Get<bool>();
      bad_.push_back({.row = row, .of_logits = of_logits, .why = in.GetText()});
    }
  }
  return {};
}

}  // namespace tally
