// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/gather/gather.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/kernels/describe.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

const char* Always(const GatherOp&) { return nullptr; }
TaskPlan Plan(const GatherOp& op, int) { return {op.all.rows > 0 ? 1 : 0, 0, 0}; }

uint64_t BytesOf(const GatherPart& part) { return static_cast<uint64_t>(part.rows * part.width) * sizeof(float); }

// This part as it is sent, without gaps between its rows; null: it has gaps.
const float* WithoutGaps(const GatherOp& op) { return op.own.stride == op.own.cols || op.own.rows < 2 ? op.own.data : nullptr; }

bool IsInPlace(const GatherOp& op, const GatherPart& mine) {
  return op.to_rows.empty() && mine.columns.size() == 1 && op.own.data == op.all.data + mine.columns[0].begin;
}

// Moves the parts to their places.
void Place(const GatherOp& op, const float* from) {
  size_t row = 0;
  for (size_t r = 0; r < op.parts.size(); ++r) {
    const GatherPart& part = op.parts[r];
    if (static_cast<int64_t>(r) == op.rank() && IsInPlace(op, part)) {
      from += part.rows * part.width;
      continue;
    }
    for (int64_t i = 0; i < part.rows; ++i, ++row) {
      float* const to = op.all.Row(op.to_rows.empty() ? i : op.to_rows[row]);
      for (const ColumnRun& run : part.columns) {
        std::memcpy(to + run.begin, from, static_cast<size_t>(run.count) * sizeof(float));
        from += run.count;
      }
    }
  }
}

// A failure stays with the group (Communicator::status).
void Run(const GatherOp& op, int64_t, int64_t, std::span<uint8_t>) {
  const GatherPart& mine = op.parts[static_cast<size_t>(op.rank())];
  uint64_t total = 0;
  for (size_t r = 0; r < op.parts.size(); ++r) total += op.part_bytes[r] = BytesOf(op.parts[r]);
  if (total == 0) return;
  const float* own = WithoutGaps(op);
  if (own == nullptr) {
    own = op.sent.data();
    for (int64_t i = 0; i < mine.rows; ++i) {
      std::memcpy(op.sent.data() + i * mine.width, op.own.Row(i), static_cast<size_t>(mine.width) * sizeof(float));
    }
  }
  const uint8_t* const from = reinterpret_cast<const uint8_t*>(own);
  uint8_t* const to = reinterpret_cast<uint8_t*>(op.received.data());
  const Status status = op.to_first ? op.group->Gather(op.part_bytes, from, to) : op.group->AllGather(op.part_bytes, from, to);
  if (status.ok() && (!op.to_first || op.rank() == 0)) Place(op, op.received.data());
}

// Bytes of a row that columns before `column` take in a tile of one row.
size_t BytesBefore(const ActPack& pack, int64_t column) { return ActRowBytes(pack.format, column); }

// A tile of T rows has the bytes of each column T times.
void PlacePacked(const GatherPackOp& op, const uint8_t* from) {
  const size_t row_bytes = op.all.row_bytes();
  for (const GatherPart& part : op.parts) {
    for (const RowGroup& g : op.all.groups) {
      const int64_t full = TilingOf(op.all.format, g.rows).rows;
      for (int64_t r = 0; r < g.rows; r += full) {
        const size_t rows = static_cast<size_t>(std::min(full, g.rows - r));
        uint8_t* const tile = op.all.data + static_cast<size_t>(g.row_begin + r) * row_bytes;
        for (const ColumnRun& run : part.columns) {
          const size_t bytes = rows * BytesBefore(op.all, run.count);
          std::memcpy(tile + rows * BytesBefore(op.all, run.begin), from, bytes);
          from += bytes;
        }
      }
    }
  }
}

void RunPacked(const GatherPackOp& op, int64_t, int64_t, std::span<uint8_t>) {
  for (size_t r = 0; r < op.parts.size(); ++r) {
    op.part_bytes[r] = static_cast<uint64_t>(op.all.rows) * ActRowBytes(op.all.format, op.parts[r].width);
  }
  uint8_t* const to = reinterpret_cast<uint8_t*>(op.received.data());
  if (op.group->AllGather(op.part_bytes, op.own.data, to).ok()) PlacePacked(op, to);
}

}  // namespace

Status GatherPackOp::Validate() const {
  if (group == nullptr || static_cast<int>(parts.size()) != group->ranks() || part_bytes.size() != parts.size()) {
    return InternalError("a gather needs a part of each process");
  }
  int64_t width = 0;
  const int64_t piece = PackedPiece(all.format);
  for (const GatherPart& part : parts) {
    for (const ColumnRun& run : part.columns) {
      const int64_t end = run.begin + run.count;
      if (run.begin % piece != 0 || (end % piece != 0 && end != all.cols))
        return InternalError("columns that are no whole blocks");
    }
    width += part.width;
  }
  if (width != all.cols || own.cols != parts[static_cast<size_t>(rank())].width || own.rows != all.rows ||
      !(own.format == all.format)) {
    return InternalError("packs that are no parts of a pack");
  }
  return received.size_bytes() < static_cast<size_t>(all.rows) * all.row_bytes() ? InternalError("no room to gather") : Status();
}

Cost GatherPackOp::Useful(const CostAmounts& n) const {
  Cost cost;
  const uint64_t rows = n[Amount::kRows], own_bytes = ActRowBytes(all.format, own.cols);
  uint64_t others = 0;
  for (size_t r = 0; r < parts.size(); ++r) {
    if (static_cast<int64_t>(r) != rank()) others += ActRowBytes(all.format, parts[r].width);
  }
  cost.AddBytes(ByteKind::kSent, rows * own_bytes * (parts.size() - 1));
  cost.AddBytes(ByteKind::kReceived, rows * others);
  return cost;
}

void GatherPackOp::Describe(OpDescription& d) const {
  DescribePack(own, kIn, "own", d);
  DescribePack(all, kOut, "all", d);
  d.Set("ranks", static_cast<int64_t>(parts.size()));
}

Status GatherOp::Validate() const {
  if (group == nullptr || static_cast<int>(parts.size()) != group->ranks() || part_bytes.size() != parts.size()) {
    return InternalError("a gather needs a part of each process");
  }
  int64_t rows = 0, floats = 0;
  for (const GatherPart& part : parts) {
    int64_t width = 0;
    for (const ColumnRun& run : part.columns) {
      if (run.begin < 0 || run.count < 0 || run.begin + run.count > all.cols)
        return InternalError("columns outside of the whole");
      width += run.count;
    }
    if (width != part.width || part.rows < 0) return InternalError("a part of another width than its columns");
    rows += part.rows;
    floats += part.rows * part.width;
  }
  const GatherPart& mine = parts[static_cast<size_t>(rank())];
  if (mine.rows * mine.width > 0) TALLY_RETURN_IF_ERROR(CheckShape("own part", own, mine.rows, mine.width));
  if (!to_rows.empty() && static_cast<int64_t>(to_rows.size()) != rows) return InternalError("rows of parts without a place");
  const bool receives = !to_first || rank() == 0;
  if ((receives && static_cast<int64_t>(received.size()) < floats) ||
      (WithoutGaps(*this) == nullptr && static_cast<int64_t>(sent.size()) < mine.rows * mine.width)) {
    return InternalError("no room to gather");
  }
  return {};
}

CostAmounts GatherOp::Amounts() const {
  const GatherPart& mine = parts[static_cast<size_t>(rank())];
  if (to_rows.empty()) return RowAmounts(mine.rows);
  CostAmounts n;
  n[Amount::kCalls] = 1;
  n[Amount::kPanels] = static_cast<uint64_t>(mine.rows);
  n[Amount::kSlices] = static_cast<uint64_t>(static_cast<int64_t>(to_rows.size()) - mine.rows);
  return n;
}

Cost GatherOp::Useful(const CostAmounts& n) const {
  Cost cost;
  const uint64_t ranks = parts.size(),
                 own_bytes = static_cast<uint64_t>(parts[static_cast<size_t>(rank())].width) * sizeof(float);
  const uint64_t receivers = to_first ? (rank() > 0 ? 1 : 0) : ranks - 1;
  const bool receives = !to_first || rank() == 0;
  if (to_rows.empty()) {
    uint64_t others = 0;
    for (const GatherPart& part : parts) others += static_cast<uint64_t>(part.width) * sizeof(float);
    others -= own_bytes;
    cost.AddBytes(ByteKind::kSent, n[Amount::kRows] * own_bytes * receivers);
    if (receives) cost.AddBytes(ByteKind::kReceived, n[Amount::kRows] * others);
    return cost;
  }
  cost.AddBytes(ByteKind::kSent, n[Amount::kPanels] * own_bytes * receivers);
  if (receives) cost.AddBytes(ByteKind::kReceived, n[Amount::kSlices] * own_bytes);  // all parts have the same columns
  return cost;
}

void GatherOp::Describe(OpDescription& d) const {
  d.Add("own", kIn, "f32", Shape(own));
  d.Add("all", kOut, "f32", Shape(all));
  d.Set("ranks", static_cast<int64_t>(parts.size()));
}

template <>
std::span<const Kernel<GatherPackOp>> Kernels<GatherPackOp>() {
  static constexpr Kernel<GatherPackOp> kKernels[] = {
      {"ref", [](const GatherPackOp&) -> const char* { return nullptr; },
       [](const GatherPackOp& op, int) -> TaskPlan {
         return {op.all.rows > 0 ? 1 : 0, 0, 0};
       },
       RunPacked, [](const GatherPackOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

template <>
std::span<const Kernel<GatherOp>> Kernels<GatherOp>() {
  static constexpr Kernel<GatherOp> kKernels[] = {
      {"ref", Always, Plan, Run, [](const GatherOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
