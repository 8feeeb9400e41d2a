// SPDX-License-Identifier: Apache-2.0
// Readers: files -> Inventory. Every size is checked against the file before anything is allocated.
//
// Errors: StatusCode::kBadInput with one line naming the file, the place and what was expected.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loaders/inventory/file_reader.h"
#include "loaders/inventory/inventory.h"
#include "loaders/inventory/packed_header.h"

namespace tally {

// GGUF v2 or v3; `path` may be any shard of a split file (name-00001-of-00003.gguf): all shards are opened.
Result<Inventory> ReadGguf(const std::string& path);
// Bytes of a GGUF file's header (metadata and tensor descriptions, before the data). `beginning`: the file's first bytes; nullopt: the
// header is longer. `place` goes in front of messages.
Result<std::optional<uint64_t>> GgufHeaderBytes(std::span<const uint8_t> beginning, const std::string& place);

// A Hugging Face directory: config.json, optional generation_config.json and tokenizer.json, model.safetensors or
// model.safetensors.index.json with its shards (or any single *.safetensors).
Result<Inventory> ReadHuggingFace(const std::string& directory);

// config.json alone, or that of a directory: an inventory without tensors, for what needs no weights.
Result<Inventory> ReadConfigJson(const std::string& path);
// The same of the text of a config.json. `source` stands for the file's name in messages.
Result<Inventory> ReadConfigText(std::string_view json, const std::string& source);

// A packed file (inventory/packed_header.h): the inventory of its source, with `packed` set. Reads the header alone. kBadInput also for
// another version, a header that has changed, and a file that is longer or shorter than the header says.
Result<Inventory> ReadPacked(const std::string& path);
// The inventory that the header of such a file holds: `header` is all between the first page and the data; `packed` what the first page
// says, and the file.
Result<Inventory> DecodePackedHeader(std::span<const uint8_t> header, const std::string& path, PackedHeader packed);
// True for a file that begins as packed files do.
bool IsPacked(const std::string& path);
// The first bytes of a packed file: all before its data, with the inventory of a source. Sets header.data_offset and what it says of the
// source; the rest of `header` must be set, but for `file`. The length depends on the number of checksums, not on them. kBadInput: files
// beside the weights that cannot be read.
Result<std::string> EncodePackedHeader(const Inventory& source, PackedHeader& header);

// Decides by what `path` is: a directory (or a config.json in one), a packed file or a GGUF file.
Result<Inventory> ReadCheckpoint(const std::string& path);

// general.file_type, of llama.cpp's enumeration, of a GGUF file whose matrices have this type; -1: there is none.
int GgufFileType(DType dtype);

// Writers call fill(tensor index, byte offset in the tensor, piece) until all is written, in order; a piece is at most 8 MiB and whole
// rows, or, of longer rows, whole blocks. The file gets its name when it is complete, replacing one that was there; on any error the
// partial file is removed and the status says what happened. Missing room on the file system is an error before a byte is written. Without
// a fill, the tensors are a hole, which reads as zeros and takes no room.
using FillTensor = std::function<void(size_t tensor, uint64_t offset, std::span<uint8_t> piece)>;
using WriteProgress = std::function<bool(uint64_t done, uint64_t total)>;  // false: stop, kInterrupted

// Writes GGUF v3: metadata in the order given, then tensors whose bytes come from a callback in pieces.
class GgufWriter {
 public:
  // Integers are written as u32 if they fit (i64 arrays as i32), doubles as f32, as GGUF readers expect.
  void Set(std::string key, MetaValue value);
  // gguf_type: of the value, or of an array's elements. A value that the type cannot hold is an error in Write.
  void SetTyped(std::string key, MetaValue value, uint32_t gguf_type);
  // shape outermost first, as everywhere in Tally.
  void AddTensor(std::string name, DType dtype, std::vector<uint64_t> shape);
  Status Write(const std::string& path, const FillTensor& fill, const WriteProgress& progress = nullptr) const;
  uint64_t TotalBytes() const;  // of the file; 0 if Write would refuse what was set

 private:
  struct Entry {
    std::string key;
    MetaValue value;
    uint32_t type;
  };
  std::vector<Entry> entries_;
  std::vector<StoredTensor> tensors_;
};

// A safetensors file with these tensors; places and bytes in them are ignored. kBadInput also for quantised types.
Status WriteSafetensors(const std::string& path, const std::vector<StoredTensor>& tensors, const FillTensor& fill,
                        const WriteProgress& progress = nullptr);
Result<uint64_t> SafetensorsBytes(const std::vector<StoredTensor>& tensors);  // of that file

// Writes a text as a file, in the way of the writers above.
Status WriteTextFile(const std::string& path, std::string_view text);

}  // namespace tally
