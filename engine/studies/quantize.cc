// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "engine/base/finite.h"
#include "engine/base/format.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/machine/parallel.h"
#include "engine/studies/gguf_of_directory.h"
#include "engine/studies/quant_presets.h"
#include "engine/text/tokenizer.h"
#include "loaders/loaders.h"

namespace tally {
namespace {

// Means of squared activations by tensor: [experts, columns], one after another, each expert's divided by their mean. A column that the
// calibration did not use has kLeastImportance: with 0 its values would be lost.
using Importance = std::map<std::string, std::vector<float>, std::less<>>;

Result<std::vector<float>> ReadFloats(const Inventory& inventory, const StoredTensor& t) {
  if (t.dtype != DType::kF32) return BadInput(inventory.path + ": tensor '" + Printable(t.name) + "' is not F32");
  TALLY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(inventory.files[t.file].path));
  std::vector<float> values(t.elements());
  TALLY_RETURN_IF_ERROR(file.ReadAt(t.offset, {reinterpret_cast<uint8_t*>(values.data()), t.bytes}));
  return values;
}

constexpr float kLeastImportance = 1e-4f;

// llama.cpp, tools/imatrix: NAME.in_sum2 [experts, columns] sums of squares, NAME.counts [experts] how many.
Result<Importance> ReadImportance(const std::string& path) {
  constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
  Importance all;
  TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadGguf(path));
  for (const StoredTensor& t : inventory.tensors) {
    if (!t.name.ends_with(kSums)) continue;
    const std::string name = t.name.substr(0, t.name.size() - kSums.size());
    const StoredTensor* counted = inventory.Find(name + std::string(kCounts));
    if (counted == nullptr) return BadInput(path + ": '" + Printable(name) + "' has sums and no counts");
    TALLY_ASSIGN_OR_RETURN(std::vector<float> sums, ReadFloats(inventory, t));
    TALLY_ASSIGN_OR_RETURN(const std::vector<float> counts, ReadFloats(inventory, *counted));
    if (counts.empty() || sums.size() % counts.size() != 0) {
      return BadInput(path + ": '" + Printable(name) + "' has " + std::to_string(sums.size()) + " sums for " +
                      std::to_string(counts.size()) + " counts");
    }
    const size_t cols = sums.size() / counts.size();
    for (size_t e = 0; e < counts.size(); ++e) {
      const auto no_number = [&](const char* what) {
        return BadInput(path + ": '" + Printable(name) + "' has a " + what + " that is no number");
      };
      if (!(counts[e] >= 0 && counts[e] < 1e30f)) return no_number("count");
      const std::span<float> of(sums.data() + e * cols, cols);
      double mean = 0;
      for (float& sum : of) {
        sum = counts[e] > 0 ? sum / counts[e] : 1.0f;  // an expert that was never chosen
        if (!(sum >= 0 && sum < 1e30f)) return no_number("sum");
        mean += static_cast<double>(sum) / static_cast<double>(cols);
      }
      for (float& sum : of) sum = mean > 0 ? std::max(static_cast<float>(sum / mean), kLeastImportance) : 1.0f;
    }
    all.emplace(name, std::move(sums));
  }
  if (all.empty()) return BadInput(path + ": no tensor of importance (NAME.in_sum2)");
  return all;
}

constexpr float kLargestF16 = 65504;  // most formats have scales in f16

bool DescribesTheFile(std::string_view key) {
  return key == "general.file_type" || key == "general.quantization_version" || key == "general.alignment" ||
         key.starts_with("split.");
}

class Rewriter {
 public:
  Rewriter(std::string in, std::string out, const QuantizeOptions& options)
      : in_(std::move(in)), out_(std::move(out)), options_(options), team_(options.threads) {}

  Result<QuantizeReport> Run() {
    preset_ = FindQuantPreset(options_.type);
    if (preset_ == nullptr) {
      return BadInput("'" + Printable(options_.type) + "' is no type to quantize to: " + JoinNames(QuantPresetNames()));
    }
    const std::vector<std::string_view> losses = TokenizerLossNames();
    for (const std::string& loss : options_.tokenizer_loss) {
      if (std::ranges::find(losses, loss) != losses.end()) continue;
      return BadInput("'" + Printable(loss) + "' is nothing that a tokenizer may lose: " + JoinNames(losses));
    }
    if (!team_.status().ok()) return team_.status();
    TALLY_RETURN_IF_ERROR(OpenInput());
    TALLY_RETURN_IF_ERROR(CheckOutput());
    for (const InventoryFile& f : directory_ ? directory_->source().files : inventory_.files) {
      TALLY_ASSIGN_OR_RETURN(FileReader file, FileReader::Open(f.path));
      TALLY_RETURN_IF_ERROR(file.CheckUnchanged(f));
      files_.push_back(std::move(file));
      report_.bytes_in += f.size;
    }
    if (!options_.importance.empty()) {
      TALLY_ASSIGN_OR_RETURN(importance_, ReadImportance(options_.importance));
    }
    TALLY_RETURN_IF_ERROR(Choose());
    if (options_.dry_run) return report_;
    TALLY_RETURN_IF_ERROR(Write());
    return report_;
  }

 private:
  static std::string JoinNames(const std::vector<std::string_view>& names) {
    std::string all;
    for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
    return all;
  }

  Status CheckOutput() const {
    std::vector<std::filesystem::path> read = {in_};
    for (const InventoryFile& f : inventory_.files) read.emplace_back(f.path);
    if (!options_.importance.empty()) read.emplace_back(options_.importance);
    std::error_code error;
    if (directory_) {
      for (std::filesystem::directory_iterator at(in_, error), end; !error && at != end; at.increment(error))
        read.push_back(at->path());
    }
    for (const std::filesystem::path& path : read) {
      if (std::filesystem::equivalent(path, out_, error)) return BadInput(out_ + ": is read from: it would be overwritten");
    }
    return {};
  }

  Status OpenInput() {
    std::error_code error;
    if (!std::filesystem::is_directory(in_, error)) {
      TALLY_ASSIGN_OR_RETURN(inventory_, ReadGguf(in_));
      return {};
    }
    TALLY_ASSIGN_OR_RETURN(directory_, GgufOfDirectory::Open(in_, options_.tokenizer_loss));
    inventory_ = directory_->inventory();
    report_.notes = directory_->notes();
    report_.no_tokenizer = directory_->no_tokenizer();
    report_.tokenizer_losses = directory_->tokenizer_losses();
    return {};
  }

  Status Choose() {
    TALLY_ASSIGN_OR_RETURN(QuantModel model, QuantModelOf(inventory_));
    model.importance = !importance_.empty();
    for (const auto& [key, value] : inventory_.metadata.values()) {
      if (!DescribesTheFile(key)) writer_.Set(key, value);
    }
    writer_.Set("general.file_type", static_cast<int64_t>(preset_->file_type));
    if (GetDTypeInfo(preset_->type).quantised) writer_.Set("general.quantization_version", int64_t{2});
    const std::vector<QuantChoice> choices = QuantTypesOf(*preset_, model, inventory_.tensors, options_.pure);
    for (size_t i = 0; i < choices.size(); ++i) {
      const StoredTensor& t = inventory_.tensors[i];
      if (!t.other_type.empty()) {
        return BadInput(in_ + ": tensor '" + Printable(t.name) + "' has type " + Printable(t.other_type) +
                        ", which cannot be read");
      }
      const DType type = choices[i].type;
      report_.fallbacks += choices[i].fallback ? 1 : 0;
      if (type != t.dtype) {
        if (!IsWeightType(t.dtype)) {
          return BadInput(in_ + ": tensor '" + Printable(t.name) + "' has type " + std::string(DTypeName(t.dtype)) +
                          ", which cannot be read");
        }
        if (GetDTypeInfo(t.dtype).quantised && t.dtype != DType::kFP8 && !options_.requantize) {
          return BadInput(in_ + ": tensor '" + Printable(t.name) + "' is " + std::string(DTypeName(t.dtype)) +
                          " already; --requantize quantises it again, which loses more");
        }
        TALLY_RETURN_IF_ERROR(CheckImportance(t, type));
      }
      types_.push_back(type);
      writer_.AddTensor(t.name, type, t.shape);
      QuantizeReport::OfType& of = report_.types[type];
      ++of.tensors, of.elements += t.elements(),
          of.bytes += t.elements() / GetDTypeInfo(type).block_size * GetDTypeInfo(type).block_bytes;
      ++report_.tensors, report_.elements += t.elements();
    }
    report_.bytes = writer_.TotalBytes();
    if (report_.bytes == 0) return BadInput(in_ + ": a value or tensor cannot be written to GGUF");
    return {};
  }

  Status CheckImportance(const StoredTensor& t, DType type) {
    if (importance_.empty() || !GetDTypeInfo(type).quantised) return {};
    const auto found = importance_.find(t.name);
    if (found == importance_.end()) {
      ++report_.without_importance;
      return {};
    }
    const uint64_t cols = t.shape.back(), experts = t.shape.size() > 2 ? t.shape[0] : 1;
    if (found->second.size() == cols || found->second.size() == cols * experts) return {};
    return BadInput(options_.importance + ": '" + Printable(t.name) + "' has " + std::to_string(found->second.size()) +
                    " weights for " + std::to_string(cols) + " columns");
  }

  Status Write() {
    Status failed;
    const auto fill = [&](size_t index, uint64_t offset, std::span<uint8_t> piece) {
      if (failed.ok()) failed = Fill(index, offset, piece);
    };
    const auto progress = [&](uint64_t done, uint64_t total) {
      return failed.ok() && (!options_.progress || options_.progress(done, total));
    };
    const Status written = writer_.Write(out_, fill, progress);
    return failed.ok() ? written : failed;
  }

  // Makes the rows from `first` on available to Row: `n` elements of a GGUF file's tensor, the whole tensor of a directory.
  Status Read(size_t index, uint64_t first, uint64_t n) {
    if (directory_) {
      if (loaded_ == index) return {};
      TALLY_RETURN_IF_ERROR(directory_->Load(index, team_));
      loaded_ = index;
      return {};
    }
    const StoredTensor& t = inventory_.tensors[index];
    const DTypeInfo from = GetDTypeInfo(t.dtype);
    stored_.resize(n / from.block_size * from.block_bytes);
    return files_[t.file].ReadAt(t.offset + first / from.block_size * from.block_bytes, stored_);
  }

  // Row `i` of those read, row `row` of the tensor, as f32.
  void Row(const StoredTensor& t, uint64_t i, uint64_t row, float* out) const {
    if (directory_) return directory_->Row(row, out);
    const DTypeInfo from = GetDTypeInfo(t.dtype);
    const uint64_t blocks = t.shape.back() / from.block_size;
    FormatOf(t.dtype).decode(stored_.data() + i * blocks * from.block_bytes, static_cast<int64_t>(blocks), out);
  }

  // Blocks that are copied: `piece`, which begins with element `first` of the tensor. Types that nothing decodes are not looked at.
  Status CheckCopied(const StoredTensor& t, uint64_t first, std::span<const uint8_t> piece) {
    if (!IsWeightType(t.dtype)) return {};
    const DTypeInfo type = GetDTypeInfo(t.dtype);
    const int64_t blocks = static_cast<int64_t>(piece.size() / type.block_bytes),
                  some = std::max<int64_t>(1, 4096 / type.block_size);
    rows_.resize(static_cast<size_t>(team_.threads() * some * type.block_size));
    std::atomic<uint64_t> bad = UINT64_MAX;  // the first element that is not finite
    auto check = [&](int thread, int64_t begin, int64_t end) {
      float* const values = rows_.data() + static_cast<size_t>(thread * some * type.block_size);
      for (int64_t b = begin; b < end; ++b) {
        const int64_t n = std::min(some, blocks - b * some);
        FormatOf(t.dtype).decode(piece.data() + static_cast<size_t>(b * some) * type.block_bytes, n, values);
        if (AllFinite(Mat<const float>(values, 1, n * type.block_size))) continue;
        const float* const odd = std::find_if_not(values, values + n * type.block_size, [](float x) { return std::isfinite(x); });
        Lower(bad, static_cast<uint64_t>(b * some * type.block_size + (odd - values)));
      }
    };
    team_.Run((blocks + some - 1) / some, 16, check);
    return bad == UINT64_MAX ? Status() : NotFinite(t, first + bad);
  }

  static void Lower(std::atomic<uint64_t>& least, uint64_t to) {
    for (uint64_t now = least; to < now && !least.compare_exchange_weak(now, to);) {
    }
  }

  // "in.gguf: tensor 'blk.0.ffn_up.weight', row 3". Rows are counted through the slices, as they are stored.
  std::string Place(const StoredTensor& t, uint64_t element) const {
    const uint64_t cols = t.shape.empty() ? 1 : t.shape.back();
    return in_ + ": tensor '" + Printable(t.name) + "', row " + std::to_string(element / cols);
  }
  Status NotFinite(const StoredTensor& t, uint64_t element) const {
    const uint64_t cols = t.shape.empty() ? 1 : t.shape.back();
    return BadInput(Place(t, element) + ", column " + std::to_string(element % cols) +
                    " is NaN or infinite; a file of such weights cannot be run");
  }
  // The column of a row's largest magnitude.
  static uint64_t Largest(Mat<const float> row) {
    const auto less = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
    return static_cast<uint64_t>(std::max_element(row.data, row.data + row.cols, less) - row.data);
  }
  // Row `i` of those read, row `row` of the tensor, has no finite form in the type.
  Status DoesNotFit(const StoredTensor& t, DType type, uint64_t i, uint64_t row) {
    const uint64_t cols = t.shape.back();
    std::vector<float> values(cols);
    Row(t, i, row, values.data());
    for (uint64_t c = 0; c < cols; ++c) {
      if (!std::isfinite(values[c])) return NotFinite(t, row * cols + c);
    }
    char number[32];
    const uint64_t at = Largest(Mat<const float>(values.data(), 1, static_cast<int64_t>(cols)));
    std::snprintf(number, sizeof number, "%.6g", static_cast<double>(values[at]));
    return BadInput(Place(t, row * cols) + " has a value of " + number + ", which " + std::string(DTypeName(type)) +
                    " cannot hold: it or its block's scale would overflow; " +
                    (type == DType::kBF16 ? "F32 has" : "BF16 and F32 have") + " the range");
  }

  // A piece is whole rows (loaders.h); rows of more than 8 MiB are refused if the two types' blocks differ.
  Status Fill(size_t index, uint64_t offset, std::span<uint8_t> piece) {
    const StoredTensor& t = inventory_.tensors[index];
    const DTypeInfo to = GetDTypeInfo(types_[index]);
    const uint64_t first = offset / to.block_bytes * to.block_size, n = piece.size() / to.block_bytes * to.block_size;
    if (types_[index] == t.dtype && !directory_) {
      TALLY_RETURN_IF_ERROR(files_[t.file].ReadAt(t.offset + offset, piece));
      return CheckCopied(t, first, piece);
    }
    const uint64_t cols = t.shape.back();
    if (first % cols != 0 || n % cols != 0) return BadInput(in_ + ": rows of tensor '" + Printable(t.name) + "' are too long");
    TALLY_RETURN_IF_ERROR(Read(index, first, n));
    const auto found = importance_.find(t.name);
    const std::vector<float>* weights = found == importance_.end() ? nullptr : &found->second;
    const uint64_t expert_rows = weights != nullptr && weights->size() > cols ? t.shape[1] : UINT64_MAX;
    const WeightFormat& target = FormatOf(types_[index]);
    const uint64_t to_row = cols / to.block_size * to.block_bytes;
    rows_.resize(static_cast<size_t>(team_.threads()) * cols);
    std::atomic<uint64_t> bad = UINT64_MAX;  // the first row that is not finite as written
    auto convert = [&](int thread, int64_t begin, int64_t end) {
      float* row = rows_.data() + static_cast<size_t>(thread) * cols;
      for (int64_t r = begin; r < end; ++r) {
        const uint64_t i = static_cast<uint64_t>(r), expert = expert_rows == UINT64_MAX ? 0 : (first / cols + i) / expert_rows;
        const float* const weight = weights == nullptr ? nullptr : weights->data() + expert * cols;
        Row(t, i, first / cols + i, row);
        const Mat<const float> values(row, 1, static_cast<int64_t>(cols));
        const uint64_t at = AllBelow(values, kLargestF16) ? cols : Largest(values);
        const float largest = at < cols ? row[at] : 0;
        target.encode(row, weight, static_cast<int64_t>(cols / to.block_size), piece.data() + i * to_row);
        target.decode(piece.data() + i * to_row, static_cast<int64_t>(cols / to.block_size), row);
        // A scale that overflows may also end as 0: what is left of the row is finite, and the value that needed the scale is gone.
        const bool lost = at < cols && !(std::fabs(row[at] - largest) <= std::fabs(largest) / 2);
        if (lost || !AllFinite(values)) Lower(bad, i);
      }
    };
    team_.Run(static_cast<int64_t>(n / cols), std::max<int64_t>(1, static_cast<int64_t>(65536 / cols)), convert);
    return bad == UINT64_MAX ? Status() : DoesNotFit(t, types_[index], bad, first / cols + bad);
  }

  const std::string in_, out_;
  const QuantizeOptions& options_;
  const QuantPreset* preset_ = nullptr;
  Team team_;
  Inventory inventory_;  // of the GGUF file, or of what the directory makes
  std::vector<FileReader> files_;
  std::optional<GgufOfDirectory> directory_;
  size_t loaded_ = SIZE_MAX;  // its tensor
  Importance importance_;
  std::vector<DType> types_;  // of the tensors written
  GgufWriter writer_;
  std::vector<uint8_t> stored_;  // rows as read
  std::vector<float> rows_;      // a row, or some blocks, for each thread
  QuantizeReport report_;
};

}  // namespace

std::vector<std::string_view> QuantizePresets() { return QuantPresetNames(); }

Result<QuantizeReport> Quantize(const std::string& in, const std::string& out, const QuantizeOptions& options) {
  return Rewriter(in, out, options).Run();
}

}  // namespace tally
