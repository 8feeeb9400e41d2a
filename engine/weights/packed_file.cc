// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/packed_file.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/checksum.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"
#include "engine/recipe/roles.h"
#include "engine/weights/load_state.h"
#include "loaders/inventory/file_reader.h"

namespace tally {
namespace {

constexpr uint64_t kReadBytes = uint64_t{4} << 20;  // at a time, where slices are no larger; a multiple of kPackedBlock
constexpr int64_t kLeastReaders = 4, kMostReaders = 8;
constexpr uint64_t kDirectBytes = uint64_t{256} << 10;  // smaller pieces with places apart are read together and copied

std::string ShardText(int32_t rank, int32_t ranks, bool own_experts) {
  if (ranks == 1) return "all of the model";
  return "the part of process " + std::to_string(rank + 1) + " of " + std::to_string(ranks) +
         (own_experts ? " (--split experts)" : " (--split all)");
}

std::string NameOf(const PackedWeight& w) { return (w.layer < 0 ? "" : "blk." + std::to_string(w.layer) + ".") + w.role; }

std::string ShapeOf(const PackedWeight& w) {
  return std::string(DTypeName(w.dtype)) + " [" + std::to_string(w.slices) + ", " + std::to_string(w.rows) + ", " +
         std::to_string(w.cols) + "], layout " + std::to_string(w.layout);
}

Status CheckHeader(const PackedHeader& h, const Shard& shard) {
  const std::string place = Printable(h.file.path);
  if (h.layout_version != kPackedLayoutVersion) {
    return BadInput(place + ": weights packed in layout " + std::to_string(h.layout_version) + ", and this program runs layout " +
                    std::to_string(kPackedLayoutVersion) + ": pack the model again (tally pack)");
  }
  if (h.family != kPackedFamily) {
    return BadInput(place + ": weights packed for " + Quote(h.family) + ", and this machine runs " + Quote(kPackedFamily) +
                    ": pack the model again (tally pack)");
  }
  if (h.rank != shard.rank || h.ranks != shard.ranks || h.whole_mixers != shard.whole_mixers ||
      h.own_experts != shard.own_experts) {
    return BadInput(place + ": holds " + ShardText(h.rank, h.ranks, h.own_experts) + ", and this process needs " +
                    ShardText(shard.rank, shard.ranks, shard.own_experts) + ": name the model that it was packed from");
  }
  return {};
}

bool OnPage(const uint8_t* p) { return reinterpret_cast<uintptr_t>(p) % kWeightPage == 0; }

}  // namespace

struct PackedFile::State {
  std::shared_ptr<const PackedHeader> header;
  std::optional<FileReader> file;
  ReadBytes read;
  PackedLayout layout;
  std::vector<size_t> weight_of;       // of each weight of the plan: its index in the layout
  std::vector<ExpertRecords> records;  // the plan's
  std::vector<size_t> record_of;       // of each of them: its index in the layout
  // By layer of the plan: of each part of each record, whether its checksums have agreed.
  std::vector<std::unique_ptr<std::atomic<bool>[]>> checked;

  const std::string& path() const { return header->file.path; }

  // The first block that does not agree, its offset in the file; nullopt: all agree. `bytes`: of a slice, from a multiple of
  // kPackedBlock on.
  std::optional<uint64_t> Damaged(std::span<const uint8_t> bytes, uint64_t offset, uint64_t first_sum) const {
    for (uint64_t at = 0; at < bytes.size(); at += kPackedBlock, ++first_sum) {
      const auto block = bytes.subspan(at, std::min<uint64_t>(kPackedBlock, bytes.size() - at));
      if (BlockChecksum(block) != header->sums[first_sum]) return header->data_offset + offset + at;
    }
    return std::nullopt;
  }

  Status DamagedAt(uint64_t offset) const {
    if (file) {
      if (const Status changed = file->CheckUnchanged(header->file); !changed.ok()) return changed;
    }
    return BadInput(Printable(path()) + ": the data at byte " + std::to_string(offset) +
                    " have changed: their checksum does not agree");
  }

  // Reads, and reads once more if it fails or if check(), of what was read, does.
  template <class Check>
  Status ReadTwice(uint64_t data_offset, std::span<uint8_t> out, const Check& check) const {
    Status status;
    for (int i = 0; i < 2; ++i) {
      status = read(header->data_offset + data_offset, out);
      if (status.ok()) status = check();
      if (status.ok()) return status;
    }
    return status;
  }

  // Of extents that follow one another, from `bytes` on.
  Status CheckSums(std::span<const Extent> extents, const uint8_t* bytes) const {
    for (const Extent& e : extents) {
      if (const auto bad = Damaged({bytes, e.bytes}, e.offset, e.first_sum)) return DamagedAt(*bad);
      bytes += e.bytes;
    }
    return {};
  }

  // Reads pieces that follow one another in the file, checks them and puts them in their places. `staging`: kReadBytes.
  Status ReadTogether(const WeightPlan& plan, const PlaceSlice& place, std::span<const Extent> pieces, uint8_t* staging) const {
    std::vector<uint8_t*> to;
    bool together = true, apart = true;
    for (const Extent& p : pieces) {
      uint8_t* const at = place(plan.weights[p.weight], p.slice) + p.begin;
      if (!to.empty()) together = together && at == to.back() + (&p - 1)->bytes;
      together = together && OnPage(at);
      apart = apart && OnPage(at) && p.bytes >= kDirectBytes;
      to.push_back(at);
    }
    const uint64_t all = pieces.back().offset + pieces.back().bytes - pieces.front().offset;
    if (together || !apart) {
      uint8_t* const out = together ? to[0] : staging;
      TALLY_RETURN_IF_ERROR(ReadTwice(pieces[0].offset, {out, all}, [&] { return CheckSums(pieces, out); }));
    }
    for (size_t i = 0; i < pieces.size() && !together; ++i) {
      const Extent& p = pieces[i];
      if (apart) {
        TALLY_RETURN_IF_ERROR(ReadTwice(p.offset, {to[i], p.bytes}, [&] { return CheckSums({&p, 1}, to[i]); }));
      } else {
        const uint64_t own = plan.weights[p.weight].slice_bytes - p.begin;  // the rest fills the page
        std::memcpy(to[i], staging + (p.offset - pieces[0].offset), OnPage(to[i]) ? p.bytes : std::min(p.bytes, own));
      }
    }
    return {};
  }

  // Reads parts [first, last) of a record of the plan's layer, or as many as it has.
  Status ReadParts(size_t layer, int64_t expert, size_t first, size_t last, uint8_t* out) const {
    if (layer >= records.size() || expert < 0 || expert >= records[layer].experts || first >= records[layer].parts.size()) {
      return InternalError("PackedFile: no such record");
    }
    const ExpertRecords& record = layout.records()[record_of[layer]];
    last = std::min(last, record.parts.size());
    const auto begin_of = [&](size_t part) { return part < record.parts.size() ? record.parts[part].offset : record.bytes; };
    const uint64_t skip = begin_of(first), bytes = begin_of(last) - skip;
    const uint64_t offset = layout.RecordOffset(record_of[layer], expert) + skip;
    std::atomic<bool>* const flags = &checked[layer][static_cast<size_t>(expert) * record.parts.size()];
    const auto check = [&]() -> Status {
      for (size_t i = first; i < last; ++i) {
        if (flags[i].load(std::memory_order_relaxed)) continue;
        const std::span<const uint8_t> part(out + (begin_of(i) - skip), begin_of(i + 1) - begin_of(i));
        const uint64_t first_sum = layout.SliceOf(record.parts[i].weight, expert).first_sum;
        if (const auto bad = Damaged(part, offset + begin_of(i) - skip, first_sum)) return DamagedAt(*bad);
        flags[i].store(true, std::memory_order_relaxed);
      }
      return {};
    };
    Status status = ReadTwice(offset, {out, bytes}, check);
    if (status.ok() && file) status = file->CheckUnchanged(header->file);  // what was checked before may be other bytes now
    if (status.ok()) return status;
    return BadInput(std::to_string(bytes) + " bytes at byte " + std::to_string(header->data_offset + offset) + ": " +
                    status.message());
  }

  // Finds the plan's weights in the file.
  Status Match(const WeightPlan& plan) {
    std::map<std::tuple<int32_t, std::string_view>, size_t> index;
    for (size_t i = 0; i < layout.weights().size(); ++i)
      index.try_emplace({layout.weights()[i].layer, layout.weights()[i].role}, i);
    std::map<size_t, WeightId> planned;  // by index in the layout
    for (const PlannedWeight& w : plan.weights) {
      const PackedWeight wanted = PackedWeightOf(w);
      const auto found = index.find({wanted.layer, wanted.role});
      if (found == index.end()) {
        return BadInput(Printable(path()) + ": holds no weight " + Quote(NameOf(wanted)) + ": pack the model again (tally pack)");
      }
      if (const PackedWeight& held = layout.weights()[found->second]; held != wanted) {
        return BadInput(Printable(path()) + ": holds the weight " + Quote(NameOf(wanted)) + " as " + ShapeOf(held) +
                        ", expected " + ShapeOf(wanted) + ": pack the model again (tally pack)");
      }
      weight_of.push_back(found->second);
      planned[found->second] = w.view.id;
    }
    for (size_t i = 0; i < layout.records().size(); ++i) {
      ExpertRecords record = layout.records()[i];
      size_t there = 0;
      for (ExpertRecords::Part& part : record.parts) {
        const auto found = planned.find(part.weight);
        if (found != planned.end()) part.weight = found->second, ++there;
      }
      if (there == 0) continue;  // of a stack that does not run
      if (there != record.parts.size()) {
        return BadInput(Printable(path()) + ": holds other expert weights of layer " + std::to_string(record.layer) +
                        " than the model has: pack it again (tally pack)");
      }
      checked.push_back(std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(record.experts) * record.parts.size()));
      record_of.push_back(i);
      records.push_back(std::move(record));
    }
    return {};
  }
};

PackedFile::PackedFile() = default;
PackedFile::PackedFile(PackedFile&&) noexcept = default;
PackedFile& PackedFile::operator=(PackedFile&&) noexcept = default;
PackedFile::~PackedFile() = default;

Result<PackedFile> PackedFile::Open(const Inventory& inventory, const WeightPlan& plan, ReadBytes read) {
  if (inventory.packed == nullptr) return InternalError(inventory.path + " is no packed file");
  PackedFile opened;
  opened.state_ = std::make_unique<State>();
  State& s = *opened.state_;
  s.header = inventory.packed;
  TALLY_RETURN_IF_ERROR(CheckHeader(*s.header, plan.shard));
  if (read) {
    s.read = std::move(read);
  } else {
    TALLY_ASSIGN_OR_RETURN(s.file, FileReader::Open(s.path()));
    TALLY_RETURN_IF_ERROR(s.file->CheckUnchanged(s.header->file));
    s.read = [state = &s](uint64_t offset, std::span<uint8_t> out) { return state->file->ReadDirect(offset, out); };
  }
  TALLY_ASSIGN_OR_RETURN(s.layout, PackedLayout::Of(s.header->weights, Printable(s.path())));
  if (s.layout.data_bytes() != s.header->data_bytes || s.layout.sums() != s.header->sums.size()) {
    return BadInput(Printable(s.path()) + ": the packed file's header is damaged: its weights take " +
                    std::to_string(s.layout.data_bytes()) + " bytes with " + std::to_string(s.layout.sums()) +
                    " checksums, and it has " + std::to_string(s.header->data_bytes) + " and " +
                    std::to_string(s.header->sums.size()));
  }
  TALLY_RETURN_IF_ERROR(s.Match(plan));
  return opened;
}

const std::vector<ExpertRecords>& PackedFile::records() const { return state_->records; }

Status PackedFile::ReadRecord(size_t layer, int64_t expert, uint8_t* out) const {
  return state_->ReadParts(layer, expert, 0, SIZE_MAX, out);
}

Status PackedFile::ReadPart(size_t layer, int64_t expert, size_t part, uint8_t* out) const {
  return state_->ReadParts(layer, expert, part, part + 1, out);
}

std::vector<PackedFile::Extent> PackedFile::ExtentsOf(
    const WeightPlan& plan, const std::function<bool(const PlannedWeight&, int64_t slice)>& wanted) const {
  std::vector<Extent> extents;
  for (const PlannedWeight& w : plan.weights) {
    for (int64_t s = 0; s < w.view.slices; ++s) {
      if (!wanted(w, s)) continue;
      const PackedLayout::Piece at = state_->layout.SliceOf(state_->weight_of[w.view.id], s);
      const uint64_t all = RoundUp(at.bytes, kWeightPage);
      for (uint64_t begin = 0; begin < all; begin += kReadBytes) {
        const uint64_t bytes = std::min(kReadBytes, all - begin);
        extents.push_back({w.view.id, s, begin, bytes, at.offset + begin, at.first_sum + begin / kPackedBlock});
      }
    }
  }
  std::ranges::sort(extents, {}, &Extent::offset);
  return extents;
}

Status PackedFile::ReadExtents(std::span<const Extent> extents, bool check, uint8_t* out) const {
  const uint64_t bytes = extents.back().offset + extents.back().bytes - extents.front().offset;
  const Status status =
      state_->ReadTwice(extents[0].offset, {out, bytes}, [&] { return check ? state_->CheckSums(extents, out) : Status(); });
  if (status.ok()) return {};
  return BadInput(std::to_string(bytes) + " bytes at byte " + std::to_string(state_->header->data_offset + extents[0].offset) +
                  ": " + status.message());
}

Status PackedFile::ReadSlices(const WeightPlan& plan, const PlaceSlice& place, const LoadProgress& progress,
                              const std::function<void()>& beside) const {
  const std::vector<Extent> pieces =
      ExtentsOf(plan, [&](const PlannedWeight& w, int64_t slice) { return place(w, slice) != nullptr; });
  // Runs of pieces that are read together.
  std::vector<size_t> runs;
  uint64_t total = 0, run_bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool follows = i > 0 && pieces[i - 1].offset + pieces[i - 1].bytes == pieces[i].offset;
    if (!follows || run_bytes + pieces[i].bytes > kReadBytes) {
      runs.push_back(i);
      run_bytes = 0;
    }
    run_bytes += pieces[i].bytes;
    total += pieces[i].bytes;
  }
  LoadState state(total, progress);
  const int64_t count = static_cast<int64_t>(runs.size());
  std::atomic<int64_t> next{0};  // from front to back, whoever is free
  const auto read_runs = [&](int thread) {
    Result<AnonymousMemory> staging = AnonymousMemory::Allocate(kReadBytes, /*huge=*/true);
    if (!staging.ok()) return state.Fail(-1, staging.status());
    for (int64_t run = next.fetch_add(1); run < count && !state.stopped(); run = next.fetch_add(1)) {
      const size_t first = runs[static_cast<size_t>(run)],
                   last = run + 1 < count ? runs[static_cast<size_t>(run) + 1] : pieces.size();
      const std::span<const Extent> together = std::span(pieces).subspan(first, last - first);
      if (Status status = state_->ReadTogether(plan, place, together, staging->data()); !status.ok()) {
        return state.Fail(run, std::move(status));
      }
      state.Done(thread, together.back().offset + together.back().bytes - together.front().offset);
    }
  };
  state.Done(0, 0);
  // Threads that wait for the disk more than they compute: more of them than cores do no harm.
  const int64_t readers = std::clamp<int64_t>(AvailableCores(), kLeastReaders, kMostReaders);
  RunBeside(
      static_cast<int>(std::min(readers, count)) - 1, [&] { read_runs(1); },
      [&](int) {
        if (beside) state.Guard(beside);
        state.Guard([&] { read_runs(0); });
      });
  return state.Finish();
}

Result<std::span<const uint8_t>> PackedFile::Buffer(const StoredTensor& t) const {
  for (const PackedHeader::Buffer& buffer : state_->header->buffers) {
    if (buffer.name == t.name && buffer.bytes.size() == t.bytes) return std::span<const uint8_t>(buffer.bytes);
  }
  return BadInput(Printable(state_->path()) + ": holds no tensor " + Quote(t.name) + " of " + std::to_string(t.bytes) + " bytes");
}

}  // namespace tally
