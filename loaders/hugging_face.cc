// SPDX-License-Identifier: Apache-2.0
// ReadHuggingFace, ReadConfigJson, ReadConfigText and ReadCheckpoint: which files of a directory make the checkpoint.
#include <algorithm>
#include <filesystem>
#include <map>

#include "engine/base/json.h"
#include "loaders/checks.h"
#include "loaders/inventory/message.h"
#include "loaders/json_metadata.h"
#include "loaders/loaders.h"
#include "loaders/safetensors.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using internal::JoinPath;

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr int kMaxIndexDepth = 16;
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr char kGeneration[] = "generation_config";  // keys under this are those of generation_config.json alone

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Anything at all of that name; what it is shows when it is opened.
bool Exists(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

// Sorted names of the directory's entries that end in `suffix`.
Result<std::vector<std::string>> NamesEndingIn(const std::string& directory, std::string_view suffix) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.ends_with(suffix)) names.push_back(std::move(name));
  }
  if (error) return BadInput(Printable(directory) + ": the directory cannot be read: " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// {"metadata": {...}, "weight_map": {"tensor": "file", ...}}
class IndexHandler : public JsonHandler {
 public:
  std::map<std::string, std::string, std::less<>> weight_map;

  Status Key(std::string key) override {
    if (depth_ == 1) in_map_ = key == "weight_map";
    key_ = std::move(key);
    return {};
  }
  Status Scalar(JsonScalar value) override {
    if (!in_map_) return {};
    auto* file = std::get_if<std::string>(&value);
    if (depth_ != 2 || file == nullptr)
      return BadInput("expected weight_map to map tensor names to file names, at " + Quote(key_));
    if (weight_map.size() == internal::kMaxTensors) {
      return BadInput("more than " + std::to_string(internal::kMaxTensors) + " tensors");
    }
    if (key_.empty() || key_.size() > internal::kMaxTensorNameBytes) {
      return BadInput("tensor name " + Quote(key_) + ": expected 1 to " + std::to_string(internal::kMaxTensorNameBytes) +
                      " bytes");
    }
    // The index may not lead anywhere else: its files are names in its own directory.
    if (file->empty() || *file == "." || *file == ".." || file->size() > 255 ||
        file->find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      return BadInput("tensor " + Quote(key_) + ": expected the name of a file in the same directory, found " + Quote(*file));
    }
    weight_map.emplace(key_, std::move(*file));
    return {};
  }
  Status Begin(bool object) override {
    ++depth_;
    if (in_map_ && (depth_ > 2 || !object)) return BadInput("expected weight_map to map tensor names to file names");
    return {};
  }
  Status End() override {
    --depth_;
    return {};
  }

 private:
  int depth_ = 0;
  bool in_map_ = false;
  std::string key_;
};

Status ReadSharded(const std::string& directory, Inventory* inventory) {
  const std::string index_path = JoinPath(directory, kIndexFile), place = Printable(index_path);
  TALLY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(index_path, kMaxIndexBytes));
  IndexHandler index;
  TALLY_RETURN_IF_ERROR(ParseJson(place, text, {.depth = kMaxIndexDepth}, index));
  if (index.weight_map.empty()) return BadInput(place + ": expected the key weight_map with at least one tensor");
  std::map<std::string, uint32_t, std::less<>> shards;  // name -> file index, in the order of the names
  for (const auto& [tensor, shard] : index.weight_map) shards.emplace(shard, 0);
  for (auto& [shard, file] : shards) {
    file = static_cast<uint32_t>(inventory->files.size());
    const Status status = internal::ReadSafetensors(JoinPath(directory, shard), inventory);
    if (!status.ok()) return Status(status.code(), status.message() + " (named by " + kIndexFile + ")");
  }
  TALLY_RETURN_IF_ERROR(internal::CheckUniqueNames(directory, inventory->tensors));
  inventory->BuildIndex();
  for (const auto& [tensor, shard] : index.weight_map) {
    const StoredTensor* stored = inventory->Find(tensor);
    if (stored == nullptr || stored->file != shards.find(shard)->second) {
      return BadInput(place + ": tensor " + Quote(tensor) + " is said to be in " + Quote(shard) + ", which does not have it");
    }
  }
  return {};
}

Status ReadWeights(const std::string& directory, Inventory* inventory) {
  if (Exists(JoinPath(directory, kSingleFile))) {
    return internal::ReadSafetensors(JoinPath(directory, kSingleFile), inventory);
  }
  if (Exists(JoinPath(directory, kIndexFile))) return ReadSharded(directory, inventory);
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> others, NamesEndingIn(directory, ".safetensors"));
  if (others.size() == 1) return internal::ReadSafetensors(JoinPath(directory, others[0]), inventory);
  const std::string place = Printable(directory);
  if (others.size() > 1) {
    return BadInput(place + ": " + std::to_string(others.size()) + " safetensors files (" + Quote(others[0]) + ", " +
                    Quote(others[1]) + (others.size() > 2 ? ", ..." : "") + ") and neither " + kSingleFile + " nor " +
                    kIndexFile + " to say which are the model");
  }
  std::string message = place + ": no weights: expected " + kSingleFile + ", " + kIndexFile + " or one other .safetensors file";
  for (const std::string_view suffix : {".gguf", ".bin", ".pth", ".pt"}) {
    TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> found, NamesEndingIn(directory, suffix));
    if (found.empty()) continue;
    message += suffix == ".gguf" ? "; to use " + Quote(found[0]) + ", name that file"
                                 : "; " + Quote(found[0]) + " is not in the safetensors format and cannot be read";
    break;
  }
  return BadInput(std::move(message));
}

// Without hyper-parameters and tensors. `source`: the configuration's file, for messages.
Inventory EmptyInventory(const std::string& path, const std::string& source) {
  Inventory inventory;
  inventory.format = FileFormat::kHuggingFace;
  inventory.path = path;
  inventory.metadata.source = source;
  return inventory;
}

// Of a path that is a directory with a config.json, or a file: the configuration's hyper-parameters, no tensors yet.
Result<Inventory> ReadConfiguration(const std::string& path) {
  if (path.empty()) return BadInput("the path of the checkpoint is empty");
  std::string config = path;
  if (IsDirectory(path)) {
    config = JoinPath(path, "config.json");
    if (!Exists(config)) {
      TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> gguf, NamesEndingIn(path, ".gguf"));
      return BadInput(Printable(path) + ": expected a Hugging Face directory, but it has no config.json" +
                      (gguf.empty() ? std::string() : "; to use " + Quote(gguf[0]) + ", name that file"));
    }
  } else if (!Exists(path)) {
    return BadInput(Printable(path) + ": no such file or directory");
  }
  Inventory inventory = EmptyInventory(path, config);
  TALLY_RETURN_IF_ERROR(internal::ReadJsonMetadata(config, "", kGeneration, &inventory.metadata));
  return inventory;
}

}  // namespace

Result<Inventory> ReadConfigJson(const std::string& path) { return ReadConfiguration(path); }

Result<Inventory> ReadConfigText(std::string_view json, const std::string& source) {
  Inventory inventory = EmptyInventory(source, source);
  TALLY_RETURN_IF_ERROR(internal::ParseJsonMetadata(Printable(source), json, "", kGeneration, &inventory.metadata));
  return inventory;
}

Result<Inventory> ReadHuggingFace(const std::string& path) {
  const bool is_directory = IsDirectory(path);
  if (!is_directory && Exists(path) && internal::FileNameOf(path) != "config.json") {
    return BadInput(Printable(path) + ": expected a Hugging Face directory or the config.json in one");
  }
  TALLY_ASSIGN_OR_RETURN(Inventory inventory, ReadConfiguration(path));
  const std::string directory = is_directory ? path : internal::DirectoryOf(path);
  if (const std::string generation = JoinPath(directory, "generation_config.json"); Exists(generation)) {
    TALLY_RETURN_IF_ERROR(internal::ReadJsonMetadata(generation, "generation_config.", "", &inventory.metadata));
  }
  TALLY_RETURN_IF_ERROR(ReadWeights(directory, &inventory));
  if (const std::string tokenizer = JoinPath(directory, "tokenizer.json"); Exists(tokenizer))
    inventory.tokenizer_json = tokenizer;
  inventory.BuildIndex();
  return inventory;
}

Result<Inventory> ReadCheckpoint(const std::string& path) {
  if (path.empty()) return BadInput("the path of the checkpoint is empty");
  if (IsDirectory(path) || path.ends_with(".json")) return ReadHuggingFace(path);
  if (path.ends_with(".safetensors") && Exists(path)) {
    return BadInput(Printable(path) + ": a safetensors file has no hyper-parameters; name the directory with its config.json");
  }
  return ReadGguf(path);
}

}  // namespace tally
