// SPDX-License-Identifier: Apache-2.0
// ReadHuggingFace, ReadConfigJson, ReadConfigText and ReadCheckpoint: which files of a directory make the checkpoint.
#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

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
constexpr char kAdapterFile[] = "adapter_model.safetensors", kAdapterConfig[] = "adapter_config.json";
constexpr char kGeneration[] = "generation_config";  // keys under this are those of generation_config.json alone

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// True for anything of that name. Opening it tells what it is.
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

// True if two tensors have the same type, shape and bytes.
Result<bool> AreSame(const Inventory& inventory, const StoredTensor& a, const StoredTensor& b) {
  if (a.type_name() != b.type_name() || a.shape != b.shape || a.bytes != b.bytes) return false;
  TALLY_ASSIGN_OR_RETURN(const FileReader of_a, FileReader::Open(inventory.files[a.file].path));
  TALLY_ASSIGN_OR_RETURN(const FileReader of_b, FileReader::Open(inventory.files[b.file].path));
  std::vector<uint8_t> x, y;
  for (uint64_t at = 0; at < a.bytes; at += x.size()) {
    x.resize(std::min<uint64_t>(a.bytes - at, uint64_t{1} << 20));
    y.resize(x.size());
    TALLY_RETURN_IF_ERROR(of_a.ReadAt(a.offset + at, x));
    TALLY_RETURN_IF_ERROR(of_b.ReadAt(b.offset + at, y));
    if (x != y) return false;
  }
  return true;
}

// If several shards have the same tensor, lists it once: in the shard that the index names, or else in the first.
Status KeepOneOfEach(const std::string& place, const std::map<std::string, std::string, std::less<>>& weight_map,
                     Inventory* inventory) {
  std::vector<StoredTensor>& tensors = inventory->tensors;
  const auto file_of = [&](size_t i) { return internal::FileNameOf(inventory->files[tensors[i].file].path); };
  std::map<std::string_view, size_t> firsts;
  std::vector<bool> left_out(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [first, added] = firsts.emplace(tensors[i].name, i);
    if (added) continue;
    TALLY_ASSIGN_OR_RETURN(const bool same, AreSame(*inventory, tensors[first->second], tensors[i]));
    if (!same) {
      return BadInput(place + ": tensor " + Quote(tensors[i].name) + " is in " + Quote(file_of(first->second)) + " and in " +
                      Quote(file_of(i)) + ", and they differ");
    }
    const auto named = weight_map.find(tensors[i].name);
    const bool this_one = named != weight_map.end() && named->second == file_of(i);
    left_out[this_one ? std::exchange(first->second, i) : i] = true;
  }
  std::vector<StoredTensor> kept;
  kept.reserve(firsts.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!left_out[i]) kept.push_back(std::move(tensors[i]));
  }
  tensors = std::move(kept);
  return {};
}

// Removes prefixes that wrappers put before every name: torch.compile, DataParallel, PEFT once its adapter is merged.
void StripPrefixes(Inventory* inventory) {
  constexpr std::string_view kPrefixes[] = {"_orig_mod.", "module.", "base_model.model."};
  const auto all_have = [&](std::string_view prefix) {
    return std::ranges::all_of(inventory->tensors, [&](const StoredTensor& t) { return t.name.starts_with(prefix); });
  };
  for (bool again = !inventory->tensors.empty(); std::exchange(again, false);) {
    for (const std::string_view prefix : kPrefixes) {
      if (!all_have(prefix)) continue;
      for (StoredTensor& t : inventory->tensors) t.name.erase(0, prefix.size());
      inventory->name_prefix += prefix;
      again = true;
    }
  }
}

// A name without the parts that stand above a text model in some files and not in others; empty: it is of no text model.
std::string_view NameInBody(std::string_view name) {
  constexpr std::string_view kAbove[] = {"model.", "language_model."};
  for (bool again = true; std::exchange(again, false);) {
    for (const std::string_view part : kAbove) {
      if (!name.starts_with(part)) continue;
      name.remove_prefix(part.size());
      again = true;
    }
  }
  constexpr std::string_view kBody[] = {"layers.", "embed_tokens.", "norm.", "lm_head."};
  return std::ranges::any_of(kBody, [&](std::string_view part) { return name.starts_with(part); }) ? name : std::string_view();
}

// If a text model's tensors are there by several prefixes ("model.layers", "model.language_model.layers"), lists each once, by the prefix
// of the first layer tensor.
Status KeepOneBody(const std::string& place, Inventory* inventory) {
  std::map<std::string_view, std::vector<size_t>> bodies;
  for (size_t i = 0; i < inventory->tensors.size(); ++i) {
    if (const std::string_view name = NameInBody(inventory->tensors[i].name); !name.empty()) bodies[name].push_back(i);
  }
  std::vector<bool> left_out(inventory->tensors.size());
  std::string kept_prefix;
  for (const auto& [name, found] : bodies) {
    if (found.size() < 2 || name.starts_with("lm_head.") || name.starts_with("norm.")) continue;
    const std::string& first = inventory->tensors[found[0]].name;
    kept_prefix = first.substr(0, first.size() - name.size());
    break;
  }
  for (const auto& [name, found] : bodies) {
    if (found.size() < 2) continue;
    size_t kept = found[0];
    for (const size_t i : found) {
      if (inventory->tensors[i].name == kept_prefix + std::string(name)) kept = i;
    }
    for (const size_t i : found) {
      if (i == kept) continue;
      const StoredTensor &a = inventory->tensors[kept], &b = inventory->tensors[i];
      TALLY_ASSIGN_OR_RETURN(const bool same, AreSame(*inventory, a, b));
      if (!same) {
        return BadInput(place + ": tensors " + Quote(a.name) + " and " + Quote(b.name) +
                        " are one of the text model's by their names, and they differ");
      }
      left_out[i] = true;
    }
  }
  std::vector<StoredTensor> kept;
  for (size_t i = 0; i < inventory->tensors.size(); ++i) {
    if (!left_out[i]) kept.push_back(std::move(inventory->tensors[i]));
  }
  inventory->tensors = std::move(kept);
  return {};
}

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
  TALLY_RETURN_IF_ERROR(KeepOneOfEach(place, index.weight_map, inventory));
  inventory->BuildIndex();
  for (const auto& [tensor, shard] : index.weight_map) {
    const StoredTensor* stored = inventory->Find(tensor);
    if (stored == nullptr || stored->file != shards.find(shard)->second) {
      return BadInput(place + ": tensor " + Quote(tensor) + " is said to be in " + Quote(shard) + ", which does not have it");
    }
  }
  return {};
}

// `what`: the file that shows that it is an adapter.
Status RefuseAdapter(const std::string& directory, std::string_view what) {
  return BadInput(Printable(directory) + ": a LoRA adapter (" + std::string(what) +
                  "), not a model: merge it into its model (PEFT: merge_and_unload) and name that directory");
}

Status ReadWeights(const std::string& directory, Inventory* inventory) {
  if (Exists(JoinPath(directory, kSingleFile))) {
    return internal::ReadSafetensors(JoinPath(directory, kSingleFile), inventory);
  }
  if (Exists(JoinPath(directory, kIndexFile))) return ReadSharded(directory, inventory);
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> others, NamesEndingIn(directory, ".safetensors"));
  if (others.size() == 1 && others[0] == kAdapterFile) return RefuseAdapter(directory, kAdapterFile);
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

// An inventory without hyper-parameters and tensors. `source`: the configuration's file, for messages.
Inventory EmptyInventory(const std::string& path, const std::string& source) {
  Inventory inventory;
  inventory.format = FileFormat::kHuggingFace;
  inventory.path = path;
  inventory.metadata.source = source;
  return inventory;
}

// Reads the configuration of a directory with a config.json, or of a file: hyper-parameters, no tensors yet.
Result<Inventory> ReadConfiguration(const std::string& path) {
  if (path.empty()) return BadInput("the path of the checkpoint is empty");
  std::string config = path;
  if (IsDirectory(path)) {
    config = JoinPath(path, "config.json");
    if (!Exists(config)) {
      if (Exists(JoinPath(path, kAdapterConfig))) return RefuseAdapter(path, kAdapterConfig);
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
  StripPrefixes(&inventory);
  TALLY_RETURN_IF_ERROR(KeepOneBody(Printable(directory), &inventory));
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
  return IsPacked(path) ? ReadPacked(path) : ReadGguf(path);
}

}  // namespace tally
