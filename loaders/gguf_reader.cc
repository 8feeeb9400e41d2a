// SPDX-License-Identifier: Apache-2.0
// ReadGguf: the format as ggml/docs/gguf.md describes it, versions 2 and 3 (the same layout; 1 had 32-bit
// counts).
#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/base/checked.h"
#include "loaders/checks.h"
#include "loaders/gguf_cursor.h"
#include "loaders/gguf_types.h"
#include "loaders/inventory/message.h"
#include "loaders/loaders.h"

namespace tally {
namespace {

using internal::GgufCursor;

// Array elements in all of a file's metadata: a stored byte may become a 32-byte std::string in memory, so
// the file's size alone is too generous a limit. The largest vocabularies have some two million.
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 24;

// One file, not yet put together with its siblings.
struct Shard {
  InventoryFile file;
  Metadata metadata;
  std::vector<StoredTensor> tensors;
};

std::string Of(uint64_t index, uint64_t count) { return std::to_string(index + 1) + " of " + std::to_string(count); }

// llama.cpp's format of importance matrices before they were GGUF: a count of entries, and of each first the length of its name, that of
// a tensor. `count`: the file's first four bytes.
bool IsOldImportance(GgufCursor& cursor, std::string_view count) {
  constexpr size_t kLongest = 256;
  constexpr std::string_view kEnd = ".weight";
  uint32_t entries = 0, length = 0;
  std::memcpy(&entries, count.data(), sizeof entries);
  if (entries == 0 || entries > internal::kMaxTensors || !cursor.Read(&length, "a length").ok()) return false;
  if (length <= kEnd.size() || length > std::min<uint64_t>(kLongest, cursor.remaining())) return false;
  std::string name(length, '\0');
  return cursor.ReadBytes(name.data(), length, "a name").ok() && name.ends_with(kEnd);
}

Status CheckMagic(GgufCursor& cursor) {
  char magic[4];
  TALLY_RETURN_IF_ERROR(cursor.ReadBytes(magic, sizeof magic, "the letters GGUF"));
  const std::string_view found(magic, sizeof magic);
  if (found == "GGUF") return {};
  if (found == "FUGG") return cursor.Error("a big-endian GGUF file; only little-endian ones can be read");
  if (found == "lmgg" || found == "fmgg" || found == "tjgg" || found == "algg") {
    return cursor.Error("a GGML file from before GGUF (2023); convert it to GGUF");
  }
  if (found == std::string_view("PK\x03\x04", 4)) {
    return cursor.Error("a zip archive (PyTorch writes such files); expected GGUF or a Hugging Face directory");
  }
  if (found == "<!DO" || found == "<!do" || found == "<htm") {
    return cursor.Error("an HTML page; whatever it was downloaded with got a message in the file's place");
  }
  if (IsOldImportance(cursor, found)) {
    return cursor.Error(
        "an importance matrix in llama.cpp's old format (imatrix.dat); its llama-imatrix makes a GGUF file of it");
  }
  return cursor.Error("expected a GGUF file, which begins with the letters GGUF, found " + Quote(found));
}

Status CheckVersion(GgufCursor& cursor) {
  uint32_t version = 0;
  TALLY_RETURN_IF_ERROR(cursor.Read(&version, "the GGUF version"));
  if (version == 2 || version == 3) return {};
  if (const uint32_t swapped = __builtin_bswap32(version); swapped >= 1 && swapped <= 3) {
    return cursor.Error("a big-endian GGUF file; only little-endian ones can be read");
  }
  return cursor.Error("GGUF version " + std::to_string(version) + "; versions 2 and 3 can be read");
}

Status ReadBool(GgufCursor& cursor, bool* out) {
  uint8_t byte = 0;
  TALLY_RETURN_IF_ERROR(cursor.Read(&byte, "a boolean"));
  if (byte > 1) return cursor.Error("a boolean is 0 or 1, found " + std::to_string(byte));
  *out = byte == 1;
  return {};
}

template <class Stored, class Value>
Status ReadNumber(GgufCursor& cursor, MetaValue* out) {
  Stored stored{};
  TALLY_RETURN_IF_ERROR(cursor.Read(&stored, "a number"));
  *out = static_cast<Value>(stored);
  return {};
}

template <class Stored, class Value>
Status ReadNumbers(GgufCursor& cursor, uint64_t count, MetaValue* out) {
  std::vector<Value> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    Stored stored{};
    TALLY_RETURN_IF_ERROR(cursor.Read(&stored, "a number"));
    if constexpr (std::is_same_v<Stored, uint64_t>) {
      if (stored > INT64_MAX) {
        return cursor.Error("array element " + std::to_string(i) + " is " + std::to_string(stored) +
                            ", more than 64 signed bits hold");
      }
    }
    values.push_back(static_cast<Value>(stored));
  }
  *out = std::move(values);
  return {};
}

// elements_left: what remains of kMaxArrayElements.
Status ReadArray(GgufCursor& cursor, uint64_t* elements_left, MetaValue* out) {
  using namespace internal;  // the type numbers
  uint32_t type = 0;
  uint64_t count = 0;
  TALLY_RETURN_IF_ERROR(cursor.Read(&type, "the element type of an array"));
  TALLY_RETURN_IF_ERROR(cursor.Read(&count, "the length of an array"));
  if (type == kGgufArray) return cursor.Error("an array of arrays; only arrays of plain values can be read");
  const uint64_t bytes_each = GgufValueBytes(type);
  if (bytes_each == 0) return cursor.Error("array elements of type " + std::to_string(type) + "; types 0 to 12 exist");
  TALLY_RETURN_IF_ERROR(cursor.NeedItems(count, bytes_each, "an array of " + std::to_string(count) + " elements"));
  if (count > *elements_left) {
    return cursor.Error("an array of " + std::to_string(count) + " elements; all arrays together may have " +
                        std::to_string(kMaxArrayElements));
  }
  *elements_left -= count;
  switch (type) {
    case kGgufU8: return ReadNumbers<uint8_t, int64_t>(cursor, count, out);
    case kGgufI8: return ReadNumbers<int8_t, int64_t>(cursor, count, out);
    case kGgufU16: return ReadNumbers<uint16_t, int64_t>(cursor, count, out);
    case kGgufI16: return ReadNumbers<int16_t, int64_t>(cursor, count, out);
    case kGgufU32: return ReadNumbers<uint32_t, int64_t>(cursor, count, out);
    case kGgufI32: return ReadNumbers<int32_t, int64_t>(cursor, count, out);
    case kGgufU64: return ReadNumbers<uint64_t, int64_t>(cursor, count, out);
    case kGgufI64: return ReadNumbers<int64_t, int64_t>(cursor, count, out);
    case kGgufF32: return ReadNumbers<float, double>(cursor, count, out);
    case kGgufF64: return ReadNumbers<double, double>(cursor, count, out);
    case kGgufBool: {
      std::vector<bool> values(count);
      for (uint64_t i = 0; i < count; ++i) {
        bool value = false;
        TALLY_RETURN_IF_ERROR(ReadBool(cursor, &value));
        values[i] = value;
      }
      *out = std::move(values);
      return {};
    }
    default: {  // kGgufString
      std::vector<std::string> values(count);
      for (std::string& value : values) {
        TALLY_RETURN_IF_ERROR(cursor.ReadString(&value, UINT64_MAX, "a string"));
      }
      *out = std::move(values);
      return {};
    }
  }
}

Status ReadValue(GgufCursor& cursor, uint32_t type, uint64_t* elements_left, MetaValue* out) {
  using namespace internal;  // the type numbers
  switch (type) {
    case kGgufU8: return ReadNumber<uint8_t, uint64_t>(cursor, out);
    case kGgufI8: return ReadNumber<int8_t, int64_t>(cursor, out);
    case kGgufU16: return ReadNumber<uint16_t, uint64_t>(cursor, out);
    case kGgufI16: return ReadNumber<int16_t, int64_t>(cursor, out);
    case kGgufU32: return ReadNumber<uint32_t, uint64_t>(cursor, out);
    case kGgufI32: return ReadNumber<int32_t, int64_t>(cursor, out);
    case kGgufU64: return ReadNumber<uint64_t, uint64_t>(cursor, out);
    case kGgufI64: return ReadNumber<int64_t, int64_t>(cursor, out);
    case kGgufF32: return ReadNumber<float, double>(cursor, out);
    case kGgufF64: return ReadNumber<double, double>(cursor, out);
    case kGgufBool: {
      bool value = false;
      TALLY_RETURN_IF_ERROR(ReadBool(cursor, &value));
      *out = value;
      return {};
    }
    case kGgufString: {
      std::string value;
      TALLY_RETURN_IF_ERROR(cursor.ReadString(&value, UINT64_MAX, "a string"));
      *out = std::move(value);
      return {};
    }
    case kGgufArray: return ReadArray(cursor, elements_left, out);
    default: return cursor.Error("a value of type " + std::to_string(type) + "; types 0 to 12 exist");
  }
}

Status ReadMetadata(GgufCursor& cursor, uint64_t count, Metadata* metadata) {
  uint64_t elements_left = kMaxArrayElements;
  for (uint64_t i = 0; i < count; ++i) {
    cursor.SetPlace("metadata key " + Of(i, count));
    std::string key;
    TALLY_RETURN_IF_ERROR(cursor.ReadString(&key, internal::kGgufMaxKeyBytes, "a key"));
    if (key.empty()) return cursor.Error("the key is empty");
    cursor.SetPlace("metadata key " + Of(i, count) + ", " + Quote(key));
    if (metadata->Has(key)) return cursor.Error("the key appears twice");
    uint32_t type = 0;
    TALLY_RETURN_IF_ERROR(cursor.Read(&type, "the type of a value"));
    MetaValue value;
    TALLY_RETURN_IF_ERROR(ReadValue(cursor, type, &elements_left, &value));
    metadata->Set(std::move(key), std::move(value));
  }
  return {};
}

// The description of one tensor. `offset` is as in the file: from the start of the data. Outer dimensions of 1 say nothing (ggml has
// always four) and are left out.
Status ReadTensor(GgufCursor& cursor, uint64_t index, uint64_t count, StoredTensor* tensor) {
  cursor.SetPlace("tensor " + Of(index, count));
  TALLY_RETURN_IF_ERROR(cursor.ReadString(&tensor->name, internal::kMaxTensorNameBytes, "a tensor name"));
  if (tensor->name.empty()) return cursor.Error("the name is empty");
  cursor.SetPlace("tensor " + Of(index, count) + ", " + Quote(tensor->name));
  uint32_t dims = 0;
  TALLY_RETURN_IF_ERROR(cursor.Read(&dims, "the number of dimensions"));
  if (dims > internal::kGgufMaxDims) {
    return cursor.Error(std::to_string(dims) + " dimensions; GGUF has at most " + std::to_string(internal::kGgufMaxDims));
  }
  tensor->shape.resize(dims);
  uint64_t elements = 1;
  for (uint32_t d = 0; d < dims; ++d) {  // GGUF has the innermost dimension first
    uint64_t size = 0;
    TALLY_RETURN_IF_ERROR(cursor.Read(&size, "a dimension"));
    if (size == 0) return cursor.Error("dimension " + std::to_string(d) + " is 0");
    const auto product = CheckedMul(elements, size);
    if (!product || *product > INT64_MAX) return cursor.Error("the number of elements overflows 63 bits");
    elements = *product;
    tensor->shape[dims - 1 - d] = size;
  }
  while (tensor->shape.size() > 1 && tensor->shape.front() == 1) tensor->shape.erase(tensor->shape.begin());
  uint32_t type = 0;
  TALLY_RETURN_IF_ERROR(cursor.Read(&type, "the type of a tensor"));
  TALLY_RETURN_IF_ERROR(cursor.Read(&tensor->offset, "the offset of a tensor"));
  const auto dtype = internal::DTypeFromGgml(type);
  if (!dtype) {
    const std::string_view known = internal::GgmlTypeName(type);
    tensor->dtype = DType::kU8;
    tensor->other_type = known.empty() ? "ggml type " + std::to_string(type) : std::string(known);
    return {};  // PlaceTensors finds its bytes
  }
  tensor->dtype = *dtype;
  const uint64_t row = dims == 0 ? 1 : tensor->shape.back();
  if (const uint32_t block = GetDTypeInfo(*dtype).block_size; row % block != 0) {
    return cursor.Error("rows of " + std::to_string(row) + " elements are not whole " + std::string(DTypeName(*dtype)) +
                        " blocks of " + std::to_string(block));
  }
  const auto bytes = StoredBytes(*dtype, elements);
  if (!bytes) return cursor.Error("the size in bytes overflows 64 bits");
  tensor->bytes = *bytes;
  return {};
}

// Turns offsets into file offsets, checks them, and sorts the tensors by them.
Status PlaceTensors(const GgufCursor& cursor, Shard* shard) {
  const std::string path = Printable(shard->file.path);
  TALLY_ASSIGN_OR_RETURN(const auto stated, shard->metadata.GetInt(internal::kGgufAlignmentKey));
  const int64_t alignment_value = stated.value_or(static_cast<int64_t>(internal::kGgufDefaultAlignment));
  if (alignment_value <= 0 || !std::has_single_bit(static_cast<uint64_t>(alignment_value))) {
    return BadInput(path + ": general.alignment is " + std::to_string(alignment_value) + "; expected a power of two");
  }
  if (shard->tensors.empty()) return {};
  const uint64_t alignment = static_cast<uint64_t>(alignment_value), size = shard->file.size;
  const auto rounded = CheckedAdd(cursor.position(), alignment - 1);
  const uint64_t data = rounded ? *rounded & ~(alignment - 1) : UINT64_MAX;
  if (data > size) {
    return BadInput(path + ": the tensor data begin at byte " + std::to_string(data) + ", but the file ends at byte " +
                    std::to_string(size));
  }
  for (StoredTensor& t : shard->tensors) {
    const std::string place = path + ": tensor " + Quote(t.name) + ": ";
    if (t.offset % alignment != 0) {
      return BadInput(place + "offset " + std::to_string(t.offset) + " is not a multiple of the alignment, " +
                      std::to_string(alignment));
    }
    if (t.offset > size - data || t.bytes > size - data - t.offset) {
      return BadInput(place + std::to_string(t.bytes) + " bytes at offset " + std::to_string(t.offset) +
                      " of the tensor data (byte " + std::to_string(data) + " on) run past the end of the file at byte " +
                      std::to_string(size));
    }
    t.offset += data;
  }
  std::stable_sort(shard->tensors.begin(), shard->tensors.end(),
                   [](const StoredTensor& a, const StoredTensor& b) { return a.offset < b.offset; });
  for (size_t i = 0; i < shard->tensors.size(); ++i) {
    StoredTensor& t = shard->tensors[i];
    const uint64_t next = i + 1 < shard->tensors.size() ? shard->tensors[i + 1].offset : size;
    if (!t.other_type.empty()) t.bytes = next - t.offset;
  }
  for (size_t i = 1; i < shard->tensors.size(); ++i) {
    const StoredTensor &a = shard->tensors[i - 1], &b = shard->tensors[i];
    if (a.offset + a.bytes > b.offset) {
      return BadInput(path + ": tensors " + Quote(a.name) + " and " + Quote(b.name) + " overlap at byte " +
                      std::to_string(b.offset));
    }
  }
  return {};
}

Result<Shard> ReadShard(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  Shard shard;
  shard.file = {path, file.size(), file.stamp()};
  shard.metadata.source = path;
  GgufCursor cursor(file, path);
  TALLY_RETURN_IF_ERROR(CheckMagic(cursor));
  TALLY_RETURN_IF_ERROR(CheckVersion(cursor));
  uint64_t n_tensors = 0, n_keys = 0;
  TALLY_RETURN_IF_ERROR(cursor.Read(&n_tensors, "the number of tensors"));
  TALLY_RETURN_IF_ERROR(cursor.Read(&n_keys, "the number of metadata keys"));
  // The least a tensor's description takes: length and 1 byte of name, dimensions, type, offset; a key:
  // length, 1, type, 1.
  TALLY_RETURN_IF_ERROR(cursor.NeedItems(n_tensors, 25, std::to_string(n_tensors) + " tensors"));
  TALLY_RETURN_IF_ERROR(cursor.NeedItems(n_keys, 14, std::to_string(n_keys) + " metadata keys"));
  if (n_tensors > internal::kMaxTensors) {
    return cursor.Error(std::to_string(n_tensors) + " tensors; the limit is " + std::to_string(internal::kMaxTensors));
  }
  if (n_keys > internal::kMaxMetadataKeys) {
    return cursor.Error(std::to_string(n_keys) + " metadata keys; the limit is " + std::to_string(internal::kMaxMetadataKeys));
  }
  TALLY_RETURN_IF_ERROR(ReadMetadata(cursor, n_keys, &shard.metadata));
  shard.tensors.reserve(n_tensors);
  for (uint64_t i = 0; i < n_tensors; ++i) {
    TALLY_RETURN_IF_ERROR(ReadTensor(cursor, i, n_tensors, &shard.tensors.emplace_back()));
  }
  TALLY_RETURN_IF_ERROR(internal::CheckUniqueNames(path, shard.tensors));
  TALLY_RETURN_IF_ERROR(PlaceTensors(cursor, &shard));
  return shard;
}

// "name-00002-of-00003.gguf", the scheme of llama.cpp's gguf-split: number 2, count 3, prefix "dir/name".
struct SplitName {
  std::string prefix;
  int64_t number = 0, count = 0;

  std::string Sibling(int64_t n) const {
    const auto five = [](int64_t v) {
      const std::string digits = std::to_string(v);
      return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
    };
    return prefix + "-" + five(n) + "-of-" + five(count) + ".gguf";
  }
};

std::optional<SplitName> ParseSplitName(const std::string& path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";  // 0 stands for a digit
  if (path.size() < kPattern.size()) return std::nullopt;
  SplitName name;
  name.prefix = path.substr(0, path.size() - kPattern.size());
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const char c = path[name.prefix.size() + i];
    if (kPattern[i] != '0') {
      if (c != kPattern[i]) return std::nullopt;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    int64_t& value = i < 6 ? name.number : name.count;
    value = value * 10 + (c - '0');
  }
  return name;
}

// Compares floats by their bits, so that a NaN equals itself.
bool SameValue(const MetaValue& a, const MetaValue& b) {
  const auto same = [](double x, double y) { return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y); };
  if (const double* x = std::get_if<double>(&a)) {
    const double* const y = std::get_if<double>(&b);
    return y != nullptr && same(*x, *y);
  }
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    const auto* const y = std::get_if<std::vector<double>>(&b);
    return y != nullptr && std::equal(x->begin(), x->end(), y->begin(), y->end(), same);
  }
  return a == b;
}

// Adds the metadata of a later shard to the first one's. The two may repeat each other, not differ.
Status MergeMetadata(const Shard& from, Metadata* into) {
  for (const auto& [key, value] : from.metadata.values()) {
    if (key.starts_with("split.") || key == internal::kGgufAlignmentKey) continue;  // each file's own
    const MetaValue* first = into->Find(key);
    if (first == nullptr) {
      if (into->size() == internal::kMaxMetadataKeys) {
        return BadInput(Printable(from.file.path) + ": the parts together have more than " +
                        std::to_string(internal::kMaxMetadataKeys) + " metadata keys");
      }
      into->Set(key, value);
    } else if (!SameValue(*first, value)) {
      return BadInput(Printable(from.file.path) + ": metadata key " + Quote(key) + " differs from that of " +
                      Printable(into->source) + "; they are not parts of one checkpoint");
    }
  }
  return {};
}

Status CheckSplitKeys(const Shard& shard, int64_t number, int64_t count) {
  TALLY_ASSIGN_OR_RETURN(const auto no, shard.metadata.GetInt("split.no"));
  TALLY_ASSIGN_OR_RETURN(const auto of, shard.metadata.GetInt("split.count"));
  if (no == number && of == count) return {};
  const auto text = [](std::optional<int64_t> v) { return v ? std::to_string(*v) : std::string("absent"); };
  return BadInput(Printable(shard.file.path) + ": expected split.no " + std::to_string(number) + " and split.count " +
                  std::to_string(count) + ", found " + text(no) + " and " + text(of));
}

}  // namespace

Result<Inventory> ReadGguf(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(Shard named, ReadShard(path));
  TALLY_ASSIGN_OR_RETURN(const auto stated_count, named.metadata.GetInt("split.count"));
  const int64_t count = stated_count.value_or(0);
  const std::string place = Printable(path);
  if (count < 0 || count > 99999) return BadInput(place + ": split.count is " + std::to_string(count) + "; expected 1 to 99999");
  const std::optional<SplitName> name = ParseSplitName(path);
  const int64_t named_count = name ? name->count : 1;
  if (named_count > 1 && count <= 1) {
    return BadInput(place + ": the name says part " + std::to_string(name->number) + " of " + std::to_string(name->count) +
                    ", but the file has no split.count above 1");
  }
  if (count > 1 && name && (name->number < 1 || name->number > name->count)) {
    return BadInput(place + ": the name says part " + std::to_string(name->number) + " of " + std::to_string(name->count));
  }
  if (count > 1 && named_count != count) {
    return BadInput(place + ": split.count is " + std::to_string(count) +
                    ", so the name must end in -00001-of-000NN.gguf with that count for its other parts to be found");
  }

  Inventory inventory;
  inventory.format = FileFormat::kGguf;
  inventory.path = path;
  const int64_t files = std::max<int64_t>(count, 1);
  for (int64_t i = 0; i < files; ++i) {
    Shard shard;
    if (count <= 1) {
      shard = std::exchange(named, Shard());
    } else {
      const std::string sibling = name->Sibling(i + 1);
      if (i + 1 == name->number) {
        shard = std::exchange(named, Shard());
      } else {
        Result<Shard> read = ReadShard(sibling);
        if (!read.ok()) {
          return Status(read.status().code(), read.status().message() + " (part " +
                                                  Of(static_cast<uint64_t>(i), static_cast<uint64_t>(count)) +
                                                  " of the split checkpoint)");
        }
        shard = std::move(read).value();
      }
      TALLY_RETURN_IF_ERROR(CheckSplitKeys(shard, i, count));
    }
    if (i == 0) {
      inventory.metadata = std::move(shard.metadata);
    } else {
      TALLY_RETURN_IF_ERROR(MergeMetadata(shard, &inventory.metadata));
    }
    inventory.files.push_back(std::move(shard.file));
    if (inventory.tensors.size() + shard.tensors.size() > internal::kMaxTensors) {
      return BadInput(place + ": the parts together have more than " + std::to_string(internal::kMaxTensors) + " tensors");
    }
    for (StoredTensor& t : shard.tensors) {
      t.file = static_cast<uint32_t>(i);
      inventory.tensors.push_back(std::move(t));
    }
  }
  if (files > 1) TALLY_RETURN_IF_ERROR(internal::CheckUniqueNames(path, inventory.tensors));
  TALLY_ASSIGN_OR_RETURN(const auto total, inventory.metadata.GetInt("split.tensors.count"));
  if (total && *total != static_cast<int64_t>(inventory.tensors.size())) {
    return BadInput(place + ": split.tensors.count is " + std::to_string(*total) + ", but the files hold " +
                    std::to_string(inventory.tensors.size()) + " tensors");
  }
  inventory.BuildIndex();
  const auto architecture = inventory.metadata.GetString("general.architecture");
  if (architecture.ok() && architecture->has_value()) {
    const auto layers = inventory.metadata.GetInt(**architecture + ".block_count");
    if (layers.ok()) inventory.metadata.layers = layers->value_or(0);
  }
  return inventory;
}

}  // namespace tally
