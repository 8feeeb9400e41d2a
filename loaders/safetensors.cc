// SPDX-License-Identifier: Apache-2.0
#include "loaders/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/base/checked.h"
#include "engine/base/json.h"
#include "loaders/checks.h"
#include "loaders/inventory/message.h"
#include "loaders/loaders.h"

namespace tally::internal {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the published library's limit
constexpr int kMaxHeaderDepth = 8;
constexpr size_t kMaxDims = 8;
constexpr size_t kMaxTypeNameBytes = 32;

constexpr DType kReadable[] = {DType::kF64,     DType::kF32, DType::kF16, DType::kBF16, DType::kF8_E4M3,
                               DType::kF8_E5M2, DType::kI64, DType::kI32, DType::kI16,  DType::kI8,
                               DType::kU64,     DType::kU32, DType::kU16, DType::kU8,   DType::kBOOL};

// safetensors names its types as Tally does.
std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DType t : kReadable) {
    if (DTypeName(t) == name) return t;
  }
  return std::nullopt;
}

// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "text",
// ...}}
class HeaderHandler : public JsonHandler {
 public:
  // Offsets are from the end of the header until the caller moves them.
  explicit HeaderHandler(std::vector<StoredTensor>* tensors) : tensors_(tensors) {}

  Status Key(std::string key) override {
    if (depth_ == 1) {
      skipping_ = key == "__metadata__";  // texts of the writer's; nothing in them is needed
      tensor_ = {};
      if (key.empty()) return BadInput("a tensor has an empty name");
      if (key.size() > kMaxTensorNameBytes) return BadInput("the tensor name " + Quote(key) + " is too long");
      tensor_.name = std::move(key);
      have_dtype_ = have_shape_ = have_offsets_ = false;
    } else if (!skipping_) {
      field_ = key == "dtype" ? kDType : key == "shape" ? kShape : key == "data_offsets" ? kOffsets : kNone;
      if (field_ == kNone) return Error("unexpected key " + Quote(key) + "; expected dtype, shape, data_offsets");
    }
    return {};
  }

  Status Scalar(JsonScalar value) override {
    // Some files in circulation have "__metadata__": null, which the published library accepts as none.
    if (skipping_ && depth_ == 1 && std::holds_alternative<std::nullptr_t>(value)) return {};
    if (skipping_ && depth_ == 2) {
      return std::holds_alternative<std::string>(value) ? Status() : Error("expected its values to be strings");
    }
    if (depth_ == 1) return Error("expected an object");
    if (depth_ == 2) {
      const auto* name = std::get_if<std::string>(&value);
      if (field_ != kDType || name == nullptr) return Error(Expected());
      if (name->empty() || name->size() > kMaxTypeNameBytes) {
        return Error("expected a type's name of 1 to " + std::to_string(kMaxTypeNameBytes) + " bytes, found " + Quote(*name));
      }
      const auto dtype = DTypeFromName(*name);
      tensor_.dtype = dtype.value_or(DType::kU8);
      tensor_.other_type = dtype ? std::string() : *name;
      have_dtype_ = true;
      return {};
    }
    const auto* number = std::get_if<uint64_t>(&value);
    if (number == nullptr) return Error(Expected());
    std::vector<uint64_t>& numbers = field_ == kShape ? tensor_.shape : offsets_;
    if (numbers.size() == (field_ == kShape ? kMaxDims : 2)) {
      return Error(field_ == kShape ? "more than " + std::to_string(kMaxDims) + " dimensions" : Expected());
    }
    numbers.push_back(*number);
    return {};
  }

  Status Begin(bool object) override {
    ++depth_;
    if (depth_ == 1) return {};
    if (skipping_ && depth_ > 2) return Error("expected its values to be strings");
    if (depth_ == 2) {
      if (!object) return Error("expected an object");
      if (!skipping_ && tensors_->size() == kMaxTensors) {
        return BadInput("more than " + std::to_string(kMaxTensors) + " tensors");
      }
      return {};
    }
    if (depth_ > 3 || object || field_ == kDType) return Error(Expected());
    (field_ == kShape ? have_shape_ : have_offsets_) = true;
    if (field_ == kOffsets) offsets_.clear();
    return {};
  }

  Status End() override {
    --depth_;
    if (depth_ != 1 || skipping_) return {};
    if (!have_dtype_ || !have_shape_ || !have_offsets_) {
      return Error(std::string("the key ") + (!have_dtype_ ? "dtype" : !have_shape_ ? "shape" : "data_offsets") + " is missing");
    }
    return Finish();
  }

 private:
  enum Field : uint8_t { kNone, kDType, kShape, kOffsets };

  Status Error(const std::string& what) const { return BadInput("tensor " + Quote(tensor_.name) + ": " + what); }
  std::string Expected() const {
    if (field_ == kDType) return "expected dtype to be a string";
    if (field_ == kShape) return "expected shape to be an array of whole numbers";
    return "expected data_offsets to be an array of two whole numbers";
  }

  Status Finish() {
    if (offsets_.size() != 2) return Error("expected data_offsets to be an array of two whole numbers");
    if (offsets_[0] > offsets_[1]) {
      return Error("data_offsets end at " + std::to_string(offsets_[1]) + ", before they begin at " +
                   std::to_string(offsets_[0]));
    }
    uint64_t elements = 1;
    for (const uint64_t d : tensor_.shape) {
      const auto product = CheckedMul(elements, d);
      if (!product || *product > INT64_MAX || d > INT64_MAX) return Error("the number of elements overflows 63 bits");
      elements = *product;
    }
    const uint64_t given = offsets_[1] - offsets_[0];
    const auto bytes = tensor_.other_type.empty() ? StoredBytes(tensor_.dtype, elements) : std::optional(given);
    if (!bytes || *bytes != given) {
      return Error(std::to_string(elements) + " elements of " + std::string(DTypeName(tensor_.dtype)) + " take " +
                   (bytes ? std::to_string(*bytes) : "more than 2^64") + " bytes, data_offsets give " + std::to_string(given));
    }
    tensor_.offset = offsets_[0];
    tensor_.bytes = *bytes;
    tensors_->push_back(std::move(tensor_));
    return {};
  }

  std::vector<StoredTensor>* tensors_;
  int depth_ = 0;
  bool skipping_ = false;
  Field field_ = kNone;
  StoredTensor tensor_;
  std::vector<uint64_t> offsets_;
  bool have_dtype_ = false, have_shape_ = false, have_offsets_ = false;
};

}  // namespace

Status ReadSafetensors(const std::string& path, Inventory* inventory) {
  TALLY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  const std::string place = Printable(path) + ": header";
  if (file.size() < 8)
    return BadInput(place + ": expected 8 bytes of header length, the file has " + std::to_string(file.size()));
  uint8_t length_bytes[8];
  TALLY_RETURN_IF_ERROR(file.ReadAt(0, length_bytes));
  static_assert(std::endian::native == std::endian::little);
  uint64_t length = 0;
  std::memcpy(&length, length_bytes, sizeof length);
  if (length > file.size() - 8) {
    return BadInput(place + ": its length is given as " + std::to_string(length) + " bytes, but the file has " +
                    std::to_string(file.size() - 8) + " more; not a safetensors file, or a truncated one");
  }
  if (length > kMaxHeaderBytes) {
    return BadInput(place + ": its length is given as " + std::to_string(length) + " bytes; the limit is " +
                    std::to_string(kMaxHeaderBytes));
  }
  std::vector<StoredTensor> tensors;
  {
    std::string header(length, '\0');
    TALLY_RETURN_IF_ERROR(file.ReadAt(8, {reinterpret_cast<uint8_t*>(header.data()), header.size()}));
    if (!header.starts_with('{')) return BadInput(place + ": expected a JSON object, which begins with '{'");
    HeaderHandler handler(&tensors);
    TALLY_RETURN_IF_ERROR(ParseJson(place, header, {.depth = kMaxHeaderDepth}, handler));
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;  // empty tensors before what begins there too
  });
  const uint64_t data = 8 + length, data_bytes = file.size() - data;
  uint64_t end = 0;  // of the tensors so far
  for (StoredTensor& t : tensors) {
    if (t.offset != end) {
      return BadInput(place + ": tensor " + Quote(t.name) + ": its bytes begin at " + std::to_string(t.offset) +
                      " of the data, " + (t.offset < end ? "inside another tensor, which ends at " : "leaving a hole from ") +
                      std::to_string(end));
    }
    if (t.bytes > data_bytes - end) {
      return BadInput(place + ": tensor " + Quote(t.name) + ": its bytes end at " + std::to_string(t.offset + t.bytes) +
                      " of the data, but the file has only " + std::to_string(data_bytes));
    }
    end += t.bytes;
    t.offset += data;
    t.file = static_cast<uint32_t>(inventory->files.size());
  }
  if (end != data_bytes) {
    return BadInput(place + ": the tensors end at byte " + std::to_string(end) + " of the data, but the file has " +
                    std::to_string(data_bytes));
  }
  if (inventory->tensors.size() + tensors.size() > kMaxTensors) {
    return BadInput(place + ": with this file the checkpoint has more than " + std::to_string(kMaxTensors) + " tensors");
  }
  inventory->files.push_back({path, file.size(), file.stamp()});
  std::move(tensors.begin(), tensors.end(), std::back_inserter(inventory->tensors));
  return {};
}

}  // namespace tally::internal
