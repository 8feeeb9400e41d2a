// SPDX-License-Identifier: Apache-2.0
// The golden checkpoints of tests/goldens, and where they are at hand those of ../shared (more families): both formats open, and
// say the same of every tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "loaders/loaders.h"
#include "tests/loaders/file_tools.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

const std::string kShared = TALLY_SOURCE_DIR "/../shared";

using Shape = std::vector<uint64_t>;

// The folders under `root` that have a file of this name.
std::vector<std::string> FoldersWith(std::string_view wanted, const std::string& root) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() == wanted) found.push_back(it->path().parent_path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// The golden cases that have one: those of the repository, of which there are at least `least`, first.
std::vector<std::string> Cases(std::string_view wanted, size_t least) {
  std::vector<std::string> found = FoldersWith(wanted, TALLY_SOURCE_DIR "/tests/goldens");
  EXPECT_GE(found.size(), least);
  const std::vector<std::string> more = FoldersWith(wanted, kShared + "/goldens");
  found.insert(found.end(), more.begin(), more.end());
  return found;
}

std::string BytesOf(const Inventory& inventory, const StoredTensor& t) {
  auto file = FileReader::Open(inventory.files[t.file].path);
  EXPECT_TRUE(file.ok());
  std::string bytes(t.bytes, '\0');
  EXPECT_TRUE(file->ReadAt(t.offset, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}).ok());
  return bytes;
}

void CheckInside(const Inventory& inventory) {
  for (const StoredTensor& t : inventory.tensors) {
    ASSERT_LT(t.file, inventory.files.size());
    EXPECT_LE(t.offset + t.bytes, inventory.files[t.file].size) << t.name;
    EXPECT_EQ(StoredBytes(t.dtype, t.elements()), t.bytes) << t.name;
    EXPECT_EQ(inventory.Find(t.name), &t);
  }
}

// The GGUF name of one Hugging Face tensor's stem (after "model.layers.N."), by goldens/make_gguf.py; empty:
// elsewhere.
std::string LayerStem(const std::string& stem, bool gemma, bool gpt_oss) {
  static const std::map<std::string, std::string> kNames = {
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"mlp.router", "ffn_gate_inp"},
      {"mlp.gate", "ffn_gate_inp"},
      {"input_layernorm", "attn_norm"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"block_sparse_moe.gate", "ffn_gate_inp"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"ln_1", "attn_norm"},
      {"ln_2", "ffn_norm"},
      {"attn.c_attn", "attn_qkv"},
      {"attn.c_proj", "attn_output"},
      {"mlp.c_fc", "ffn_up"},
      {"mlp.c_proj", "ffn_down"},
      {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
      {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
      {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
      {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
      {"attention.query_key_value", "attn_qkv"},
      {"attention.dense", "attn_output"},
      {"mlp.dense_h_to_4h", "ffn_up"},
      {"mlp.dense_4h_to_h", "ffn_down"},
  };
  if (stem == "post_attention_layernorm") return gemma || gpt_oss ? "post_attention_norm" : "ffn_norm";
  const auto it = kNames.find(stem);
  return it == kNames.end() ? "" : it->second;
}

// What the GGUF file should hold for the checkpoint: name -> shape. Names of experts are stacked, Conv1D
// weights turned.
std::map<std::string, Shape> ExpectedGguf(const Inventory& hf) {
  const std::string type = hf.metadata.GetString("model_type").value().value_or("");
  const bool gemma = type.starts_with("gemma"), gpt_oss = type == "gpt_oss", gpt2 = type == "gpt2";
  std::map<std::string, Shape> expected;
  for (const StoredTensor& t : hf.tensors) {
    std::string name = t.name;
    for (const std::string_view prefix : {"transformer.", "model.", "gpt_neox."}) {
      if (name.starts_with(prefix)) name.erase(0, prefix.size());
    }
    static const std::map<std::string, std::string> kOutside = {{"embed_tokens.weight", "token_embd.weight"},
                                                                {"norm.weight", "output_norm.weight"},
                                                                {"lm_head.weight", "output.weight"},
                                                                {"wte.weight", "token_embd.weight"},
                                                                {"wpe.weight", "position_embd.weight"},
                                                                {"ln_f.weight", "output_norm.weight"},
                                                                {"ln_f.bias", "output_norm.bias"},
                                                                {"embed_in.weight", "token_embd.weight"},
                                                                {"final_layer_norm.weight", "output_norm.weight"},
                                                                {"final_layer_norm.bias", "output_norm.bias"},
                                                                {"embed_out.weight", "output.weight"}};
    if (const auto it = kOutside.find(name); it != kOutside.end()) {
      expected[it->second] = t.shape;
      if (name == "wte.weight") expected["output.weight"] = t.shape;  // make_gguf.py writes the tied head out
      continue;
    }
    name.erase(0, name.find('.') + 1);  // "layers." or "h."
    const size_t dot = name.find('.');
    const std::string block = "blk." + name.substr(0, dot) + ".", rest = name.substr(dot + 1);
    const std::string stem = rest.substr(0, rest.rfind('.')), suffix = rest.substr(rest.rfind('.') + 1);
    if (gpt2 && (rest == "attn.bias" || rest == "attn.masked_bias")) continue;  // mask buffers
    if (rest == "attention.bias" || rest == "attention.masked_bias" || rest.ends_with("inv_freq")) continue;
    Shape shape = t.shape;
    if (stem == "mlp.shared_expert_gate") shape = {shape.at(1)};
    if (const std::string renamed = LayerStem(stem, gemma, gpt_oss); !renamed.empty()) {
      if (gpt2 && shape.size() == 2) std::swap(shape[0], shape[1]);
      expected[block + renamed + "." + suffix] = shape;
    } else if (rest == "self_attn.sinks") {
      expected[block + "attn_sinks.weight"] = shape;
    } else if (gpt_oss && stem == "mlp.experts") {  // blocks [E, rows, groups, 16], scales [E, rows, groups], bias [E, rows]
      const bool gate_up = suffix.starts_with("gate_up");
      if (suffix.ends_with("_scales")) continue;
      if (gate_up) shape[1] /= 2;
      const bool blocks = suffix.ends_with("_blocks");
      if (blocks) shape = {shape[0], shape[1], shape[2] * 32};
      for (const char* part : gate_up ? std::vector<const char*>{"gate", "up"} : std::vector<const char*>{"down"}) {
        expected[block + "ffn_" + part + "_exps." + (blocks ? "weight" : "bias")] = shape;
      }
    } else {  // "mlp.experts.3.gate_proj", "block_sparse_moe.experts.3.w1"
      const std::string matrix = stem.substr(stem.rfind('.') + 1);
      const std::string part = matrix == "w1"   ? "gate"
                               : matrix == "w3" ? "up"
                               : matrix == "w2" ? "down"
                                                : matrix.substr(0, matrix.find('_'));
      Shape& stacked = expected[block + "ffn_" + part + "_exps.weight"];
      stacked = {stacked.empty() ? 1 : stacked[0] + 1, shape.at(0), shape.at(1)};
    }
  }
  if (hf.metadata.GetString("rope_scaling.rope_type").value() == "llama3") {
    const auto head_dim = hf.metadata.GetInt("head_dim").value();
    expected["rope_freqs.weight"] = {static_cast<uint64_t>(head_dim.value_or(0)) / 2};
  }
  return expected;
}

TEST(Goldens, EveryHuggingFaceDirectoryOpens) {
  const auto cases = Cases("config.json", 7);
  for (const std::string& dir : cases) {
    SCOPED_TRACE(dir);
    const auto r = ReadCheckpoint(dir);
    ASSERT_TRUE(r.ok()) << r.status().message();
    CheckInside(*r);
    EXPECT_GT(r->tensors.size(), 5u);
    uint64_t bytes = 0, files = 0;
    for (const StoredTensor& t : r->tensors) bytes += t.bytes;
    for (const InventoryFile& f : r->files) files += f.size;
    EXPECT_LT(bytes, files);
    EXPECT_GT(bytes, files * 8 / 10);
  }
}

TEST(Goldens, GgufAndSafetensorsAgree) {
  // The families whose tensors ExpectedGguf knows.
  int checked = 0;
  for (const std::string& dir : Cases("model.gguf", 5)) {
    const auto of = [&](std::string_view family) { return dir.find("/" + std::string(family) + "/") != dir.npos; };
    if (!of("gpt2") && !of("llama") && !of("gptoss") && !of("moe") && !of("gptneox") && dir.find("/gemma3-") == dir.npos)
      continue;
    ++checked;
    SCOPED_TRACE(dir);
    const auto gguf = ReadCheckpoint(dir + "/model.gguf"), hf = ReadCheckpoint(dir);
    ASSERT_TRUE(gguf.ok()) << gguf.status().message();
    ASSERT_TRUE(hf.ok()) << hf.status().message();
    CheckInside(*gguf);
    std::map<std::string, Shape> found;
    for (const StoredTensor& t : gguf->tensors) found[t.name] = t.shape;
    EXPECT_EQ(found, ExpectedGguf(*hf));

    // Embeddings are stored alike in both: the same bytes must come from both files' ranges.
    const StoredTensor* a = gguf->Find("token_embd.weight");
    const StoredTensor* b = nullptr;
    for (const char* name : {"model.embed_tokens.weight", "wte.weight", "transformer.wte.weight", "gpt_neox.embed_in.weight"}) {
      if (b == nullptr) b = hf->Find(name);
    }
    ASSERT_TRUE(a != nullptr && b != nullptr);
    EXPECT_EQ(a->dtype, b->dtype);
    EXPECT_EQ(BytesOf(*gguf, *a), BytesOf(*hf, *b));
    const std::string arch = gguf->metadata.GetString("general.architecture").value().value_or("");
    const char* layers = arch == "gpt2" ? "n_layer" : "num_hidden_layers";
    EXPECT_EQ(gguf->metadata.GetInt(arch + ".block_count").value(), hf->metadata.GetInt(layers).value());
    EXPECT_EQ(gguf->metadata.GetInt(arch + ".vocab_size").value(), hf->metadata.GetInt("vocab_size").value());
  }
  EXPECT_GE(checked, 10);
}

TEST(Goldens, ReferenceOutputsOpenAsSafetensors) {
  const auto cases = Cases("golden.safetensors", 7);
  for (const std::string& dir : cases) {
    SCOPED_TRACE(dir);
    const TempFolder alone;  // as the only safetensors file of a directory
    alone.Write("config.json", "{}");
    fs::create_symlink(dir + "/golden.safetensors", alone / "golden.safetensors");
    const auto r = ReadHuggingFace(alone.path());
    ASSERT_TRUE(r.ok()) << r.status().message();
    const StoredTensor *ids = r->Find("p0.ids"), *logits = r->Find("p0.logits");
    ASSERT_TRUE(ids != nullptr && logits != nullptr);
    EXPECT_EQ(ids->dtype, DType::kI32);
    ASSERT_EQ(logits->shape.size(), 2u);
    EXPECT_EQ(ids->shape, Shape{logits->shape[0]});
  }
}

TEST(Goldens, PublicCheckpointsAndVocabularies) {
  const std::string weights = kShared + "/weights", vocabs = kShared + "/tokenizers/llama.cpp-vocabs";
  if (!fs::exists(weights)) GTEST_SKIP() << weights << " is absent";
  const auto stories = ReadCheckpoint(weights + "/stories260K-gguf/stories260Ktok512.gguf");
  ASSERT_TRUE(stories.ok()) << stories.status().message();
  CheckInside(*stories);
  EXPECT_EQ(stories->metadata.GetString("general.architecture").value(), "llama");
  EXPECT_EQ(stories->Find("token_embd.weight")->shape, (Shape{512, 64}));
  EXPECT_EQ(stories->metadata.GetStrings("tokenizer.ggml.tokens").value()->size(), 512u);
  for (const std::string& dir : FoldersWith("config.json", weights)) {
    SCOPED_TRACE(dir);
    const auto r = ReadCheckpoint(dir);
    ASSERT_TRUE(r.ok()) << r.status().message();
    CheckInside(*r);
  }
  for (const auto& entry : fs::directory_iterator(vocabs)) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path());
    const auto r = ReadCheckpoint(entry.path().string());
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->tensors.size(), 0u);
    EXPECT_GT(r->metadata.GetStrings("tokenizer.ggml.tokens").value()->size(), 30000u);
    EXPECT_EQ(r->metadata.GetInts("tokenizer.ggml.token_type").value()->size(),
              r->metadata.GetStrings("tokenizer.ggml.tokens").value()->size());
  }
}

// A golden GGUF written again by GgufWriter reads back the same, values and bytes.
TEST(Goldens, RewrittenGgufIsTheSame) {
  // The families whose tensors ExpectedGguf knows.
  int checked = 0;
  for (const std::string& dir : Cases("model.gguf", 5)) {
    const auto of = [&](std::string_view family) { return dir.find("/" + std::string(family) + "/") != dir.npos; };
    if (!of("gpt2") && !of("llama") && !of("gptoss") && !of("moe") && !of("gptneox") && dir.find("/gemma3-") == dir.npos)
      continue;
    ++checked;
    SCOPED_TRACE(dir);
    const auto from = ReadGguf(dir + "/model.gguf");
    ASSERT_TRUE(from.ok()) << from.status().message();
    GgufWriter writer;
    for (const auto& [key, value] : from->metadata.values()) writer.Set(key, value);
    for (const StoredTensor& t : from->tensors) writer.AddTensor(t.name, t.dtype, t.shape);
    auto file = FileReader::Open(dir + "/model.gguf");
    ASSERT_TRUE(file.ok());
    const TempFolder out;
    const Status written = writer.Write(out / "m.gguf", [&](size_t i, uint64_t offset, std::span<uint8_t> piece) {
      EXPECT_TRUE(file->ReadAt(from->tensors[i].offset + offset, piece).ok());
    });
    ASSERT_TRUE(written.ok()) << written.message();
    const auto to = ReadGguf(out / "m.gguf");
    ASSERT_TRUE(to.ok()) << to.status().message();
    EXPECT_EQ(to->metadata.values(), from->metadata.values());
    ASSERT_EQ(to->tensors.size(), from->tensors.size());
    for (size_t i = 0; i < to->tensors.size(); ++i) {
      EXPECT_EQ(to->tensors[i].name, from->tensors[i].name);
      EXPECT_EQ(to->tensors[i].dtype, from->tensors[i].dtype);
      EXPECT_EQ(to->tensors[i].shape, from->tensors[i].shape);
      EXPECT_EQ(BytesOf(*to, to->tensors[i]), BytesOf(*from, from->tensors[i]));
    }
  }
}

}  // namespace
}  // namespace tally
