// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/item_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "engine/base/format.h"
#include "engine/kernels/formats/fp8.h"
#include "engine/weights/pack.h"

namespace tally {
namespace {

// Bytes of a stored row of a transposed weight; FP8: of its blocks, codes and scales together.
uint64_t StoredRowBytes(const PlannedWeight& w) { return *StoredBytes(w.stored_dtype(), w.stored_outputs()); }

// Stored rows that are read for each row of the weight.
uint64_t RowsRead(const PlannedWeight& w) {
  return w.taps() ? static_cast<uint64_t>(w.view.slices) : w.striped() ? w.rows.step : 1;
}

const StoredTensor& Source(const PlannedWeight& w, int64_t slice) { return *w.sources[w.source_per_slice ? slice : 0]; }

// The slice of the tensor that is slice `slice` of the view.
uint64_t StoredSlice(const PlannedWeight& w, int64_t slice) {
  return static_cast<uint64_t>((w.taps() ? 0 : w.held.slices.begin) + slice);
}

// Byte offset of the slice in its tensor.
uint64_t Base(const PlannedWeight& w, int64_t slice) {
  return w.source_per_slice || w.taps() ? 0 : w.sources[0]->bytes / static_cast<uint64_t>(w.all_slices) * StoredSlice(w, slice);
}

// Calls fn(stored row of the slice, stored rows) for each run of stored rows that rows [begin, begin + n) of the weight are read from, in
// order. A striped weight also reads the rows between.
template <class Fn>
Status ForStoredRuns(const PlannedWeight& w, uint64_t begin, uint64_t n, const Fn& fn) {
  return w.ForRuns(begin, n, [&](uint64_t first, uint64_t rows) -> Status {
    if (w.striped() || w.rows.all()) return fn(first * RowsRead(w), rows * RowsRead(w));
    for (uint64_t r = first, run = 0; r < first + rows; r += run) {
      run = std::min(w.rows.block - r % w.rows.block, first + rows - r);
      TALLY_RETURN_IF_ERROR(fn(w.rows.Stored(r), run));
    }
    return {};
  });
}

// The scales of rows [row, row + n) of FP8 codes, counted through the tensor.
struct ScaleRows {
  ScaleRows(const PlannedWeight& w, const StoredTensor& codes, const StoredTensor& scales, uint64_t row, uint64_t n)
      : first(row / w.grid.rows),
        down((row + n - 1) / w.grid.rows - first + 1),
        across((codes.shape.back() + w.grid.cols - 1) / w.grid.cols),
        element(GetDTypeInfo(scales.dtype).block_bytes) {}
  uint64_t first, down, across, element;
  uint64_t offset() const { return first * across * element; }
  uint64_t bytes() const { return down * across * element; }
};

class ItemLoader {
 public:
  ItemLoader(const TensorReader& reader, const PlaceSlice& place) : reader_(reader), place_(place) {}

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

 private:
  uint8_t* Slice(const PlannedWeight& w, int64_t slice) const { return place_(w, slice); }
  Status Read(const StoredTensor& t, uint64_t offset, uint64_t size, uint8_t* out) const {
    return reader_.Read(t, offset, size, out);
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
    return ForStoredRuns(w, begin, n, [&](uint64_t first, uint64_t rows) {
      uint8_t* const to = std::exchange(out, out + rows * size);
      return ReadPart(t, base + first * row_bytes, rows, row_bytes, at, size, size, to);
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
    const ScaleRows part(w, codes, scales, row, n);
    std::vector<uint8_t> bytes(part.bytes());
    TALLY_RETURN_IF_ERROR(Read(scales, part.offset(), bytes.size(), bytes.data()));
    std::vector<float> values(part.down * part.across);
    WidenToF32(scales.dtype, static_cast<int64_t>(values.size()), 1, bytes.data(), values.data());
    for (uint64_t r = 0; r < n; ++r) {
      const float* const own = values.data() + ((row + r) / w.grid.rows - part.first) * part.across;
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
    return ForStoredRuns(w, begin, n, [&](uint64_t first, uint64_t rows) {
      uint8_t* const to = std::exchange(out, out + rows * row_bytes);
      return ReadScaled(w, source, base + first, rows, k, columns, to);
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
        TALLY_RETURN_IF_ERROR(CheckFinite(reader_.FileOf(source), source, {values, n}));
      }
    }
    return {};
  }

  const TensorReader& reader_;
  const PlaceSlice& place_;
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

}  // namespace

std::vector<Job> MakeJobs(const WeightPlan& plan, bool streamed_weights) {
  std::vector<Job> jobs;
  std::map<const StoredTensor*, size_t> striped;
  for (const PlannedWeight& w : plan.weights) {
    if (w.streamed != streamed_weights) continue;
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

uint64_t StagingBytes(std::span<const Job> jobs) {
  uint64_t bytes = 0;
  for (const Job& job : jobs) {
    const uint64_t item = static_cast<uint64_t>(job.block) * job.bytes_per_unit;
    bytes = std::max(bytes, job.widened ? item : std::min(kStagingBytes, item));
  }
  return bytes;
}

Status LoadItem(const TensorReader& reader, const PlaceSlice& place, const Job& job, int64_t item, uint8_t* staging) {
  return ItemLoader(reader, place).Load(job, item, staging);
}

void AppendRanges(const Job& job, int64_t item, std::vector<TensorRange>* ranges) {
  const PlannedWeight& w = *job.weights[0];
  const int64_t slice = item / job.blocks, begin = item % job.blocks * job.block;
  const uint64_t first = static_cast<uint64_t>(begin), n = static_cast<uint64_t>(std::min(job.block, job.extent - begin));
  const StoredTensor& source = Source(w, slice);
  // Stored rows [row, row + rows) of a tensor whose slice starts at byte `base`.
  const auto add = [&](const StoredTensor& t, uint64_t base, uint64_t row, uint64_t rows, uint64_t row_bytes) -> Status {
    ranges->push_back({&t, base + row * row_bytes, rows * row_bytes});
    return {};
  };
  const auto add_rows = [&](const StoredTensor& t, uint64_t base, uint64_t count, uint64_t row_bytes) {
    (void)ForStoredRuns(w, first, count, [&](uint64_t row, uint64_t rows) { return add(t, base, row, rows, row_bytes); });
  };
  const auto add_scaled = [&](uint64_t row, uint64_t rows) -> Status {
    const size_t i = w.source_per_slice ? static_cast<size_t>(slice) : 0;
    const ScaleRows part(w, *w.sources[i], *w.scales[i], row, rows);
    ranges->push_back({w.scales[i], part.offset(), part.bytes()});
    return add(*w.sources[i], 0, row, rows, w.sources[i]->shape.back());
  };
  if (w.vector())
    return add_rows(source, Base(w, slice), static_cast<uint64_t>(w.view.cols), GetDTypeInfo(source.dtype).block_bytes);
  if (w.transposed()) {
    const uint64_t row = first + (w.storage == Storage::kTransposedHeads ? w.rows.first : 0);
    if (!w.scales.empty()) {
      (void)add_scaled(Base(w, slice) / w.sources[0]->shape.back() + row, n);
    } else if (w.striped_outputs() || 2 * static_cast<uint64_t>(w.view.rows) >= w.stored_outputs()) {
      (void)add(source, Base(w, slice), row, n, StoredRowBytes(w));
    }
    return;
  }
  if (w.split) {
    const uint64_t group = static_cast<uint64_t>(FormatOf(*w.split).group_cols(*w.split));
    const uint64_t row_groups = static_cast<uint64_t>(w.view.cols) / group, codes_bytes = *StoredBytes(*w.split, group) - 1;
    const uint64_t base = StoredSlice(w, slice) * w.stored_rows * row_groups;
    add_rows(*w.sources[0], base * codes_bytes, n, row_groups * codes_bytes);
    add_rows(*w.sources[1], base, n, row_groups);
  } else if (!w.scales.empty()) {
    const uint64_t base = Base(w, slice) / source.shape.back();
    (void)ForStoredRuns(w, first, n, [&](uint64_t row, uint64_t rows) { return add_scaled(base + row, rows); });
  } else {
    add_rows(source, Base(w, slice), n, w.view.stored_row_bytes);
  }
}

Status CheckFinite(const std::string& file, const StoredTensor& t, std::span<const float> values) {
  float sum = 0;
  for (const float x : values) sum += x - x;  // 0, or NaN if a value is not finite
  if (sum == 0) return {};
  const float bad = *std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  return BadInput(file + ": tensor " + Quote(t.name) + " holds " +
                  (std::isnan(bad) ? "NaN"
                   : bad < 0       ? "-infinity"
                                   : "infinity") +
                  "; its values must be finite");
}

}  // namespace tally
