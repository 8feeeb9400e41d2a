// SPDX-License-Identifier: Apache-2.0
// Quantize: the presets' choices against llama.cpp's rules by hand; files that are written again; refusals.
#include "engine/studies/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "engine/kernels/formats/weight_format.h"
#include "engine/studies/count.h"
#include "engine/studies/quant_presets.h"
#include "engine/studies/synth.h"
#include "loaders/loaders.h"
#include "tests/support/stored_weights.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

StoredTensor Tensor(const std::string& name, std::vector<uint64_t> shape) { return {.name = name, .shape = std::move(shape)}; }

// "name type" of each tensor of a Llama-like model of 16 layers with grouped heads, tied or not, by the preset.
std::map<std::string, std::string> Choices(const std::string& preset, bool tied, int64_t experts = 0) {
  const QuantModel model{.architecture = "llama",
                         .layers = 16,
                         .experts = experts,
                         .heads = 32,
                         .kv_heads = 8,
                         .value_tensors = 16,
                         .tied_head = tied};
  std::vector<StoredTensor> tensors = {Tensor("token_embd.weight", {1000, 2048})};
  if (!tied) tensors.push_back(Tensor("output.weight", {1000, 2048}));
  for (int layer = 0; layer < 16; ++layer) {
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"}) {
      tensors.push_back(Tensor("blk." + std::to_string(layer) + "." + name + ".weight", {2048, 2048}));
    }
  }
  std::map<std::string, std::string> types;
  for (const StoredTensor& t : tensors) {
    const int64_t layer = t.name.starts_with("blk.") ? std::stoll(t.name.substr(4)) : 0;
    types[t.name] = DTypeName(QuantTypeOf(*FindQuantPreset(preset), model, t, layer, false).type);
  }
  return types;
}

// The first and last two of 16 layers, and 4, 7, 10, 13: more bits.
TEST(QuantPresets, FollowTheRules) {
  const auto medium = Choices("Q4_K_M", true);
  for (int layer = 0; layer < 16; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    const bool more = layer < 2 || layer >= 14 || layer == 4 || layer == 7 || layer == 10 || layer == 13;
    EXPECT_EQ(medium.at(blk + "attn_v.weight"), more ? "Q6_K" : "Q4_K") << layer;
    EXPECT_EQ(medium.at(blk + "ffn_down.weight"), more ? "Q6_K" : "Q4_K") << layer;
    EXPECT_EQ(medium.at(blk + "attn_output.weight"), "Q4_K");
    EXPECT_EQ(medium.at(blk + "ffn_up.weight"), "Q4_K");
  }
  EXPECT_EQ(medium.at("token_embd.weight"), "Q6_K");  // it is the head, too
  const auto untied = Choices("Q4_K_M", false);
  EXPECT_EQ(untied.at("token_embd.weight"), "Q4_K");
  EXPECT_EQ(untied.at("output.weight"), "Q6_K");

  const auto small = Choices("q4_k_s", true);
  EXPECT_EQ(small.at("blk.3.attn_v.weight"), "Q5_K");
  EXPECT_EQ(small.at("blk.4.attn_v.weight"), "Q4_K");
  EXPECT_EQ(small.at("blk.1.ffn_down.weight"), "Q5_K");
  EXPECT_EQ(small.at("blk.2.ffn_down.weight"), "Q4_K");

  const auto three = Choices("Q3_K_M", true);
  EXPECT_EQ(three.at("blk.1.attn_v.weight"), "Q5_K");
  EXPECT_EQ(three.at("blk.2.attn_v.weight"), "Q4_K");
  EXPECT_EQ(three.at("blk.0.ffn_down.weight"), "Q5_K");
  EXPECT_EQ(three.at("blk.1.ffn_down.weight"), "Q4_K");
  EXPECT_EQ(three.at("blk.1.attn_output.weight"), "Q4_K");
  EXPECT_EQ(three.at("blk.1.attn_q.weight"), "Q3_K");

  const auto two = Choices("Q2_K", true);
  EXPECT_EQ(two.at("blk.5.attn_v.weight"), "Q4_K");  // four heads share a value
  EXPECT_EQ(two.at("blk.5.ffn_down.weight"), "Q3_K");
  EXPECT_EQ(two.at("blk.5.attn_q.weight"), "Q2_K");

  const auto mixtral = Choices("Q4_K_M", false, 8);
  EXPECT_EQ(mixtral.at("blk.5.attn_k.weight"), "Q8_0");
  EXPECT_EQ(mixtral.at("blk.5.attn_v.weight"), "Q8_0");
  EXPECT_EQ(mixtral.at("blk.5.attn_output.weight"), "Q5_K");
  EXPECT_EQ(Choices("Q8_0", true).at("token_embd.weight"), "Q8_0");
  EXPECT_EQ(Choices("Q4_0", true).at("token_embd.weight"), "Q6_K");
  EXPECT_EQ(Choices("F16", true).at("blk.0.attn_q.weight"), "F16");
  EXPECT_EQ(FindQuantPreset("Q9"), nullptr);

  // Rows that are not whole blocks.
  const QuantModel none;
  const auto narrow = [&](const char* preset, uint64_t cols) {
    return DTypeName(QuantTypeOf(*FindQuantPreset(preset), none, Tensor("blk.0.attn_q.weight", {4, cols}), 0, false).type);
  };
  EXPECT_EQ(narrow("Q4_K_M", 96), "Q5_0");
  EXPECT_EQ(narrow("Q5_K_M", 96), "Q5_1");
  EXPECT_EQ(narrow("Q6_K", 96), "Q8_0");
  EXPECT_EQ(narrow("Q2_K", 96), "Q4_0");
  EXPECT_EQ(narrow("IQ4_XS", 96), "IQ4_NL");
  EXPECT_EQ(narrow("Q4_K_M", 40), "F16");

  for (const char* name : {"blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight", "position_embd.weight", "blk.0.attn_q.bias"}) {
    EXPECT_FALSE(MayQuantise(Tensor(name, {8, 256}))) << name;
  }
  EXPECT_FALSE(MayQuantise(Tensor("blk.0.attn_q.weight", {256})));
}

void ExpectPresetBytes(const std::string& path) {
  SCOPED_TRACE(path);
  const auto counted = CountModel({.model = path, .settings = {}, .options = {}});
  ASSERT_TRUE(counted.ok()) << counted.status().message();
  for (const char* preset : {"Q8_0", "Q4_K_M", "Q3_K_M"}) {
    QuantizeOptions options;
    options.type = preset;
    options.dry_run = options.requantize = true;
    const auto report = Quantize(path, path + ".out", options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    uint64_t bytes = 0;
    for (const auto& [type, of] : report->types) bytes += of.bytes;
    EXPECT_EQ(PresetBytes(*counted, preset).value(), bytes) << preset;
  }
}

// What `count` says of a preset is what quantize would write, without reading a tensor.
TEST(QuantPresets, BytesWithoutTheFile) {
  const TempFolder folder;
  for (const char* model : {"gpt2", "Qwen3-0.6B", "Gemma-3-1B", "Granite-3.0-1B-A400M"}) {
    SynthOptions synth;
    synth.layers = 2;
    synth.vocab = 320;
    const std::string path = folder / (std::string(model) + ".gguf");
    const auto written = Synthesize(model, path, synth);
    ASSERT_TRUE(written.ok()) << written.status().message();
    ExpectPresetBytes(path);
  }
  const std::string demo = std::string(TALLY_SOURCE_DIR) + "/models/demo/demo.gguf";
  ExpectPresetBytes(demo);  // experts that are MXFP4 stay
  EXPECT_FALSE(PresetBytes(*CountModel({.model = demo, .settings = {}, .options = {}}), "Q9").ok());
}

class QuantizeFile : public testing::Test {
 protected:
  void SetUp() override {
    SynthOptions options;
    options.type = DType::kF32;
    options.layers = 1;
    options.vocab = 320;
    const auto written = Synthesize("gpt2", source_, options);
    ASSERT_TRUE(written.ok()) << written.status().message();
  }
  static std::vector<uint8_t> Bytes(const Inventory& inventory, const StoredTensor& t) {
    std::vector<uint8_t> bytes(t.bytes);
    EXPECT_TRUE(FileReader::Open(inventory.files[t.file].path)->ReadAt(t.offset, bytes).ok());
    return bytes;
  }
  void ExpectRefused(const QuantizeOptions& options, const std::string& in, const std::string& out, const std::string& part) {
    const auto report = Quantize(in, out, options);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), StatusCode::kBadInput);
    EXPECT_NE(report.status().message().find(part), std::string::npos) << report.status().message();
  }
  const TempFolder folder_;
  const std::string source_ = folder_ / "source.gguf", out_ = folder_ / "out.gguf";
};

TEST_F(QuantizeFile, HoldsWhatTheFormatsEncode) {
  QuantizeOptions options;
  options.threads = 2;
  const auto report = Quantize(source_, out_, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->bytes, std::filesystem::file_size(out_));
  EXPECT_GT(report->types.at(DType::kQ4_K).tensors, 0u);
  EXPECT_GT(report->types.at(DType::kQ6_K).tensors, 0u);
  const Inventory before = ReadGguf(source_).value(), after = ReadGguf(out_).value();
  ASSERT_EQ(after.tensors.size(), before.tensors.size());
  EXPECT_EQ(after.metadata.GetInt("general.file_type").value(), 15);
  EXPECT_EQ(after.metadata.GetInt("gpt2.block_count").value(), 1);
  for (const StoredTensor& t : before.tensors) {
    const StoredTensor* now = after.Find(t.name);
    ASSERT_NE(now, nullptr) << t.name;
    EXPECT_EQ(now->shape, t.shape);
    const std::vector<uint8_t> old_bytes = Bytes(before, t), new_bytes = Bytes(after, *now);
    if (now->dtype == t.dtype) {
      EXPECT_EQ(old_bytes, new_bytes) << t.name;
      continue;
    }
    const std::vector<float> values = DecodeStored(t.dtype, old_bytes.data(), t.elements());
    std::vector<uint8_t> want(new_bytes.size());
    FormatOf(now->dtype)
        .encode(values.data(), nullptr, static_cast<int64_t>(t.elements() / GetDTypeInfo(now->dtype).block_size), want.data());
    EXPECT_EQ(new_bytes, want) << t.name;
  }
  options.type = "Q8_0";
  ExpectRefused(options, out_, folder_ / "again.gguf", "--requantize");
  options.requantize = true;
  EXPECT_TRUE(Quantize(out_, folder_ / "again.gguf", options).ok());
}

// The columns that matter are nearer to what they were.
TEST_F(QuantizeFile, FollowsTheImportance) {
  const std::string matrix = folder_ / "imatrix.gguf", name = "blk.0.ffn_up.weight";
  std::vector<float> sums(768), counts = {4};
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = i % 8 == 0 ? 4000.0f : 4.0f;
  const auto write = [&] {
    GgufWriter writer;
    writer.Set("general.type", std::string("imatrix"));
    writer.AddTensor(name + ".in_sum2", DType::kF32, {1, 768});
    writer.AddTensor(name + ".counts", DType::kF32, {1, 1});
    ASSERT_TRUE(writer
                    .Write(matrix,
                           [&](size_t tensor, uint64_t offset, std::span<uint8_t> piece) {
                             const std::vector<float>& from = tensor == 0 ? sums : counts;
                             std::memcpy(piece.data(), reinterpret_cast<const uint8_t*>(from.data()) + offset, piece.size());
                           })
                    .ok());
  };
  write();
  const auto error = [&](const QuantizeOptions& options) {
    const auto report = Quantize(source_, out_, options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    const Inventory before = ReadGguf(source_).value(), after = ReadGguf(out_).value();
    const std::vector<float> x = DecodeStored(DType::kF32, Bytes(before, *before.Find(name)).data(),
                                              before.Find(name)->elements()),
                             y = DecodeStored(after.Find(name)->dtype, Bytes(after, *after.Find(name)).data(), x.size());
    double sum = 0;
    for (size_t i = 0; i < x.size(); i += 8) sum += std::pow(static_cast<double>(x[i] - y[i]), 2);
    return sum;
  };
  QuantizeOptions options;
  options.type = "Q3_K_S";
  const double without = error(options);
  options.importance = matrix;
  EXPECT_LT(error(options), 0.6 * without);

  // Columns that no activation reached are kept like any other.
  std::fill(sums.begin(), sums.begin() + 512, 0.0f);
  write();
  for (const char* type : {"Q3_K_S", "Q6_K", "IQ4_NL", "IQ4_XS"}) {
    options.type = type;
    options.importance = {};
    const double of_equals = error(options);
    options.importance = matrix;
    EXPECT_LT(error(options), 2 * of_equals) << type;
  }
  counts[0] = std::nanf("");
  write();
  ExpectRefused(options, source_, out_, "'blk.0.ffn_up.weight' has a count that is no number");

  QuantizeOptions wrong = options;
  wrong.importance = source_;
  ExpectRefused(wrong, source_, out_, "no tensor of importance");
}

// A file with a vector and a matrix [2, 256] of small values but for one, in the matrix's second row.
void WriteOneValue(const std::string& path, float value) {
  std::vector<float> vector(256, 1), matrix(512);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i % 7) - 3;
  matrix[256 + 5] = value;
  GgufWriter writer;
  writer.Set("general.architecture", std::string("llama"));
  writer.AddTensor("blk.0.attn_norm.weight", DType::kF32, {256});
  writer.AddTensor("blk.0.ffn_up.weight", DType::kF32, {2, 256});
  const auto fill = [&](size_t tensor, uint64_t offset, std::span<uint8_t> piece) {
    const std::vector<float>& from = tensor == 0 ? vector : matrix;
    std::memcpy(piece.data(), reinterpret_cast<const uint8_t*>(from.data()) + offset, piece.size());
  };
  ASSERT_TRUE(writer.Write(path, fill).ok());
}

// Whatever the type: what is written decodes to finite values, or nothing is written and one line names tensor and row.
TEST(QuantizeValues, WhatIsWrittenIsFinite) {
  const TempFolder folder;
  const std::string in = folder / "in.gguf", out = folder / "out.gguf";
  constexpr float kInf = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();
  for (const float value : {65519.0F, 1e5F, -1e5F, 3e38F, kMost, -kMost, kInf, -kInf, std::nanf("")}) {
    WriteOneValue(in, value);
    std::string refused;  // the types
    for (const std::string_view type : QuantizePresets()) {
      SCOPED_TRACE(std::string(type) + " " + std::to_string(value));
      QuantizeOptions options;
      options.type = type;
      options.pure = true;
      options.threads = 1;
      const auto report = Quantize(in, out, options);
      EXPECT_EQ(std::filesystem::exists(out), report.ok());
      if (!report.ok()) {
        refused += std::string(refused.empty() ? "" : " ") + std::string(type);
        EXPECT_EQ(report.status().code(), StatusCode::kBadInput);
        const std::string& message = report.status().message();
        EXPECT_NE(message.find("in.gguf: tensor 'blk.0.ffn_up.weight', row 1"), std::string::npos) << message;
        EXPECT_NE(message.find(std::isfinite(value) ? "cannot hold" : "column 5 is NaN or infinite"), std::string::npos)
            << message;
        continue;
      }
      const Inventory made = ReadGguf(out).value();
      const StoredTensor& t = *made.Find("blk.0.ffn_up.weight");
      std::vector<uint8_t> bytes(t.bytes);
      ASSERT_TRUE(FileReader::Open(out)->ReadAt(t.offset, bytes).ok());
      for (const float x : DecodeStored(t.dtype, bytes.data(), 512)) ASSERT_TRUE(std::isfinite(x));
      std::filesystem::remove(out);
    }
    std::string want;
    if (std::fabs(value) >= 1e5F) want = "F16";
    if (value == -1e5F) want += " Q4_1 Q5_1";  // whose minima are f16
    if (std::fabs(value) == kMost) want += " BF16";
    if (!std::isfinite(value)) want = "F32 F16 BF16";
    if (!(std::fabs(value) < 3e38F)) {
      want += " Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ4_NL IQ4_XS";
    }
    if (!std::isfinite(value)) want += " MXFP4_MOE";
    EXPECT_EQ(refused, want) << value;
  }
}

// Types that are copied are looked at too: here an infinite scale, and a vector that no preset touches.
TEST(QuantizeValues, WhatIsCopiedIsFinite) {
  const TempFolder folder;
  const std::string in = folder / "in.gguf", q8 = folder / "q8.gguf", out = folder / "out.gguf";
  WriteOneValue(in, 1);
  QuantizeOptions options;
  options.type = "Q8_0";
  ASSERT_TRUE(Quantize(in, q8, options).ok());
  const Inventory made = ReadGguf(q8).value();
  const auto refusal = [&](const char* tensor, uint64_t at, uint32_t bits, size_t size) {
    std::string bytes = ReadAll(q8);
    std::memcpy(bytes.data() + made.Find(tensor)->offset + at, &bits, size);
    const auto report = Quantize(folder.Write("spoilt.gguf", bytes), out, options);
    EXPECT_FALSE(std::filesystem::exists(out));
    return report.status().message();
  };
  EXPECT_NE(refusal("blk.0.ffn_up.weight", 9 * 34, 0x7c00, 2).find("'blk.0.ffn_up.weight', row 1, column 32 is NaN or inf"),
            std::string::npos);
  EXPECT_NE(refusal("blk.0.attn_norm.weight", 4 * 7, 0x7fc00000, 4).find("'blk.0.attn_norm.weight', row 0, column 7 is NaN"),
            std::string::npos);
  EXPECT_TRUE(Quantize(q8, out, options).ok());
}

TEST_F(QuantizeFile, Refusals) {
  QuantizeOptions options;
  ExpectRefused(options, source_, source_, "would be overwritten");
  ExpectRefused(options, folder_ / "none.gguf", out_, "none.gguf");
  ExpectRefused(options, folder_.path(), out_, "no config.json");
  ExpectRefused(options, source_, folder_ / "no/where.gguf", "where.gguf");
  options.type = "Q9_K";
  ExpectRefused(options, source_, out_, "'Q9_K' is no type");
  options.type = "Q4_0";
  options.dry_run = true;
  ASSERT_TRUE(Quantize(source_, out_, options).ok());
  EXPECT_FALSE(std::filesystem::exists(out_));
  options.dry_run = false;
  options.progress = [](uint64_t, uint64_t) { return false; };
  EXPECT_EQ(Quantize(source_, out_, options).status().code(), StatusCode::kInterrupted);
  EXPECT_FALSE(std::filesystem::exists(out_));
}

}  // namespace
}  // namespace tally
