// SPDX-License-Identifier: Apache-2.0
// ReadPacked and EncodePackedHeader. Numbers are little endian; a string or a list is its length (u64) and its elements.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/checksum.h"
#include "engine/base/format.h"
#include "loaders/checks.h"
#include "loaders/inventory/message.h"
#include "loaders/inventory/side_files.h"
#include "loaders/loaders.h"

namespace tally {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "TALLYPAK";
constexpr uint32_t kVersion = 1;                          // of the file; the data have one of their own
constexpr uint64_t kMaxPackedHeader = uint64_t{1} << 30;  // most have some 20 MB
constexpr uint64_t kMaxSideText = uint64_t{256} << 20;    // as the readers of texts take
constexpr size_t kMaxDims = 8;
constexpr char kTokenizer[] = "tokenizer.json";
constexpr std::string_view kOtherKinds[] = {Metadata::kObject, "an array of several kinds or of null",
                                            "an array of arrays or objects"};

// The beginning of the first page.
struct FirstPage {
  std::array<char, 8> magic = {};
  uint32_t version = 0, reserved = 0;
  uint64_t header_bytes = 0;  // from the second page on
  uint64_t data_offset = 0, data_bytes = 0;
  uint64_t header_sum = 0;
  uint64_t own_sum = 0;  // of what stands before it
};
static_assert(sizeof(FirstPage) == 56);

std::span<const uint8_t> BytesOf(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }
uint64_t OwnSum(const FirstPage& page) {
  return BlockChecksum({reinterpret_cast<const uint8_t*>(&page), offsetof(FirstPage, own_sum)});
}

// Writes what Source reads.
class Sink {
 public:
  static constexpr bool kReads = false;
  template <class T>
  requires std::is_arithmetic_v<T>
  void Value(const T& x) { out.append(reinterpret_cast<const char*>(&x), sizeof x); }
  void Value(const std::string& x) {
    Value(uint64_t{x.size()});
    out += x;
  }
  std::string out;
};

// Reads values while there are bytes for them; after an error they are 0 or empty.
class Source {
 public:
  static constexpr bool kReads = true;
  Source(std::span<const uint8_t> bytes, std::string place) : left_(bytes), place_(std::move(place)) {}

  template <class T>
  requires std::is_arithmetic_v<T>
  void Value(T& x) {
    x = T();
    if (ok() && left_.size() < sizeof x) Fail("it ends early");
    if (!ok()) return;
    if constexpr (std::is_same_v<T, bool>) {
      x = left_[0] != 0;
    } else {
      std::memcpy(&x, left_.data(), sizeof x);
    }
    left_ = left_.subspan(sizeof x);
  }
  void Value(std::string& x) {
    const uint64_t n = Count(1);
    x.assign(reinterpret_cast<const char*>(left_.data()), n);
    left_ = left_.subspan(n);
  }
  // The length of a list whose elements have at least `bytes` bytes each.
  uint64_t Count(uint64_t bytes) {
    uint64_t n = 0;
    Value(n);
    if (n > left_.size() / bytes) Fail("a list of " + std::to_string(n) + " elements runs past its end");
    return ok() ? n : 0;
  }
  // Keeps the first failure.
  void Fail(const std::string& what) {
    if (ok()) status_ = BadInput(place_ + ": the packed file's header is damaged: " + what);
    left_ = {};
  }
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  bool at_end() const { return left_.empty(); }

 private:
  std::span<const uint8_t> left_;
  std::string place_;
  Status status_;
};

// One walk for both directions: Io is Sink, and what is walked is const, or Source. least_bytes: of an element.
template <class Io, class List, class Fn>
void WalkList(Io& io, List& list, uint64_t least_bytes, const Fn& fn) {
  if constexpr (Io::kReads) {
    const uint64_t n = io.Count(least_bytes);
    for (uint64_t i = 0; i < n && io.ok(); ++i) fn(list.emplace_back());
  } else {
    io.Value(uint64_t{list.size()});
    for (const auto& x : list) fn(x);
  }
}

void WalkType(Sink& io, const DType& type) { io.Value(std::string(DTypeName(type))); }
void WalkType(Source& io, DType& type) {
  std::string name;
  io.Value(name);
  const auto* const found = std::ranges::find(kDTypes, std::string_view(name), [](DType t) { return DTypeName(t); });
  if (found == kDTypes.end()) return io.Fail("there is no type " + Quote(name));
  type = *found;
}

template <class Io, class File>
void WalkFile(Io& io, File& file) {
  io.Value(file.path);
  io.Value(file.size);
  bool stamped = file.stamp.has_value();
  io.Value(stamped);
  if (!stamped) return;
  if constexpr (Io::kReads) file.stamp.emplace();
  io.Value(file.stamp->device);
  io.Value(file.stamp->inode);
  io.Value(file.stamp->seconds);
  io.Value(file.stamp->nanoseconds);
}

template <class Io, class Tensor>
void WalkTensor(Io& io, Tensor& t) {
  io.Value(t.name);
  WalkType(io, t.dtype);
  WalkList(io, t.shape, sizeof(uint64_t), [&](auto& n) { io.Value(n); });
  io.Value(t.file);
  io.Value(t.offset);
  io.Value(t.bytes);
  io.Value(t.other_type);
}

template <class Io, class Weight>
void WalkWeight(Io& io, Weight& w) {
  io.Value(w.role);
  io.Value(w.layer);
  WalkType(io, w.dtype);
  io.Value(w.layout);
  io.Value(w.slices);
  io.Value(w.rows);
  io.Value(w.cols);
  io.Value(w.slice_bytes);
}

void WriteValue(Sink& io, const MetaValue& value) {
  io.Value(static_cast<uint8_t>(value.index()));
  std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
          io.Value(x);
        } else {
          io.Value(uint64_t{x.size()});
          for (const typename T::value_type& element : x) io.Value(element);
        }
      },
      value);
}

template <class T>
void ReadAs(Source& io, MetaValue& value) {
  T& x = value.emplace<T>();
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    io.Value(x);
  } else {
    using Element = typename T::value_type;
    constexpr uint64_t kLeast = std::is_same_v<Element, std::string> ? sizeof(uint64_t) : sizeof(Element);
    const uint64_t n = io.Count(kLeast);
    x.reserve(n);
    for (uint64_t i = 0; i < n && io.ok(); ++i) {
      Element element;
      io.Value(element);
      x.push_back(std::move(element));
    }
  }
}

template <size_t i = 0>
void ReadValue(Source& io, size_t kind, MetaValue& value) {
  if constexpr (i < std::variant_size_v<MetaValue>) {
    if (kind != i) return ReadValue<i + 1>(io, kind, value);
    ReadAs<std::variant_alternative_t<i, MetaValue>>(io, value);
  } else {
    io.Fail("a value of no known kind");
  }
}

void WalkMetadata(Sink& io, const Metadata& m) {
  io.Value(m.layers);
  io.Value(uint64_t{m.values().size()});
  for (const auto& [key, value] : m.values()) {
    io.Value(key);
    WriteValue(io, value);
  }
  io.Value(uint64_t{m.nulls().size()});
  for (const std::string& key : m.nulls()) io.Value(key);
  io.Value(uint64_t{m.others().size()});
  for (const auto& [key, kind] : m.others()) {
    io.Value(key);
    io.Value(std::string(kind));
  }
}

void WalkMetadata(Source& io, Metadata& m) {
  io.Value(m.layers);
  const auto read_keys = [&](uint64_t least_bytes, const auto& read) {
    for (uint64_t n = io.Count(least_bytes); n > 0 && io.ok(); --n) {
      if (m.size() == internal::kMaxMetadataKeys) return io.Fail("too many metadata keys");
      std::string key;
      io.Value(key);
      read(std::move(key));
    }
  };
  read_keys(sizeof(uint64_t) + 2, [&](std::string key) {
    uint8_t kind = 0;
    io.Value(kind);
    MetaValue value;
    ReadValue(io, kind, value);
    m.Set(std::move(key), std::move(value));
  });
  read_keys(sizeof(uint64_t), [&](std::string key) { m.SetNull(std::move(key)); });
  read_keys(2 * sizeof(uint64_t), [&](std::string key) {
    std::string kind;
    io.Value(kind);
    const auto* const known = std::ranges::find(kOtherKinds, kind);
    if (known == std::end(kOtherKinds)) return io.Fail("a value of no known kind");
    m.SetOther(std::move(key), *known);
  });
}

void WalkTexts(Sink& io, const SideTexts& texts) {
  io.Value(uint64_t{texts.size()});
  for (const auto& [name, text] : texts) {
    io.Value(name);
    io.Value(text);
  }
}

void WalkTexts(Source& io, SideTexts& texts) {
  for (uint64_t n = io.Count(2 * sizeof(uint64_t)); n > 0 && io.ok(); --n) {
    std::string name, text;
    io.Value(name);
    io.Value(text);
    texts[std::move(name)] = std::move(text);
  }
}

template <class Io, class Buffers>
void WalkBuffers(Io& io, Buffers& buffers) {
  WalkList(io, buffers, 2 * sizeof(uint64_t), [&](auto& buffer) {
    io.Value(buffer.name);
    WalkList(io, buffer.bytes, 1, [&](auto& byte) { io.Value(byte); });
  });
}

template <class Io, class Header, class Contents, class Texts>
void WalkHeader(Io& io, Header& h, Contents& inventory, Texts& texts) {
  io.Value(h.layout_version);
  io.Value(h.family);
  io.Value(h.rank);
  io.Value(h.ranks);
  io.Value(h.whole_mixers);
  io.Value(h.own_experts);
  WalkList(io, h.sources, 17, [&](auto& file) { WalkFile(io, file); });
  io.Value(h.source_checksum);
  uint8_t format = static_cast<uint8_t>(inventory.format);
  io.Value(format);
  if constexpr (Io::kReads) inventory.format = format == 0 ? FileFormat::kGguf : FileFormat::kHuggingFace;
  io.Value(inventory.name_prefix);
  WalkMetadata(io, inventory.metadata);
  WalkList(io, inventory.tensors, 48, [&](auto& t) { WalkTensor(io, t); });
  WalkTexts(io, texts);
  WalkList(io, h.weights, 49, [&](auto& w) { WalkWeight(io, w); });
  io.Value(h.layout_checksum);
  WalkBuffers(io, h.buffers);
  WalkList(io, h.sums, sizeof(uint64_t), [&](auto& sum) { io.Value(sum); });
}

uint64_t LayoutChecksum(const std::vector<PackedWeight>& weights) {
  Sink io;
  WalkList(io, weights, 1, [&](auto& w) { WalkWeight(io, w); });
  return BlockChecksum(BytesOf(io.out));
}

// Of what places the source's tensors.
uint64_t SourceChecksum(const Inventory& inventory) {
  Sink io;
  for (const StoredTensor& t : inventory.tensors) WalkTensor(io, t);
  return BlockChecksum(BytesOf(io.out));
}

// What the readers of other formats check of their files.
Status CheckTensors(const std::string& path, const Inventory& inventory) {
  for (const StoredTensor& t : inventory.tensors) {
    const auto wrong = [&](const std::string& what) {
      return BadInput(Printable(path) + ": tensor " + Quote(t.name) + " " + what + ": the packed file's header is damaged");
    };
    if (t.name.empty() || t.name.size() > internal::kMaxTensorNameBytes) return wrong("has no name that a tensor can have");
    if (t.file >= inventory.files.size()) return wrong("is in no file of the source");
    if (t.shape.size() > kMaxDims) return wrong("has too many dimensions");
    uint64_t elements = 1;
    for (const uint64_t n : t.shape) {
      const std::optional<uint64_t> product = CheckedMul(elements, n);
      if (!product || *product > INT64_MAX) return wrong("has too many elements");
      elements = *product;
    }
    const std::optional<uint64_t> end = CheckedAdd(t.offset, t.bytes);
    if (!end || *end > inventory.files[t.file].size) return wrong("ends beyond its file");
    const std::optional<uint64_t> bytes = StoredBytes(t.dtype, elements);
    if (t.other_type.empty() ? bytes != t.bytes : t.dtype != DType::kU8) return wrong("has not the bytes of its shape and type");
  }
  return internal::CheckUniqueNames(path, inventory.tensors);
}

// The first page, if the file can be what it says.
Result<FirstPage> CheckFirstPage(std::span<const uint8_t> bytes, uint64_t file_size, const std::string& place) {
  FirstPage page;
  if (bytes.size() < sizeof page)
    return BadInput(place + ": the packed file is truncated: it has " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&page, bytes.data(), sizeof page);
  if (std::string_view(page.magic.data(), page.magic.size()) != kMagic) return BadInput(place + ": is no packed file");
  if (page.version != kVersion) {
    return BadInput(place + ": a packed file of version " + std::to_string(page.version) + ", and this program reads version " +
                    std::to_string(kVersion) + ": pack the model again (tally pack)");
  }
  if (page.own_sum != OwnSum(page))
    return BadInput(place + ": the packed file's first page is damaged: its checksum does not agree");
  const std::optional<uint64_t> header_end = CheckedAdd(kPackedPage, page.header_bytes);
  const std::optional<uint64_t> end = CheckedAdd(page.data_offset, page.data_bytes);
  if (!header_end || !end || page.header_bytes > kMaxPackedHeader || page.data_offset != RoundUp(*header_end, kPackedPage)) {
    return BadInput(place + ": the packed file's first page is damaged: its sizes do not agree");
  }
  if (file_size < *end) {
    return BadInput(place + ": the packed file is truncated: it has " + std::to_string(file_size) + " bytes, expected " +
                    std::to_string(*end));
  }
  if (file_size > *end) {
    return BadInput(place + ": the packed file has " + std::to_string(file_size) + " bytes, expected " + std::to_string(*end));
  }
  return page;
}

}  // namespace

bool IsPacked(const std::string& path) {
  const Result<FileReader> file = FileReader::Open(path);
  std::array<uint8_t, kMagic.size()> magic = {};
  return file.ok() && file->size() >= magic.size() && file->ReadAt(0, magic).ok() &&
         std::memcmp(magic.data(), kMagic.data(), magic.size()) == 0;
}

Result<Inventory> DecodePackedHeader(std::span<const uint8_t> header, const std::string& path, PackedHeader h) {
  Source io(header, Printable(path));
  Inventory inventory;
  SideTexts texts;
  WalkHeader(io, h, inventory, texts);
  if (io.ok() && !io.at_end()) io.Fail("something stands behind its end");
  if (inventory.tensors.size() > internal::kMaxTensors) io.Fail("too many tensors");
  TALLY_RETURN_IF_ERROR(io.status());
  inventory.path = inventory.metadata.source = path;
  for (InventoryFile file : h.sources) {
    file.path = path + " (" + Printable(file.path) + ")";  // for messages: nothing reads it
    file.stamp.reset();
    inventory.files.push_back(std::move(file));
  }
  TALLY_RETURN_IF_ERROR(CheckTensors(path, inventory));
  if (inventory.format == FileFormat::kHuggingFace && texts.contains(kTokenizer)) {
    inventory.tokenizer_json = internal::JoinPath(path, kTokenizer);
  }
  if (inventory.format == FileFormat::kHuggingFace) inventory.side_texts = std::make_shared<const SideTexts>(std::move(texts));
  inventory.packed = std::make_shared<const PackedHeader>(std::move(h));
  inventory.BuildIndex();
  return inventory;
}

Result<Inventory> ReadPacked(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  std::array<uint8_t, sizeof(FirstPage)> first = {};
  const std::span<uint8_t> there(first.data(), std::min<uint64_t>(first.size(), file.size()));
  TALLY_RETURN_IF_ERROR(file.ReadAt(0, there));
  TALLY_ASSIGN_OR_RETURN(const FirstPage page, CheckFirstPage(there, file.size(), Printable(path)));
  std::vector<uint8_t> header(page.header_bytes);
  TALLY_RETURN_IF_ERROR(file.ReadAt(kPackedPage, header));
  if (BlockChecksum(header) != page.header_sum) {
    return BadInput(Printable(path) + ": the packed file's header is damaged: its checksum does not agree");
  }
  PackedHeader h;
  h.data_offset = page.data_offset;
  h.data_bytes = page.data_bytes;
  h.file = {path, file.size(), file.stamp()};
  TALLY_ASSIGN_OR_RETURN(Inventory inventory, DecodePackedHeader(header, path, std::move(h)));
  if (inventory.packed->layout_checksum != LayoutChecksum(inventory.packed->weights)) {
    return BadInput(Printable(path) + ": the packed file's header is damaged: the layout's checksum does not agree");
  }
  return inventory;
}

Result<std::string> EncodePackedHeader(const Inventory& source, PackedHeader& header) {
  SideTexts texts;
  if (source.side_texts != nullptr) {
    texts = *source.side_texts;
  } else if (source.format == FileFormat::kHuggingFace) {
    const SideFiles files(source);
    for (const std::string& name : files.Known()) {
      TALLY_ASSIGN_OR_RETURN(texts[name], files.Read(name, kMaxSideText));
    }
  }
  header.sources = source.files;
  for (InventoryFile& file : header.sources) file.path = internal::FileNameOf(file.path);
  header.source_checksum = SourceChecksum(source);
  header.layout_checksum = LayoutChecksum(header.weights);
  Sink io;
  io.out.resize(kPackedPage);
  WalkHeader(io, std::as_const(header), source, std::as_const(texts));
  FirstPage page = {.version = kVersion};
  std::memcpy(page.magic.data(), kMagic.data(), kMagic.size());
  page.header_bytes = io.out.size() - kPackedPage;
  if (page.header_bytes > kMaxPackedHeader) {
    return BadInput(Printable(source.path) + ": its metadata take " + std::to_string(page.header_bytes) +
                    " bytes in a packed file; the limit is " + std::to_string(kMaxPackedHeader));
  }
  page.data_offset = header.data_offset = RoundUp(io.out.size(), kPackedPage);
  page.data_bytes = header.data_bytes;
  page.header_sum = BlockChecksum(BytesOf(io.out).subspan(kPackedPage));
  page.own_sum = OwnSum(page);
  std::memcpy(io.out.data(), &page, sizeof page);
  io.out.resize(page.data_offset);
  return std::move(io.out);
}

}  // namespace tally
