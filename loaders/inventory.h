// What a checkpoint holds, whatever its format: metadata, and name -> {type, shape, place in a file}.
// Nothing above the loaders knows GGUF from safetensors but a family's name tables.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/status.h"

namespace tally {

enum class FileFormat : uint8_t { kGguf, kHuggingFace };

// One metadata value. Arrays are homogeneous. GGUF: keys as in the file ("llama.block_count"). Hugging Face: config.json
// flattened with dots ("rope_scaling.factor"; arrays of scalars stay arrays), generation_config.json under
// "generation_config." and nothing else.
using MetaValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

class Metadata {
 public:
  void Set(std::string key, MetaValue value) { values_[std::move(key)] = std::move(value); }
  const MetaValue* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  const std::map<std::string, MetaValue, std::less<>>& values() const { return values_; }

  // Typed look-ups. nullopt: absent (or JSON null). A value of another type is an error naming key and file.
  // Integers accept any integral value that fits; GetDouble accepts integers too.
  Result<std::optional<int64_t>> GetInt(std::string_view key) const;
  Result<std::optional<double>> GetDouble(std::string_view key) const;
  Result<std::optional<bool>> GetBool(std::string_view key) const;
  Result<std::optional<std::string>> GetString(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> GetInts(std::string_view key) const;
  Result<std::optional<std::vector<double>>> GetDoubles(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> GetStrings(std::string_view key) const;

  // The file the metadata came from, for messages.
  std::string source;

 private:
  std::map<std::string, MetaValue, std::less<>> values_;
};

struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // outermost first (row-major): a matrix is [rows, cols]; GGUF's ne order is reversed here
  uint32_t file = 0;            // index into Inventory::files
  uint64_t offset = 0;          // of the first byte, from the start of the file
  uint64_t bytes = 0;
  uint64_t elements() const {
    uint64_t n = 1;
    for (uint64_t d : shape) n *= d;
    return n;
  }
};

struct InventoryFile {
  std::string path;
  uint64_t size = 0;
};

struct Inventory {
  FileFormat format = FileFormat::kGguf;
  std::string path;                      // what the user named
  std::vector<InventoryFile> files;      // weight files
  Metadata metadata;
  std::vector<StoredTensor> tensors;     // in file order
  std::string tokenizer_json;            // Hugging Face: path of tokenizer.json, empty where there is none
  const StoredTensor* Find(std::string_view name) const;
  void BuildIndex();                     // after `tensors` is filled

 private:
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace tally
