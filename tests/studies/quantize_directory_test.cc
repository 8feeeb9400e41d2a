// SPDX-License-Identifier: Apache-2.0
// Hugging Face directories written as GGUF: the logits stay what they were, in every family that GGUF has; the others are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/chat/template_source.h"
#include "engine/studies/quantize.h"
#include "engine/studies/synth.h"
#include "engine/text/bpe.h"
#include "loaders/loaders.h"
#include "models/family.h"
#include "tests/goldens/logits.h"
#include "tests/session/made_prediction.h"
#include "tests/support/small_config.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

const std::string kGoldens = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/";
const std::string kShared = std::string(TALLY_SOURCE_DIR) + "/../shared/";

// What GGUF has no architecture or no key for, by folder.
const std::map<std::string, std::string> kRefused = {
    {"cohere2-b-f32-layertypes-bias", "the windows of attention"},
    {"deepseek1-b-f32-renorm-freq2-gqa", "is missing"},  // dense layers between sparse ones
    {"falcon-c-f32-sequential-bias", "no place"},
    {"gemma3-b-f32-scaled-odd", "the factor of q.k"},
    {"gptbigcode-b-f32-multihead", "all of the configuration"},
    {"gptj-a-f32-rotary4-buffers", "no architecture for gpt-j"},
    {"gptj-b-bf16-rotary6", "no architecture for gpt-j"},
    {"gptneo-a-f32-window5-buffers", "no architecture for gpt-neo"},
    {"gptneo-b-bf16-window3", "no architecture for gpt-neo"},
    {"gptoss-b-top3of5-shortyarn-3blocks", "all of the configuration"},
    {"internlm2-b-bf16-bias-dynamic", "the scaling of rope"},
    {"lfm2moe-b-f32-nobias-norenorm", "all of the configuration"},
    {"llama4-a-f32-chunks-temperature", "the kinds of layers"},
    {"llama4-c-f32-noqknorm-lists", "the kinds of layers"},
    {"mini-gpt-a-f32", "no architecture for mini-gpt"},
    {"olmo2-b-bf16-mha-bias-tied", "no place"},
    {"olmoe-b-f32-clip-renorm-gqa", "no place"},
    {"opt-a-f32-relu", "no architecture for opt"},
    {"opt-b-bf16-gelu-nobias", "no architecture for opt"},
    {"opt-c-f32-stream-norms-narrow", "no architecture for opt"},
    {"qwen2moe-b-f32-mixed", "is missing"},
    {"smollm3-b-f32-sliding-biases", "the windows of attention"},
    {"starcoder2-b-f32-window-nobias", "the windows of attention"},
    // shared/fixtures-hf
    {"gemma2", "the factor of q.k"},
    {"gptbigcode", "all of the configuration"},
    {"gptj", "no architecture for gpt-j"},
    {"gptneo", "no architecture for gpt-neo"},
    {"olmoe", "all of the configuration"},
    {"opt", "no architecture for opt"},
};

std::vector<float> LogitsOf(const std::string& path, ActivationMode activations = ActivationMode::kF32) {
  EngineOptions options = Exact();
  options.activations = activations;
  Opened opened = Open(path, options);
  if (opened.engine == nullptr) return {};
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 14; ++i) ids.push_back((i * i * 7 + 3) % std::min(opened.model->recipe().vocab, 30));
  return Logits(*opened.engine, ids, 5);
}

// Sums of q and k are in another order where GGUF's rope turns other rows, and those over the value heads of a delta net where it has
// them in another order; factors of frequencies are rounded to f32.
bool SumsDiffer(const std::string& directory, const std::string& gguf) {
  const Recipe a = ReadModelSpec(ReadHuggingFace(directory).value()).value().recipe,
               b = ReadModelSpec(ReadGguf(gguf).value()).value().recipe;
  return a.rope.style != b.rope.style || a.all.delta.tiled != b.all.delta.tiled ||
         a.rope.scaling.kind == RopeScalingKind::kLongRope;
}

void ExpectLogitsOf(const std::string& directory, const std::string& gguf) {
  const std::vector<float> want = LogitsOf(directory), got = LogitsOf(gguf);
  ASSERT_FALSE(want.empty());
  if (!SumsDiffer(directory, gguf)) return ExpectSameLogits(got, want, directory);
  ASSERT_EQ(got.size(), want.size());
  const Mat<const float> a = {want.data(), 1, static_cast<int64_t>(want.size())},
                         b = {got.data(), 1, static_cast<int64_t>(got.size())};
  EXPECT_LE(MaxDifference(a, b), 5e-6 * MaxAbs(a)) << directory;
}

void ConvertAll(const std::vector<fs::path>& directories, size_t at_least) {
  const TempFolder folder;
  const std::string out = folder / "out.gguf";
  QuantizeOptions options;
  options.type = "F32";
  options.threads = 2;
  std::set<std::string> families;
  for (const fs::path& directory : directories) {
    SCOPED_TRACE(directory.string());
    const auto report = Quantize(directory.string(), out, options);
    const auto refused = kRefused.find(directory.filename().string());
    ASSERT_EQ(report.ok(), refused == kRefused.end()) << report.status().message();
    if (!report.ok()) {
      EXPECT_EQ(report.status().code(), StatusCode::kBadInput);
      EXPECT_NE(report.status().message().find(refused->second), std::string::npos) << report.status().message();
      continue;
    }
    EXPECT_EQ(report->bytes, fs::file_size(out));
    ExpectLogitsOf(directory.string(), out);
    families.insert(ReadModelSpec(ReadGguf(out).value()).value().recipe.family);
  }
  EXPECT_GE(families.size(), at_least);
}

TEST(QuantizeDirectory, GivesTheLogitsOfEveryGolden) {
  std::vector<fs::path> directories;
  for (const auto& family : fs::directory_iterator(kGoldens)) {
    if (!family.is_directory()) continue;
    for (const auto& one : fs::directory_iterator(family)) {
      if (fs::exists(one.path() / "model.safetensors")) directories.push_back(one.path());
    }
  }
  ConvertAll(directories, 25);
}

TEST(QuantizeDirectory, GivesTheLogitsOfSharedFixtures) {
  if (!fs::exists(kShared + "fixtures-hf")) GTEST_SKIP() << "no shared/fixtures-hf";
  std::vector<fs::path> directories;
  for (const auto& one : fs::directory_iterator(kShared + "fixtures-hf")) {
    if (fs::exists(one.path() / "model.safetensors")) directories.push_back(one.path());
  }
  ConvertAll(directories, 15);
}

// What GGUF has as keys: xIELU's alphas, each layer's own, and limits of SwiGLU.
TEST(QuantizeDirectory, TensorsAndListsThatBecomeKeys) {
  const TempFolder folder;
  OrderedJson apertus = SmallConfig("Apertus-8B"), ling = SmallConfig("Ling-3.0-tiny");
  apertus["rope_scaling"] = {{"rope_type", "default"}};
  ling["expert_swiglu_limit_list"] = {0, 0, 0.5, 0.25, 0, 0.125};
  SynthOptions options;
  options.type = DType::kF32;
  for (const auto& [config, name] : {std::pair{apertus, "apertus"}, std::pair{ling, "ling"}}) {
    const auto made = Synthesize(folder.Write("config.json", config.dump()), folder / name, options);
    ASSERT_TRUE(made.ok()) << made.status().message();
    ConvertAll({folder / name}, 1);
  }
}

// Sets F32 tensors of one number in a file of safetensors; `shape`: "[]" or "[1]", of new ones.
void AddNumbers(const std::string& path, const std::map<std::string, float>& numbers, const char* shape) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  OrderedJson header = OrderedJson::parse(bytes.substr(8, length));
  std::string data = bytes.substr(8 + length);
  for (const auto& [name, number] : numbers) {
    if (header.contains(name)) {
      std::memcpy(data.data() + header[name]["data_offsets"][0].get<size_t>(), &number, sizeof number);
      continue;
    }
    const size_t at = data.size();
    data.append(reinterpret_cast<const char*>(&number), sizeof number);
    header[name] = {{"dtype", "F32"}, {"shape", OrderedJson::parse(shape)}, {"data_offsets", {at, data.size()}}};
  }
  const std::string text = header.dump();
  length = text.size();
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&length), sizeof length) << text << data;
}

// xIELU's beta and eps, which transformers stores as buffers, are those of the file, not of a new model.
TEST(QuantizeDirectory, StoredNumbersOfXielu) {
  const TempFolder folder;
  OrderedJson config = SmallConfig("Apertus-8B");
  config["rope_scaling"] = {{"rope_type", "default"}};
  SynthOptions options;
  options.type = DType::kF32;
  const std::string made = folder / "apertus", file = made + "/model.safetensors";
  ASSERT_TRUE(Synthesize(folder.Write("config.json", config.dump()), made, options).ok());
  const std::vector<float> usual = LogitsOf(made);
  const auto act = [](size_t layer, const char* of) { return "model.layers." + std::to_string(layer) + ".mlp.act_fn." + of; };
  const std::vector<double> beta = {0.25, 0.75, 1, 0.5, 0.125, 0.5}, eps = {-0.5, -0.25, -1, 0, -0.125, -0.5};
  std::map<std::string, float> betas, epss;
  for (size_t i = 0; i < beta.size(); ++i) {
    betas[act(i, "beta")] = static_cast<float>(beta[i]);
    epss[act(i, "eps")] = static_cast<float>(eps[i]);
  }
  AddNumbers(file, betas, "[]");
  const std::vector<float> with_beta = LogitsOf(made);
  AddNumbers(file, epss, "[1]");
  EXPECT_NE(with_beta, usual);
  EXPECT_NE(LogitsOf(made), with_beta);
  ConvertAll({made}, 1);
  QuantizeOptions to;
  to.type = "F32";
  ASSERT_TRUE(Quantize(made, folder / "out.gguf", to).ok());
  const Inventory gguf = ReadGguf(folder / "out.gguf").value();
  EXPECT_EQ(gguf.metadata.GetDoubles("xielu.beta").value(), beta);
  EXPECT_EQ(gguf.metadata.GetDoubles("xielu.eps").value(), eps);

  AddNumbers(file, {{act(2, "eps"), 0.5f}}, "[1]");
  const auto refused = LoadModel(made, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find(act(2, "eps")), std::string::npos) << refused.status().message();
}

// Types that are kept: BF16 matrices, and experts in MXFP4 whatever the preset.
TEST(QuantizeDirectory, KeepsTheStoredTypes) {
  const TempFolder folder;
  QuantizeOptions options;
  options.type = "BF16";
  for (const char* name : {"phi/phi-a-bf16-pct50", "gptoss/gptoss-a-top4of8-realyarn"}) {
    const std::string out = folder / "out.gguf";
    const auto report = Quantize(kGoldens + name, out, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->types.count(DType::kMXFP4), name[0] == 'g' ? 1u : 0u);
    ExpectSameLogits(LogitsOf(out), LogitsOf(kGoldens + name), name);
    ExpectSameLogits(LogitsOf(out, ActivationMode::kAuto), LogitsOf(kGoldens + name, ActivationMode::kAuto), name);
  }
}

class WithTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    SynthOptions options;
    options.type = DType::kBF16;
    options.layers = 1;
    const auto made = Synthesize("gpt2", directory_, options);
    ASSERT_TRUE(made.ok()) << made.status().message();
  }
  const TempFolder folder_;
  const std::string directory_ = folder_ / "Tiny-GPT2", out_ = folder_ / "out.gguf";
};

TEST_F(WithTokenizer, CarriesItOver) {
  const std::string json = kShared + "tokenizers/hf/gpt2.tokenizer.json";
  if (!fs::exists(json)) GTEST_SKIP() << json << " is absent";
  fs::copy_file(json, directory_ + "/tokenizer.json");
  QuantizeOptions options;
  options.type = "Q4_K_M";
  const auto report = Quantize(directory_, out_, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->no_tokenizer, "");
  const Inventory made = ReadGguf(out_).value();
  EXPECT_EQ(made.metadata.GetString("general.name").value(), "Tiny-GPT2");
  EXPECT_EQ(made.metadata.GetString("tokenizer.ggml.pre").value(), "gpt-2");
  EXPECT_EQ(made.metadata.GetInt("general.file_type").value(), 15);
  EXPECT_EQ(made.Find("blk.0.ffn_up.weight")->dtype, DType::kQ4_K);
  const auto before = TokenizerFromJson(json), after = TokenizerFromGguf(made.metadata);
  ASSERT_TRUE(before.ok() && after.ok()) << after.status().message();
  const std::string text = "It's 1234 words;\n\n  \xC3\xA9t\xC3\xA9 \xE4\xBD\xA0 <|endoftext|> end";
  EXPECT_EQ((*after)->Encode(text).value(), (*before)->Encode(text).value());
  EXPECT_EQ((*after)->Encode(text, {.parse_special = true}).value(), (*before)->Encode(text, {.parse_special = true}).value());
  EXPECT_EQ((*after)->eos(), std::vector<int32_t>{50256});
}

TEST_F(WithTokenizer, RefusesWhatWouldBeLostUnlessAllowed) {
  const auto quantized = [&](const std::string& json, std::vector<std::string> allowed) {
    EXPECT_TRUE(WriteTextFile(directory_ + "/tokenizer.json", json).ok());
    QuantizeOptions options;
    options.type = "Q8_0";
    options.tokenizer_loss = std::move(allowed);
    options.dry_run = true;
    return Quantize(directory_, out_, options);
  };
  const std::string other = R"({"model": {"type": "Unigram", "vocab": []}})";
  auto report = quantized(other, {"strip", "normalizer"});
  EXPECT_EQ(report.status().code(), StatusCode::kBadInput);
  EXPECT_NE(report.status().message().find("'Unigram' is not supported"), std::string::npos) << report.status().message();
  EXPECT_NE(report.status().message().find("; --allow-tokenizer-loss all writes"), std::string::npos)
      << report.status().message();
  EXPECT_EQ(quantized(other, {"every"}).status().message(),
            "'every' is nothing that a tokenizer may lose: strip, normalized, normalizer, space, ends, all");
  report = quantized(other, {"all"});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_NE(report->no_tokenizer.find("'Unigram' is not supported"), std::string::npos) << report->no_tokenizer;

  std::string bytes, added = R"({"id":256,"content":"<|im_end|>","special":true,"lstrip":true,"rstrip":true})";
  for (int b = 0; b < 256; ++b) {
    const std::string c = AlphabetOfBytes(std::string(1, static_cast<char>(b)));
    bytes += (b == 0 ? "\"" : ",\"") + std::string(c == "\"" || c == "\\" ? "\\" : "") + c + "\":" + std::to_string(b);
  }
  const std::string phi4 = R"({"added_tokens":[)" + added +
                           R"(],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"ByteLevel",)" +
                           R"("add_prefix_space":false},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" + bytes +
                           R"(},"merges":[]}})";
  report = quantized(phi4, {"normalizer"});
  EXPECT_EQ(report.status().message(),
            directory_ +
                "/tokenizer.json: GGUF cannot say that special tokens take the white space beside them along: other engines "
                "would give text other tokens; --allow-tokenizer-loss strip,normalizer writes the file all the same");
  report = quantized(phi4, {"normalizer", "strip"});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->tokenizer_losses,
            (std::vector<std::string>{"that special tokens take the white space beside them along", "its normalizer"}));
  EXPECT_EQ(report->no_tokenizer, "");

  fs::remove(directory_ + "/tokenizer.json");
  ASSERT_TRUE(WriteTextFile(directory_ + "/tokenizer.model", "\n").ok());
  const auto model = Quantize(directory_, out_, {});
  EXPECT_NE(model.status().message().find("tokenizer.model (SentencePiece's model)"), std::string::npos)
      << model.status().message();
  EXPECT_FALSE(fs::exists(out_));
}

// Several templates, of a list or in files, and what else a conversation reads.
TEST_F(WithTokenizer, CarriesTheTemplatesOver) {
  std::string bytes;
  for (int b = 0; b < 256; ++b) {
    const std::string c = AlphabetOfBytes(std::string(1, static_cast<char>(b)));
    bytes += (b == 0 ? "\"" : ",\"") + std::string(c == "\"" || c == "\\" ? "\\" : "") + c + "\":" + std::to_string(b);
  }
  const auto write = [&](const char* name, const std::string& text) {
    ASSERT_TRUE(WriteTextFile(directory_ + "/" + name, text).ok());
  };
  write("tokenizer.json", R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},)"
                          R"("model":{"type":"BPE","vocab":{)" +
                              bytes + R"(},"merges":[]}})");
  write("tokenizer_config.json", R"({"pad_token": "a", "sep_token": "b", "chat_template": [
      {"name": "default", "template": "{{ bos_token }}{{ pad_token }}"}, {"name": "tool_use", "template": "T"}]})");
  write("generation_config.json", R"({"stop_strings": ["\n\n"]})");
  const auto made = [&](std::vector<std::string>* notes) {
    QuantizeOptions options;
    options.type = "BF16";
    fs::remove(out_);
    const auto report = Quantize(directory_, out_, options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    if (report.ok()) *notes = report->notes;
    return ReadGguf(out_).value();
  };
  std::vector<std::string> notes;
  const auto of_list = ReadChatTemplates(made(&notes), nullptr).value();
  ASSERT_EQ(of_list.size(), 2u);
  EXPECT_EQ(of_list[0].text, "{{ bos_token }}{{ pad_token }}");
  EXPECT_EQ(of_list[1].name + of_list[1].text, "tool_useT");
  EXPECT_EQ(of_list[0].stop, std::vector<std::string>{"\n\n"});
  EXPECT_EQ(notes.back(), "its chat template reads pad_token, which GGUF cannot say");

  write("chat_template.jinja", "D");
  fs::create_directory(directory_ + "/additional_chat_templates");
  write("additional_chat_templates/rag.jinja", "R");
  const auto of_files = ReadChatTemplates(made(&notes), nullptr).value();
  ASSERT_EQ(of_files.size(), 2u);
  EXPECT_EQ(of_files[0].text, "D");
  EXPECT_EQ(of_files[1].name + of_files[1].text, "ragR");
  write("chat_template.jinja", "\xFF");
  EXPECT_TRUE(ReadChatTemplates(made(&notes), nullptr).value().empty());
  EXPECT_EQ(notes.back(), "no chat template was written: " + directory_ + "/chat_template.jinja: the chat template is not UTF-8");
}

TEST_F(WithTokenizer, TakesImportanceByTheNamesOfGguf) {
  const std::string matrix = folder_ / "imatrix.gguf", name = "blk.0.ffn_up.weight";
  GgufWriter writer;
  writer.AddTensor(name + ".in_sum2", DType::kF32, {1, 768});
  writer.AddTensor(name + ".counts", DType::kF32, {1, 1});
  const auto ones = [](size_t, uint64_t, std::span<uint8_t> piece) {
    const float one = 1;
    for (size_t i = 0; i < piece.size(); i += 4) std::memcpy(piece.data() + i, &one, 4);
  };
  ASSERT_TRUE(writer.Write(matrix, ones).ok());
  QuantizeOptions options;
  options.importance = matrix;
  options.dry_run = true;
  const auto report = Quantize(directory_, out_, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->without_importance + 1, report->types.at(DType::kQ4_K).tensors + report->types.at(DType::kQ6_K).tensors);
  EXPECT_FALSE(fs::exists(out_));
}

// The layer for multi-token prediction becomes a block of the file, and drafts the same tokens.
TEST(QuantizeDirectory, KeepsTheLayerForPrediction) {
  for (const char* name : {"qwen35", "qwen35moe", "qwen3next", "deepseek3", "nemotron"}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    MakePredicting(name, folder / "hf");
    QuantizeOptions options;
    options.type = "F32";
    options.threads = 2;
    const auto report = Quantize(folder / "hf", folder / "out.gguf", options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    for (const std::string& note : report->notes) EXPECT_EQ(note.find("not written"), note.npos) << note;
    std::vector<int32_t> drafts[2];
    for (const bool gguf : {false, true}) {
      EngineOptions engine = Exact();
      engine.prediction = true;
      engine.context = 64;
      const Opened opened = Open(folder / (gguf ? "out.gguf" : "hf"), engine);
      ASSERT_NE(opened.engine, nullptr);
      const int32_t sequence = opened.engine->NewSequence().value(), bill = opened.engine->OpenBill();
      for (const int32_t token : {3, 14, 15, 9, 26}) {
        const std::vector<BatchRow> row = {{.token = token, .sequence = sequence, .want_logits = true, .bill = bill}};
        ASSERT_TRUE(opened.engine->Step(row).ok());
      }
      const auto guessed =
          opened.engine->Predict(std::vector<DraftWish>{{.sequence = sequence, .token = 5, .most = 4, .bill = bill}});
      ASSERT_TRUE(guessed.ok()) << guessed.status().message();
      drafts[gguf ? 1 : 0] = (*guessed)[0];
    }
    EXPECT_EQ(drafts[0].size(), 4u);
    EXPECT_EQ(drafts[0], drafts[1]);
  }
}

// What the file lacks is named.
TEST(QuantizeDirectory, NamesWhatIsNotWritten) {
  const TempFolder folder;
  SynthOptions synth;
  synth.type = DType::kF32;
  const auto made = Synthesize(folder.Write("config.json", SmallConfig("Gemma-3-4B").dump()), folder / "gemma", synth);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Inventory inventory = ReadHuggingFace(folder / "gemma").value();
  std::vector<StoredTensor> tensors = inventory.tensors;
  tensors.push_back({.name = "vision_tower.patch.weight", .shape = {4, 4}});
  const FileReader file = FileReader::Open(inventory.files[0].path).value();
  const Status written = WriteSafetensors(folder / "new", tensors, [&](size_t i, uint64_t offset, std::span<uint8_t> piece) {
    if (i == inventory.tensors.size()) return;
    EXPECT_TRUE(file.ReadAt(tensors[i].offset + offset, piece).ok());
  });
  ASSERT_TRUE(written.ok()) << written.message();
  fs::rename(folder / "new", folder / "gemma/model.safetensors");
  QuantizeOptions options;
  options.type = "F32";
  options.dry_run = true;
  const auto report = Quantize(folder / "gemma", folder / "out.gguf", options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_NE(std::ranges::find(report->notes, "not written: vision_tower (64 bytes)"), report->notes.end());
}

TEST(QuantizeDirectory, Refusals) {
  const TempFolder folder;
  const std::string f32 = kGoldens + "gpt2/gpt2-a-f32-release-names";
  fs::copy(f32, folder / "large", fs::copy_options::recursive);
  {  // a matrix's first value, which F16 does not hold
    const Inventory inventory = ReadHuggingFace(f32).value();
    const auto t =
        std::ranges::find_if(inventory.tensors, [](const StoredTensor& s) { return s.name.ends_with("mlp.c_fc.weight"); });
    ASSERT_NE(t, inventory.tensors.end());
    std::fstream file(folder / "large/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(t->offset));
    const float large = -7e4F;
    file.write(reinterpret_cast<const char*>(&large), 4);
  }
  QuantizeOptions options;
  options.type = "F16";
  const auto beyond = Quantize(folder / "large", folder / "out.gguf", options);
  EXPECT_NE(beyond.status().message().find("ffn_up.weight', row 0 has a value of -70000, which F16 cannot hold"),
            std::string::npos)
      << beyond.status().message();
  EXPECT_FALSE(fs::exists(folder / "out.gguf"));
  const auto none = Quantize(folder.path(), folder / "out.gguf", {});
  EXPECT_NE(none.status().message().find("no config.json"), std::string::npos) << none.status().message();
  const std::string case_directory = kGoldens + "phi/phi-a-bf16-pct50";
  const auto over = Quantize(case_directory, case_directory + "/model.safetensors", {});
  EXPECT_NE(over.status().message().find("would be overwritten"), std::string::npos) << over.status().message();
}

}  // namespace
}  // namespace tally
