// SPDX-License-Identifier: Apache-2.0
// The readers of checkpoints: GGUF, safetensors, a Hugging Face directory, a packed file, a configuration that is only counted.
#include <cstring>
#include <memory>

#include "counters/books/model_count.h"
#include "engine/chat/template_source.h"
#include "engine/text/tokenizer.h"
#include "engine/weights/packed_file.h"
#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/family.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"
#include "tests/models/synthetic_files.h"

namespace tally::fuzz {
namespace {

void CheckOutcome(const Result<Inventory>& inventory) {
  if (!inventory.ok()) return RequireOneLine(inventory.status());
  RequireSound(*inventory);
  const Result<ModelSpec> spec = ReadModelSpec(*inventory);
  if (!spec.ok()) return RequireOneLine(spec.status());
  for (const TensorBinding& b : spec->bindings) {
    for (const std::string& name : b.names)
      Require(inventory->Find(name) != nullptr, "a role bound to a tensor that is not there");
  }
}

// The first layer alone, matrices in BF16: large inputs are slow to mutate.
Inventory Small(Inventory inventory) {
  for (const char* key : {"n_layer", "num_hidden_layers", "gpt2.block_count", "llama.block_count", "gpt-oss.block_count"}) {
    if (inventory.metadata.Has(key)) inventory.metadata.Set(key, int64_t{1});
  }
  if (inventory.metadata.Has("layer_types")) inventory.metadata.Set("layer_types", std::vector<std::string>{"full_attention"});
  std::erase_if(inventory.tensors, [](const StoredTensor& t) {
    return t.name.find(".1.") != t.name.npos || t.name.find(".2.") != t.name.npos || t.name.starts_with("h.1.");
  });
  for (StoredTensor& t : inventory.tensors) {
    if (t.dtype == DType::kF32 && t.shape.size() == 2) t.dtype = DType::kBF16;
    t.bytes = *StoredBytes(t.dtype, t.elements());
  }
  return inventory;
}

void RunGguf(std::string_view input) {
  static const Scratch scratch;
  CheckOutcome(ReadGguf(scratch.Write("m.gguf", input)));
}

std::vector<std::string> GgufSeeds() {
  std::vector<std::string> seeds = {synthetic::EveryKeyType().Make()};
  for (const Inventory& i : {synthetic::GgufGpt2(), synthetic::GgufLlama(), synthetic::GgufGptOss()})
    seeds.push_back(synthetic::GgufOf(Small(i)).Make());
  return seeds;
}

void RunGgufSplit(std::string_view input) {
  static const Scratch scratch;
  const std::vector<std::string_view> files = Files(input);
  const std::string first = scratch.Write("m-00001-of-00002.gguf", files[0]);
  if (files.size() > 1) {
    scratch.Write("m-00002-of-00002.gguf", files[1]);
  } else {
    scratch.Remove("m-00002-of-00002.gguf");
  }
  CheckOutcome(ReadGguf(first));
}

std::vector<std::string> GgufSplitSeeds() {
  std::vector<std::string> seeds;
  for (const Inventory& whole : {synthetic::GgufGpt2(), synthetic::GgufLlama()}) {
    Inventory parts[] = {Small(whole), Small(whole)};
    const size_t half = parts[0].tensors.size() / 2;
    parts[0].tensors.resize(half);
    parts[1].tensors.erase(parts[1].tensors.begin(), parts[1].tensors.begin() + static_cast<std::ptrdiff_t>(half));
    parts[1].metadata = {};
    std::string seed;
    for (uint16_t i = 0; i < 2; ++i) {
      RawGguf g = synthetic::GgufOf(parts[i]);
      g.keys.push_back(Key("split.no", 2, Bytes().Le(i)));
      g.keys.push_back(Key("split.count", 2, Bytes().Le(uint16_t{2})));
      g.keys.push_back(Key("split.tensors.count", 5, Bytes().Le(static_cast<int32_t>(half + parts[1].tensors.size()))));
      seed += (i > 0 ? std::string(kNextFile) : std::string()) + g.Make();
    }
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

void RunSafetensors(std::string_view input) {
  static const Scratch scratch;
  static const std::string config = scratch.Write("config.json", "{}");
  scratch.Write("model.safetensors", input);
  CheckOutcome(ReadHuggingFace(config));
}

std::vector<std::string> SafetensorsSeeds() {
  std::vector<std::string> seeds = {
      synthetic::SafetensorsOf({"{}", 0}),
      synthetic::SafetensorsOf({R"({"__metadata__":{"a":"b"},"z":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0})};
  for (const Inventory& i : {synthetic::HfGpt2(), synthetic::HfGptOss()})
    seeds.push_back(synthetic::SafetensorsOf(synthetic::HeaderOf(i, 0, 4)));
  return seeds;
}

// config.json, generation_config.json, the index, a.safetensors, b.safetensors.
void RunHuggingFace(std::string_view input) {
  static constexpr const char* kNames[] = {"config.json", "generation_config.json", "model.safetensors.index.json",
                                           "a.safetensors", "b.safetensors"};
  static const Scratch scratch;
  const std::vector<std::string_view> files = Files(input);
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (i < files.size()) {
      scratch.Write(kNames[i], files[i]);
    } else {
      scratch.Remove(kNames[i]);
    }
  }
  CheckOutcome(ReadHuggingFace(scratch.path()));
}

std::vector<std::string> HuggingFaceSeeds() {
  std::vector<std::string> seeds;
  for (const Inventory& whole : {synthetic::HfGpt2(), synthetic::HfLlama(), synthetic::HfGptOss()}) {
    const Inventory i = Small(whole);
    const size_t half = i.tensors.size() / 2;
    std::string seed = synthetic::ConfigOf(i);
    seed += std::string(kNextFile) + R"({"eos_token_id": [1, 5], "a": {"b": 0.5}})";
    seed += std::string(kNextFile) + synthetic::IndexOf(i, half);
    seed += std::string(kNextFile) + synthetic::SafetensorsOf(synthetic::HeaderOf(i, 0, half));
    seed += std::string(kNextFile) + synthetic::SafetensorsOf(synthetic::HeaderOf(i, half, i.tensors.size()));
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

// What `tally count FILE.json` does.
void RunCountedConfig(std::string_view input) {
  static const Scratch scratch;
  const Result<Inventory> inventory = ReadConfigJson(scratch.Write("config.json", input));
  if (!inventory.ok()) return RequireOneLine(inventory.status());
  const Result<CountTypes> types = ReadCountTypes(*inventory);
  if (!types.ok()) RequireOneLine(types.status());
  const Result<ModelSpec> spec = ReadFamily(*inventory);
  if (!spec.ok()) return RequireOneLine(spec.status());
  const Recipe* const recipe = &spec->recipe;
  Require(recipe->layers.size() == static_cast<size_t>(recipe->n_layers), "a recipe without all of its layers");
  books::CountOptions options;
  if (types.ok()) options.type = types->expert_type == DType::kMXFP4 ? DType::kMXFP4 : types->type;
  const Result<books::Count> count = books::CountRecipe(*recipe, options);
  if (!count.ok()) RequireOneLine(count.status());
}

std::vector<std::string> CountedConfigSeeds() {
  std::vector<std::string> seeds;
  for (const std::string_view name : CatalogNames()) seeds.emplace_back(PublishedConfig(name));
  return seeds;
}

// The header of a packed file, without the first page; and the same bytes as a whole file.
void RunPacked(std::string_view input) {
  static const Scratch scratch;
  PackedHeader first;
  first.data_bytes = uint64_t{1} << 20;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(input.data());
  const Result<Inventory> inventory = DecodePackedHeader({bytes, input.size()}, "m.tally", first);
  CheckOutcome(inventory);
  if (inventory.ok()) {
    const Result<std::unique_ptr<Tokenizer>> tokenizer = TokenizerFor(*inventory);
    if (!tokenizer.ok()) RequireOneLine(tokenizer.status());
    const auto templates = ReadChatTemplates(*inventory, nullptr);
    if (!templates.ok()) RequireOneLine(templates.status());
    const Result<PackedLayout> layout = PackedLayout::Of(inventory->packed->weights, "m.tally");
    if (!layout.ok()) return RequireOneLine(layout.status());
    for (size_t i = 0; i < layout->weights().size(); ++i) {
      const int64_t last = static_cast<int64_t>(layout->weights()[i].slices) - 1;
      const PackedLayout::Piece piece = layout->SliceOf(i, last);
      Require(piece.offset + piece.bytes <= layout->data_bytes() && piece.first_sum < layout->sums(), "a slice beyond the data");
    }
  }
  const Result<Inventory> read = ReadPacked(scratch.Write("m.tally", input));
  if (!read.ok()) RequireOneLine(read.status());
}

std::vector<std::string> PackedSeeds() {
  std::vector<std::string> seeds;
  for (Inventory i : {synthetic::HfGptOss(), synthetic::GgufLlama(), synthetic::GgufGptOss()}) {
    i = Small(std::move(i));
    i.files = {{"a.bin", uint64_t{1} << 40, FileStamp{1, 2, 3, 4}}};
    for (StoredTensor& t : i.tensors) t.file = 0;
    i.metadata.SetNull("nothing");
    i.metadata.SetOther("object", Metadata::kObject);
    i.side_texts =
        std::make_shared<const SideTexts>(SideTexts{{"tokenizer.json", "{}"}, {"chat_template.jinja", "{{ messages }}"}});
    PackedHeader header;
    header.family = "panel16";
    header.weights = {{"token_embd", -1, DType::kBF16, 1, 1, 4, 8, 64},
                      {"ffn_up_exps", 0, DType::kMXFP4, 2, 3, 32, 64, 8704},
                      {"ffn_down_exps", 0, DType::kMXFP4, 2, 3, 32, 64, 8704}};
    header.buffers = {{"rope_freqs.weight", {1, 2, 3, 4}}};
    header.sums.resize(7);
    const Result<std::string> text = EncodePackedHeader(i, header);
    Require(text.ok(), "a seed that cannot be written");
    uint64_t bytes = 0;
    std::memcpy(&bytes, text->data() + 16, sizeof bytes);
    seeds.push_back(text->substr(kPackedPage, bytes));
    seeds.push_back(*text);
  }
  return seeds;
}

}  // namespace

const Target kPacked = {"packed", RunPacked, PackedSeeds};
const Target kGguf = {"gguf", RunGguf, GgufSeeds};
const Target kGgufSplit = {"gguf_split", RunGgufSplit, GgufSplitSeeds};
const Target kSafetensors = {"safetensors", RunSafetensors, SafetensorsSeeds};
const Target kHuggingFace = {"hugging_face", RunHuggingFace, HuggingFaceSeeds};
const Target kCountedConfig = {"counted_config", RunCountedConfig, CountedConfigSeeds};

}  // namespace tally::fuzz
