// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/base/format.h"
#include "engine/kernels/formats/fp8.h"
#include "engine/weights/pack.h"
#include "engine/weights/plan.h"
#include "engine/weights/weights.h"
#include "loaders/inventory/file_reader.h"

namespace tally {
namespace {

// The staging buffer of a thread, and the most it reads at a time: large enough to keep a disk busy, small enough to be packed
// from the caches.
constexpr uint64_t kStagingBytes = uint64_t{1} << 20;
// A job loads one weight, or all striped weights of one tensor: its rows are read once, and each weight packs its own. A slice is
// loaded in items of up to `block` units.
struct Job {
  std::vector<const PlannedWeight*> weights;
  int64_t extent = 0;  // units of a slice: rows; input rows if transposed; 1 for a vector
  int64_t block = 0;   // units of an item
  int64_t blocks = 0;  // items of a slice
  int64_t first_item = 0;
  // Bytes of a unit in the staging buffer: those read; widened: also its f32; transposed with striped outputs: also the outputs of one
  // weight; FP8: also its blocks.
  uint64_t bytes_per_unit = 0;
  bool widened = false;  // quantised rows that are transposed: an item is staged as a whole
};

// Bytes of a stored row of a transposed weight; FP8: of its blocks, codes and scales together.
uint64_t StoredRowBytes(const PlannedWeight& w) { return *StoredBytes(w.stored_dtype(), w.stored_outputs()); }

// Stored rows that are read for each row of the weight.
uint64_t RowsRead(const PlannedWeight& w) {
  return w.taps() ? static_cast<uint64_t>(w.view.slices) : w.striped() ? w.rows.step : 1;
}

// Reads and packs items; any thread, each with a staging buffer of its own.
class ItemLoader {
 public:
  // `forget`: the system is told to drop its copy of what was read.
  ItemLoader(const std::vector<FileReader>& files, const WeightPlan& plan, uint8_t* arena, bool forget)
      : files_(files), head_(plan.stored_head), embedding_(plan.embedding), arena_(arena), forget_(forget) {}

  Status Load(const Job& job, int64_t item, uint8_t* staging) const {
    const PlannedWeight& w = *job.weights[0];
    const int64_t slice = item / job.blocks, begin = item % job.blocks * job.block;
    const int64_t n = std::min(job.block, job.extent - begin);
    if (w.vector()) return LoadVector(job, slice, staging);
    if (w.striped_outputs()) return LoadStripedOutputs(job, slice, begin, n, staging);
    if (w.transposed()) return LoadTransposed(w, slice, begin, n, staging);
    if (w.view.layout == WeightLayout::kRowMajor) {  // as stored: no staging
      const uint64_t row_bytes = w.view.stored_row_bytes, first = static_cast<uint64_t>(begin), rows = static_cast<uint64_t>(n);
      return ReadRows(w, Source(w, slice), Base(w, slice), first, rows, row_bytes, 0, row_bytes,
                      Slice(w, slice) + first * row_bytes);
    }
    return LoadPanels(job, slice, begin, n, staging);
  }

  // Rejects non-finite vectors (norms, biases, sinks). A clamp or softmax could hide an infinity; one in a matrix shows in the
  // logits.
  Status CheckFinite(const StoredTensor& t, std::span<const float> values) const {
    float sum = 0;
    for (const float x : values) sum += x - x;  // 0, or NaN if a value is not finite
    if (sum == 0) return {};
    const float bad = *std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
    return BadInput(Printable(files_[t.file].path()) + ": tensor " + Quote(t.name) + " holds " +
                    (std::isnan(bad) ? "NaN"
                     : bad < 0       ? "-infinity"
                                     : "infinity") +
                    "; its values must be finite");
  }

  Status Read(const StoredTensor& t, uint64_t offset, uint64_t size, uint8_t* out) const {
    const Status status = files_[t.file].ReadAt(t.offset + offset, {out, size});
    if (!status.ok()) return {status.code(), status.message() + " (tensor " + Quote(t.name) + ")"};
    if (forget_) files_[t.file].Forget(t.offset + offset, size);
    return head_ != nullptr && &t == embedding_ ? CompareHead(offset, {out, size}) : Status();
  }

 private:
  // Compares bytes of the embedding with those of the stored head.
  Status CompareHead(uint64_t offset, std::span<const uint8_t> bytes) const {
    std::array<uint8_t, size_t{1} << 15> piece;
    for (size_t at = 0; at < bytes.size(); at += piece.size()) {
      const size_t n = std::min(piece.size(), bytes.size() - at);
      TALLY_RETURN_IF_ERROR(Read(*head_, offset + at, n, piece.data()));
      if (std::memcmp(piece.data(), bytes.data() + at, n) != 0) {
        return HeadDiffers(Printable(files_[head_->file].path()), *head_, *embedding_);
      }
    }
    return {};
  }

  static const StoredTensor& Source(const PlannedWeight& w, int64_t slice) { return *w.sources[w.source_per_slice ? slice : 0]; }
  // The slice of the tensor that is slice `slice` of the view.
  static uint64_t StoredSlice(const PlannedWeight& w, int64_t slice) {
    return static_cast<uint64_t>((w.taps() ? 0 : w.held.slices.begin) + slice);
  }
  // Byte offset of the slice in its tensor.
  static uint64_t Base(const PlannedWeight& w, int64_t slice) {
    return w.source_per_slice || w.taps() ? 0 : w.sources[0]->bytes / static_cast<uint64_t>(w.all_slices) * StoredSlice(w, slice);
  }
  uint8_t* Slice(const PlannedWeight& w, int64_t slice) const {
    return arena_ + w.arena_offset + static_cast<uint64_t>(slice) * w.view.slice_stride;
  }

  // Reads bytes [at, at + size) of each of `rows` rows of `row_bytes` into `out`, `stride` bytes apart. The first row starts at `offset`.
  Status ReadPart(const StoredTensor& t, uint64_t offset, uint64_t rows, uint64_t row_bytes, uint64_t at, uint64_t size,
                  uint64_t stride, uint8_t* out) const {
    if (size == row_bytes && stride == size) return Read(t, offset, rows * row_bytes, out);
    for (uint64_t r = 0; r < rows; ++r) TALLY_RETURN_IF_ERROR(Read(t, offset + r * row_bytes + at, size, out + r * stride));
    return {};
  }

  // Reads bytes [at, at + size) of each of rows [begin, begin + n) of a slice into `out`, contiguously. The slice starts at byte
  // `base` of its tensor. A striped weight also reads the rows between.
  Status ReadRows(const PlannedWeight& w, const StoredTensor& t, uint64_t base, uint64_t begin, uint64_t n, uint64_t row_bytes,
                  uint64_t at, uint64_t size, uint8_t* out) const {
    return w.ForRuns(begin, n, [&](uint64_t first, uint64_t rows) -> Status {
      if (w.striped() || w.rows.all()) {
        const uint64_t step = RowsRead(w);
        TALLY_RETURN_IF_ERROR(ReadPart(t, base + first * step * row_bytes, rows * step, row_bytes, at, size, size, out));
        out += rows * step * size;
        return {};
      }
      for (uint64_t r = first, run = 0; r < first + rows; r += run, out += run * size) {
        run = std::min(w.rows.block - r % w.rows.block, first + rows - r);
        TALLY_RETURN_IF_ERROR(ReadPart(t, base + w.rows.Stored(r) * row_bytes, run, row_bytes, at, size, size, out));
      }
      return {};
    });
  }

  // Reads columns [k, k + columns) of stored rows [row, row + n) of FP8 codes, counted through the tensor, and makes blocks of them and
  // their scales, or, of a ragged weight, f32. out: [n][columns / 128] blocks or [n][columns]; beyond them room for n * columns bytes.
  Status ReadScaled(const PlannedWeight& w, size_t source, uint64_t row, uint64_t n, uint64_t k, uint64_t columns,
                    uint8_t* out) const {
    constexpr DTypeInfo kType = GetDTypeInfo(DType::kFP8);
    const StoredTensor &codes = *w.sources[source], &scales = *w.scales[source];
    const uint64_t cols = codes.shape.back(), blocks = columns / kType.block_size;
    uint8_t* const staged = out + n * (w.ragged() ? columns * sizeof(float) : blocks * kType.block_bytes);
    TALLY_RETURN_IF_ERROR(ReadPart(codes, row * cols, n, cols, k, columns, columns, staged));
    const uint64_t across = (cols + w.grid.cols - 1) / w.grid.cols, first = row / w.grid.rows,
                   down = (row + n - 1) / w.grid.rows - first + 1, element = GetDTypeInfo(scales.dtype).block_bytes;
    std::vector<uint8_t> bytes(down * across * element);
    TALLY_RETURN_IF_ERROR(Read(scales, first * across * element, bytes.size(), bytes.data()));
    std::vector<float> values(down * across);
    WidenToF32(scales.dtype, static_cast<int64_t>(values.size()), 1, bytes.data(), values.data());
    for (uint64_t r = 0; r < n; ++r) {
      const float* const own = values.data() + ((row + r) / w.grid.rows - first) * across;
      for (uint64_t c = 0; w.ragged() && c < columns; ++c, out += sizeof(float)) {
        const float value = own[(k + c) / w.grid.cols] * E4M3ToF32(staged[r * columns + c]);
        std::memcpy(out, &value, sizeof value);
      }
      if (w.ragged()) continue;
      for (uint64_t b = 0; b < blocks; ++b, out += kType.block_bytes) {
        std::memcpy(out, own + (k + b * kType.block_size) / w.grid.cols, sizeof(float));
        std::memcpy(out + sizeof(float), staged + r * columns + b * kType.block_size, kType.block_size);
      }
    }
    return {};
  }

  // The same for rows [begin, begin + n) of a slice; a striped weight also reads the rows between.
  Status ReadScaledRows(const PlannedWeight& w, int64_t slice, uint64_t begin, uint64_t n, uint64_t k, uint64_t columns,
                        uint8_t* out) const {
    const size_t source = w.source_per_slice ? static_cast<size_t>(slice) : 0;
    const StoredTensor& codes = *w.sources[source];
    const uint64_t base = Base(w, slice) / codes.shape.back();
    const uint64_t row_bytes = *StoredBytes(w.ragged() ? DType::kF32 : DType::kFP8, columns);
    return w.ForRuns(begin, n, [&](uint64_t first, uint64_t rows) -> Status {
      if (w.striped() || w.rows.all()) {
        TALLY_RETURN_IF_ERROR(ReadScaled(w, source, base + first * RowsRead(w), rows * RowsRead(w), k, columns, out));
        out += rows * RowsRead(w) * row_bytes;
        return {};
      }
      for (uint64_t r = first, run = 0; r < first + rows; r += run, out += run * row_bytes) {
        run = std::min(w.rows.block - r % w.rows.block, first + rows - r);
        TALLY_RETURN_IF_ERROR(ReadScaled(w, source, base + w.rows.Stored(r), run, k, columns, out));
      }
      return {};
    });
  }

  // Reads whole rows, or, if 16 of them do not fit the staging buffer, as many groups of columns at a time as fit.
  Status LoadPanels(const Job& job, int64_t slice, int64_t begin, int64_t n, uint8_t* staging) const {
    const PlannedWeight& w = *job.weights[0];
    const DType type = w.ragged() ? DType::kF32 : w.stored_dtype();
    const uint64_t step = RowsRead(w), rows = static_cast<uint64_t>(n) * step, cols = static_cast<uint64_t>(w.view.cols);
    const uint64_t first = static_cast<uint64_t>(begin), count = static_cast<uint64_t>(n);
    const uint64_t group = static_cast<uint64_t>(FormatOf(type).group_cols(type)), group_bytes = *StoredBytes(type, group);
    const uint64_t row_bytes = w.scales.empty() ? w.view.stored_row_bytes : *StoredBytes(type, cols) + cols;
    const bool whole = rows * row_bytes <= kStagingBytes;
    const uint64_t staged_group = group_bytes + (w.scales.empty() ? 0 : group);
    const uint64_t piece = whole ? cols : kStagingBytes / (rows * staged_group) * group;
    for (uint64_t k = 0; k < cols; k += piece) {
      const uint64_t columns = std::min(piece, cols - k);
      StagedRows staged{.data = staging};
      if (w.split) {  // blocks without scales, and scales of one byte, in separate tensors
        const uint64_t row_groups = cols / group, groups = columns / group, at = k / group, codes_bytes = group_bytes - 1;
        const uint64_t base = StoredSlice(w, slice) * w.stored_rows * row_groups;
        uint8_t* scales = staging + rows * groups * codes_bytes;
        TALLY_RETURN_IF_ERROR(ReadRows(w, *w.sources[0], base * codes_bytes, first, count, row_groups * codes_bytes,
                                       at * codes_bytes, groups * codes_bytes, staging));
        TALLY_RETURN_IF_ERROR(ReadRows(w, *w.sources[1], base, first, count, row_groups, at, groups, scales));
        staged.stride = groups * codes_bytes;
        staged.scales = scales;
        staged.scale_stride = groups;
      } else if (!w.scales.empty()) {
        staged.stride = *StoredBytes(type, columns);
        TALLY_RETURN_IF_ERROR(ReadScaledRows(w, slice, first, count, k, columns, staging));
      } else {
        staged.stride = whole ? w.view.stored_row_bytes : *StoredBytes(type, columns);
        TALLY_RETURN_IF_ERROR(ReadRows(w, Source(w, slice), Base(w, slice), first, count, w.view.stored_row_bytes,
                                       k / group * group_bytes, staged.stride, staging));
      }
      for (const PlannedWeight* to : job.weights) {
        const uint64_t own_row = to->striped() ? to->rows.first : 0;
        StagedRows own = staged;
        own.data += own_row * staged.stride;
        own.stride *= step;
        if (own.scales != nullptr) own.scales += own_row * staged.scale_stride;
        own.scale_stride *= step;
        uint8_t* panel = Slice(*to, slice) + static_cast<uint64_t>(begin / kPanelRows) * to->view.panel_stride;
        PackStaged(type, WeightLayout::kPanel16, static_cast<int64_t>(columns), 0, n, own,
                   panel + PanelBytes(type, static_cast<int64_t>(k)));
      }
    }
    return {};
  }

  // Input rows [begin, begin + n): whole, or some outputs at a time.
  Status LoadTransposed(const PlannedWeight& w, int64_t slice, int64_t begin, int64_t n, uint8_t* staging) const {
    const uint64_t outputs = static_cast<uint64_t>(w.view.rows), inputs = static_cast<uint64_t>(n);
    const bool by_heads = w.storage == Storage::kTransposedHeads;
    const uint64_t first_input = static_cast<uint64_t>(begin) + (by_heads ? w.rows.first : 0);
    const uint64_t row_bytes = StoredRowBytes(w), offset = Base(w, slice) + first_input * row_bytes;
    const DType stored = w.stored_dtype();
    if (stored != w.view.dtype) {  // quantised: whole rows, widened
      uint8_t* const blocks = staging + inputs * outputs * sizeof(float);
      if (w.scales.empty()) {
        TALLY_RETURN_IF_ERROR(Read(Source(w, slice), offset, inputs * row_bytes, blocks));
      } else {
        const uint64_t base = Base(w, slice) / w.sources[0]->shape.back();
        TALLY_RETURN_IF_ERROR(
            ReadScaled(w, w.source_per_slice ? static_cast<size_t>(slice) : 0, base + first_input, inputs, 0, outputs, blocks));
      }
      for (uint64_t i = 0; i < inputs; ++i) {
        WidenToF32(stored, w.view.rows, 1, blocks + i * row_bytes, reinterpret_cast<float*>(staging) + i * outputs);
      }
      PackTransposed(w.view.dtype, w.view.rows, w.view.cols, begin, n, staging, Slice(w, slice));
      return {};
    }
    const uint64_t element = GetDTypeInfo(stored).block_bytes, first_output = by_heads ? 0 : w.rows.first;
    const bool whole = inputs * outputs * element <= kStagingBytes;
    const uint64_t piece = whole ? outputs : kStagingBytes / (inputs * element) / kPanelRows * kPanelRows;
    for (uint64_t r = 0; r < outputs; r += piece) {
      const uint64_t rows = std::min(piece, outputs - r);
      uint8_t* part = staging;
      TALLY_RETURN_IF_ERROR(w.ForRuns(r, rows, [&](uint64_t first, uint64_t run) {
        uint8_t* const to = std::exchange(part, part + run * element);
        return ReadPart(Source(w, slice), offset, inputs, row_bytes, (first_output + first) * element, run * element,
                        rows * element, to);
      }));
      PackTransposed(w.view.dtype, static_cast<int64_t>(rows), w.view.cols, begin, n, staging,
                     Slice(w, slice) + r / kPanelRows * w.view.panel_stride);
    }
    return {};
  }

  // Input rows [begin, begin + n), of which each weight takes every step-th column: the columns of all are read once, then those of
  // each are put side by side.
  Status LoadStripedOutputs(const Job& job, int64_t slice, int64_t begin, int64_t n, uint8_t* staging) const {
    const PlannedWeight& w = *job.weights[0];
    const uint64_t outputs = static_cast<uint64_t>(w.view.rows), inputs = static_cast<uint64_t>(n), step = w.rows.step;
    const uint64_t element = GetDTypeInfo(w.view.dtype).block_bytes, row_bytes = StoredRowBytes(w);
    const uint64_t first_row = static_cast<uint64_t>(w.held.rows[0].rows.begin);
    const uint64_t offset = Base(w, slice) + static_cast<uint64_t>(begin) * row_bytes;
    const bool whole = inputs * outputs * element * (step + 1) <= kStagingBytes;
    const uint64_t piece = whole ? outputs : kStagingBytes / (inputs * element * (step + 1)) / kPanelRows * kPanelRows;
    for (uint64_t r = 0; r < outputs; r += piece) {
      const uint64_t rows = std::min(piece, outputs - r), count = inputs * rows;
      TALLY_RETURN_IF_ERROR(ReadPart(Source(w, slice), offset, inputs, row_bytes, (first_row + r) * step * element,
                                     rows * step * element, rows * step * element, staging));
      uint8_t* const own = staging + count * step * element;
      for (const PlannedWeight* to : job.weights) {
        for (uint64_t i = 0; i < count; ++i) {
          std::memcpy(own + i * element, staging + (i * step + to->rows.first) * element, element);
        }
        PackTransposed(to->view.dtype, static_cast<int64_t>(rows), to->view.cols, begin, n, own,
                       Slice(*to, slice) + r / kPanelRows * to->view.panel_stride);
      }
    }
    return {};
  }

  Status LoadVector(const Job& job, int64_t slice, uint8_t* staging) const {
    const PlannedWeight& w = *job.weights[0];
    const StoredTensor& source = Source(w, slice);
    const uint64_t element = GetDTypeInfo(source.dtype).block_bytes, step = RowsRead(w);
    const uint64_t all = static_cast<uint64_t>(w.view.cols), piece = kStagingBytes / (element * step);
    for (uint64_t i = 0; i < all; i += piece) {
      const uint64_t n = std::min(piece, all - i);
      TALLY_RETURN_IF_ERROR(ReadRows(w, source, Base(w, slice), i, n, element, 0, element, staging));
      for (const PlannedWeight* to : job.weights) {
        float* const values = reinterpret_cast<float*>(Slice(*to, slice)) + i;
        const uint64_t first = to->taps() ? static_cast<uint64_t>(slice) : to->striped() ? to->rows.first : 0;
        WidenToF32(source.dtype, static_cast<int64_t>(n), static_cast<int64_t>(step), staging + first * element, values);
        if (to->storage == Storage::kPlusOne) std::for_each(values, values + n, [](float& x) { x += 1; });
        if (to->storage == Storage::kOverRoot) {
          std::for_each(values, values + n, [root = std::sqrt(static_cast<float>(all))](float& x) { x /= root; });
        }
        if (to->storage == Storage::kMinusExp) std::for_each(values, values + n, [](float& x) { x = -std::exp(x); });
        if (to->storage == Storage::kExp) std::for_each(values, values + n, [](float& x) { x = std::exp(x); });
        if (to->storage == Storage::kSoftplus) {
          std::for_each(values, values + n, [](float& x) {
            const double v = static_cast<double>(x);
            x = static_cast<float>(std::max(v, 0.0) + std::log1p(std::exp(-std::fabs(v))));
          });
        }
        TALLY_RETURN_IF_ERROR(CheckFinite(source, {values, n}));
      }
    }
    return {};
  }

  const std::vector<FileReader>& files_;
  const StoredTensor *head_, *embedding_;  // the head that is stored beside a tied embedding; null: none
  uint8_t* arena_;
  bool forget_;
};

Job MakeJob(const PlannedWeight& w) {
  Job job;
  job.weights = {&w};
  const uint64_t row_bytes = w.view.stored_row_bytes;
  int64_t grain = kPanelRows;
  if (w.vector()) {
    job.extent = grain = 1;
    job.bytes_per_unit = row_bytes * RowsRead(w);
  } else if (w.transposed()) {
    job.extent = w.view.cols;
    grain = 2;
    const uint64_t outputs = static_cast<uint64_t>(w.view.rows);
    job.widened = w.stored_dtype() != w.view.dtype;
    if (w.striped_outputs()) {
      job.bytes_per_unit = outputs * (w.rows.step + 1) * GetDTypeInfo(w.view.dtype).block_bytes;
    } else {
      job.bytes_per_unit =
          job.widened ? StoredRowBytes(w) + outputs * sizeof(float) : outputs * GetDTypeInfo(w.view.dtype).block_bytes;
      if (!w.scales.empty()) job.bytes_per_unit += outputs;
    }
  } else {
    job.extent = w.view.rows;
    const DType held = w.ragged() ? DType::kF32 : DType::kFP8;
    job.bytes_per_unit = (w.scales.empty() ? row_bytes : row_bytes + *StoredBytes(held, row_bytes)) * RowsRead(w);
  }
  const int64_t fit = static_cast<int64_t>(kStagingBytes / job.bytes_per_unit) / grain * grain;
  job.block = std::min(job.extent, std::max(grain, fit));
  job.blocks = (job.extent + job.block - 1) / job.block;
  return job;
}

// In file order, so that files are read from front to back.
std::vector<Job> MakeJobs(const WeightPlan& plan) {
  std::vector<Job> jobs;
  std::map<const StoredTensor*, size_t> striped;
  for (const PlannedWeight& w : plan.weights) {
    if (w.striped()) {
      const auto [found, first] = striped.try_emplace(w.sources[0], jobs.size());
      Job* const job = first ? nullptr : &jobs[found->second];
      if (job != nullptr && job->weights[0]->sources == w.sources && job->weights[0]->rows.step == w.rows.step &&
          job->weights[0]->view.rows == w.view.rows && job->weights[0]->view.cols == w.view.cols &&
          job->weights[0]->held == w.held) {
        job->weights.push_back(&w);
        continue;
      }
    }
    jobs.push_back(MakeJob(w));
  }
  const auto place = [](const Job& j) { return std::tuple(j.weights[0]->sources[0]->file, j.weights[0]->sources[0]->offset); };
  std::stable_sort(jobs.begin(), jobs.end(), [&](const Job& a, const Job& b) { return place(a) < place(b); });
  int64_t items = 0;
  for (Job& job : jobs) {
    job.first_item = items;
    items += job.blocks * job.weights[0]->view.slices;
  }
  return jobs;
}

// State shared by the loading threads.
class LoadState {
 public:
  LoadState(uint64_t total, const LoadProgress& progress) : total_(total), progress_(progress) {}

  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

  // Keeps the failure of the lowest item.
  void Fail(int64_t item, Status status) {
    std::lock_guard lock(mutex_);
    if (status_.ok() || item < failed_item_) {
      failed_item_ = item;
      status_ = std::move(status);
    }
    stop_.store(true, std::memory_order_relaxed);
  }

  // Only thread 0, the caller, reports progress.
  void Done(int thread, uint64_t bytes) {
    done_.fetch_add(bytes, std::memory_order_relaxed);
    if (thread == 0) Report();
  }

  // Runs fn. An exception must not pass through the team: it is kept.
  void Guard(const std::function<void()>& fn) {
    try {
      fn();
    } catch (...) {
      Fail(-1, InternalError("an exception"));
      std::lock_guard lock(mutex_);
      thrown_ = std::current_exception();
    }
  }

  // Called after the threads are done. Rethrows an exception that was kept.
  Status Finish() {
    Report();
    if (thrown_) std::rethrow_exception(thrown_);
    return status_;
  }

 private:
  void Report() {
    if (!progress_ || stopped()) return;
    bool go_on = false;
    Guard([&] { go_on = progress_(done_.load(std::memory_order_relaxed), total_); });
    if (!go_on) Fail(-1, {StatusCode::kInterrupted, "loading was interrupted"});
  }

  const uint64_t total_;
  const LoadProgress& progress_;
  std::atomic<uint64_t> done_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  int64_t failed_item_ = -1;  // -1: none, or interrupted
  Status status_;
  std::exception_ptr thrown_;
};

// `beside`: one thread runs it before it loads.
Status RunJobs(const std::vector<Job>& jobs, const ItemLoader& loader, Team& team, const LoadProgress& progress,
               const std::function<void()>& beside) {
  uint64_t total = 0, staging_bytes = 0;
  for (const Job& job : jobs) {
    const uint64_t slices = static_cast<uint64_t>(job.weights[0]->view.slices);
    total += slices * static_cast<uint64_t>(job.extent) * job.bytes_per_unit;
    const uint64_t item = static_cast<uint64_t>(job.block) * job.bytes_per_unit;
    staging_bytes = std::max(staging_bytes, job.widened ? item : std::min(kStagingBytes, item));
  }
  std::vector<AlignedBuffer<uint8_t>> staging(static_cast<size_t>(team.threads()));
  for (AlignedBuffer<uint8_t>& buffer : staging) {
    if (!buffer.Resize(staging_bytes))
      return NoRoom("not enough memory for " + std::to_string(staging_bytes) + " bytes to load through");
  }
  LoadState state(total, progress);
  const int64_t items = jobs.empty() ? 0 : jobs.back().first_item + jobs.back().blocks * jobs.back().weights[0]->view.slices;
  // A free thread takes the next run of items, so that files are read from front to back. Two threads that write to one huge page for the
  // first time would both clear it: a run has several pages.
  constexpr int64_t kRun = 8;
  const int64_t runs = (items + kRun - 1) / kRun, before = beside ? 1 : 0;
  std::atomic<int64_t> next{-before};
  const auto load = [&](int thread, int64_t i) {
    const auto after = std::upper_bound(jobs.begin(), jobs.end(), i, [](int64_t v, const Job& j) { return v < j.first_item; });
    const Job& job = *(after - 1);
    const int64_t item = i - job.first_item, first = item % job.blocks * job.block;
    if (Status status = loader.Load(job, item, staging[static_cast<size_t>(thread)].data()); !status.ok()) {
      state.Fail(i, std::move(status));
      return;
    }
    state.Done(thread, static_cast<uint64_t>(std::min(job.block, job.extent - first)) * job.bytes_per_unit);
  };
  auto load_runs = [&](int thread, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t run = next.fetch_add(1, std::memory_order_relaxed);
      if (run < 0) state.Guard(beside);
      for (int64_t i = run * kRun; run >= 0 && i < std::min(items, (run + 1) * kRun) && !state.stopped(); ++i) load(thread, i);
    }
  };
  state.Done(0, 0);
  team.Run(before + runs, 1, load_runs);
  return state.Finish();
}

}  // namespace

class WeightLoader {
 public:
  static Result<PackedWeights> Load(const Inventory& inventory, const WeightPlan& plan, Team& team, const LoadProgress& progress,
                                    const std::function<void()>& beside) {
    std::vector<FileReader> files;
    uint64_t file_bytes = 0;
    for (const InventoryFile& file : inventory.files) {
      TALLY_ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(file.path));
      TALLY_RETURN_IF_ERROR(reader.CheckUnchanged(file));
      files.push_back(std::move(reader));
      file_bytes += file.size;
    }
    // See LoadWeights. The copies could not stay whole for the next load either.
    const bool forget = plan.arena_bytes + file_bytes > AvailableMemoryBytes();
    PackedWeights weights;
    if (plan.arena_bytes > 0) {
      TALLY_ASSIGN_OR_RETURN(weights.arena_, AnonymousMemory::Allocate(plan.arena_bytes, /*huge=*/!plan.guarded));
      if (plan.guarded) weights.arena_.RefuseHugePages();
    }
    weights.guarded_ = plan.guarded;
    weights.packed_bytes_ = plan.packed_bytes();
    const ItemLoader loader(files, plan, weights.arena_.data(), forget);
    TALLY_RETURN_IF_ERROR(RunJobs(MakeJobs(plan), loader, team, progress, beside));
    if (!plan.guarded) weights.arena_.CollapseToHugePages();
    for (const PlannedHostVector& v : plan.host_vectors) {
      std::vector<uint8_t> bytes(v.source->bytes);
      TALLY_RETURN_IF_ERROR(loader.Read(*v.source, 0, bytes.size(), bytes.data()));
      std::vector<float> values(v.source->elements());
      WidenToF32(v.source->dtype, static_cast<int64_t>(values.size()), 1, bytes.data(), values.data());
      TALLY_RETURN_IF_ERROR(loader.CheckFinite(*v.source, values));
      weights.host_vectors_.push_back({v.role, v.layer, std::move(values)});
    }
    for (size_t i = 0; i < files.size(); ++i) TALLY_RETURN_IF_ERROR(files[i].CheckUnchanged(inventory.files[i]));
    for (const PlannedWeight& w : plan.weights) {
      weights.infos_.push_back(w.info);
      WeightView view = w.view;
      view.data = weights.arena_.data() + w.arena_offset;
      weights.views_.push_back(view);
      weights.entries_.push_back({w.role, w.layer, view});
      if (w.role == Role::kTokenEmbedding && plan.tied_head) weights.entries_.push_back({Role::kHead, -1, view});
    }
    for (const WeightPlan::NotHeld& w : plan.not_held) {
      weights.entries_.push_back({w.role, w.layer, w.view});
      if (w.role == Role::kTokenEmbedding && plan.tied_head) weights.entries_.push_back({Role::kHead, -1, w.view});
    }
    std::sort(weights.entries_.begin(), weights.entries_.end(), [](const PackedWeights::Entry& a, const PackedWeights::Entry& b) {
      return std::tuple(a.layer, a.role) < std::tuple(b.layer, b.role);
    });
    return weights;
  }
};

const WeightView& PackedWeights::Get(Role role, int32_t layer) const {
  const auto key = std::tuple(layer, role);
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), key,
                                   [](const Entry& e, const auto& k) { return std::tuple(e.layer, e.role) < k; });
  return at != entries_.end() && std::tuple(at->layer, at->role) == key ? at->view : none_;
}

std::span<const float> PackedWeights::HostVector(Role role, int32_t layer) const {
  for (const HostValues& v : host_vectors_) {
    if (v.role == role && v.layer == layer) return v.values;
  }
  return {};
}

Result<PackedWeights> LoadWeights(const Inventory& inventory, const WeightPlan& plan, Team& team, const LoadProgress& progress,
                                  const std::function<void()>& beside) {
  return WeightLoader::Load(inventory, plan, team, progress, beside);
}

}  // namespace tally
