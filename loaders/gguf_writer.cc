// SPDX-License-Identifier: Apache-2.0
// GgufWriter makes the header in memory; tensor_file.h streams the tensors.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "engine/base/checked.h"
#include "loaders/checks.h"
#include "loaders/gguf_types.h"
#include "loaders/inventory/message.h"
#include "loaders/loaders.h"
#include "loaders/tensor_file.h"

namespace tally {
namespace {

using internal::Padding;
using internal::TensorFile;

// The type that Set writes: see its contract.
uint32_t UsualType(const MetaValue& value) {
  using namespace internal;
  if (const auto* u = std::get_if<uint64_t>(&value)) return *u <= UINT32_MAX ? kGgufU32 : kGgufU64;
  if (const auto* i = std::get_if<int64_t>(&value)) {
    if (*i >= 0 && *i <= UINT32_MAX) return kGgufU32;
    return *i < 0 && *i >= INT32_MIN ? kGgufI32 : kGgufI64;
  }
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) {
    const bool fits = std::all_of(v->begin(), v->end(), [](int64_t i) { return i >= INT32_MIN && i <= INT32_MAX; });
    return fits ? kGgufI32 : kGgufI64;
  }
  if (std::holds_alternative<double>(value) || std::holds_alternative<std::vector<double>>(value)) return kGgufF32;
  if (std::holds_alternative<bool>(value) || std::holds_alternative<std::vector<bool>>(value)) return kGgufBool;
  return kGgufString;
}

template <class T>
void Append(std::string* out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

void AppendString(std::string* out, std::string_view text) {
  Append<uint64_t>(out, text.size());
  *out += text;
}

template <class Stored, class Value>
bool AppendInteger(std::string* out, Value value) {
  if (!std::in_range<Stored>(value)) return false;
  Append(out, static_cast<Stored>(value));
  return true;
}

// Appends one value (or array element) as `type`; false if the type cannot hold it.
template <class Value>
bool AppendScalar(std::string* out, const Value& value, uint32_t type) {
  using namespace internal;
  if constexpr (std::is_same_v<Value, std::string>) {
    if (type != kGgufString) return false;
    AppendString(out, value);
    return true;
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (type != kGgufBool) return false;
    Append<uint8_t>(out, value ? 1 : 0);
    return true;
  } else if constexpr (std::is_same_v<Value, double>) {
    if (type == kGgufF64) {
      Append(out, value);
      return true;
    }
    // Rounding to f32 is meant; turning a finite value into infinity is not.
    if (type != kGgufF32 || (std::isfinite(value) && std::fabs(value) > std::numeric_limits<float>::max())) return false;
    Append(out, static_cast<float>(value));
    return true;
  } else {
    switch (type) {
      case kGgufU8: return AppendInteger<uint8_t>(out, value);
      case kGgufI8: return AppendInteger<int8_t>(out, value);
      case kGgufU16: return AppendInteger<uint16_t>(out, value);
      case kGgufI16: return AppendInteger<int16_t>(out, value);
      case kGgufU32: return AppendInteger<uint32_t>(out, value);
      case kGgufI32: return AppendInteger<int32_t>(out, value);
      case kGgufU64: return AppendInteger<uint64_t>(out, value);
      case kGgufI64: return AppendInteger<int64_t>(out, value);
      default: return false;
    }
  }
}

bool AppendValue(std::string* out, const MetaValue& value, uint32_t type) {
  return std::visit(
      [&](const auto& v) {
        using V = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<V, std::string> || !requires { v.begin(); }) {
          Append<uint32_t>(out, type);
          return AppendScalar(out, v, type);
        } else {
          Append<uint32_t>(out, internal::kGgufArray);
          Append<uint32_t>(out, type);
          Append<uint64_t>(out, v.size());
          for (const auto& element : v) {
            if (!AppendScalar<typename V::value_type>(out, element, type)) return false;
          }
          return internal::GgufValueBytes(type) != 0;
        }
      },
      value);
}

Status CheckTensor(const StoredTensor& t, uint64_t* bytes) {
  const std::string place = "tensor " + Quote(t.name) + ": ";
  if (t.name.empty() || t.name.size() > internal::kMaxTensorNameBytes) {
    return BadInput(place + "expected a name of 1 to " + std::to_string(internal::kMaxTensorNameBytes) + " bytes");
  }
  if (!internal::GgmlFromDType(t.dtype)) {
    return BadInput(place + "GGUF has no type " + std::string(DTypeName(t.dtype)));
  }
  if (t.shape.size() > internal::kGgufMaxDims) {
    return BadInput(place + std::to_string(t.shape.size()) + " dimensions; GGUF has at most " +
                    std::to_string(internal::kGgufMaxDims));
  }
  uint64_t elements = 1;
  for (const uint64_t d : t.shape) {
    const auto product = CheckedMul(elements, d);
    if (d == 0 || !product || *product > INT64_MAX) return BadInput(place + "the shape is empty or overflows 63 bits");
    elements = *product;
  }
  const uint64_t row = t.shape.empty() ? 1 : t.shape.back();
  const auto stored = StoredBytes(t.dtype, elements);
  if (!stored || row % GetDTypeInfo(t.dtype).block_size != 0) {
    return BadInput(place + "rows of " + std::to_string(row) + " elements are not whole " + std::string(DTypeName(t.dtype)) +
                    " blocks");
  }
  *bytes = *stored;
  return {};
}

}  // namespace

void GgufWriter::Set(std::string key, MetaValue value) {
  const uint32_t type = UsualType(value);
  entries_.push_back({std::move(key), std::move(value), type});
}

void GgufWriter::SetTyped(std::string key, MetaValue value, uint32_t gguf_type) {
  entries_.push_back({std::move(key), std::move(value), gguf_type});
}

void GgufWriter::AddTensor(std::string name, DType dtype, std::vector<uint64_t> shape) {
  StoredTensor& t = tensors_.emplace_back();
  t.name = std::move(name);
  t.dtype = dtype;
  t.shape = std::move(shape);
}

namespace {

template <class Entries>
Result<TensorFile> MakeLayout(const Entries& entries, const std::vector<StoredTensor>& tensors) {
  TensorFile layout;
  layout.alignment = internal::kGgufDefaultAlignment;
  std::string& h = layout.header;
  h = "GGUF";
  Append<uint32_t>(&h, internal::kGgufVersion);
  Append<uint64_t>(&h, tensors.size());
  Append<uint64_t>(&h, entries.size());
  std::set<std::string_view> keys;
  for (const auto& e : entries) {
    const std::string place = "metadata key " + Quote(e.key) + ": ";
    if (e.key.empty() || e.key.size() > internal::kGgufMaxKeyBytes) return BadInput(place + "expected 1 to 65535 bytes");
    if (!keys.insert(e.key).second) return BadInput(place + "set twice");
    AppendString(&h, e.key);
    if (!AppendValue(&h, e.value, e.type)) {
      return BadInput(place + "the value is " + std::string(internal::KindOf(e.value)) + " that GGUF type " +
                      std::to_string(e.type) + " cannot hold");
    }
    if (e.key != internal::kGgufAlignmentKey) continue;
    Metadata alone;
    alone.source = "GgufWriter";
    alone.Set(e.key, e.value);
    TALLY_ASSIGN_OR_RETURN(const auto alignment, alone.GetInt(e.key));
    if (!alignment || *alignment <= 0 || *alignment > (int64_t{1} << 30) ||
        !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
      return BadInput(place + "expected a power of two of at most 2^30");
    }
    layout.alignment = static_cast<uint64_t>(*alignment);
  }
  TALLY_RETURN_IF_ERROR(internal::CheckUniqueNames("GGUF file to be written", tensors));
  uint64_t offset = 0;  // from the start of the data
  for (const StoredTensor& t : tensors) {
    uint64_t bytes = 0;
    TALLY_RETURN_IF_ERROR(CheckTensor(t, &bytes));
    layout.bytes.push_back(bytes);
    AppendString(&h, t.name);
    Append<uint32_t>(&h, static_cast<uint32_t>(t.shape.size()));
    for (size_t d = t.shape.size(); d-- > 0;) Append<uint64_t>(&h, t.shape[d]);  // innermost first
    Append<uint32_t>(&h, *internal::GgmlFromDType(t.dtype));
    Append<uint64_t>(&h, offset);
    const auto end = CheckedAdd(offset, bytes);
    if (!end || *end > INT64_MAX / 2) return BadInput("tensor " + Quote(t.name) + ": the file would be larger than 2^62 bytes");
    offset = *end + Padding(*end, layout.alignment);
  }
  h.append(Padding(h.size(), layout.alignment), '\0');
  layout.total = h.size() + offset;
  return layout;
}

}  // namespace

uint64_t GgufWriter::TotalBytes() const {
  const Result<TensorFile> layout = MakeLayout(entries_, tensors_);
  return layout.ok() ? layout->total : 0;
}

Status GgufWriter::Write(const std::string& path, const FillTensor& fill, const WriteProgress& progress) const {
  TALLY_ASSIGN_OR_RETURN(const TensorFile layout, MakeLayout(entries_, tensors_));
  return internal::WriteTensorFile(path, layout, tensors_, fill, progress);
}

}  // namespace tally
