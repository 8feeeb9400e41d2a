// What NewEngine makes of its own options: they need not be those the model was loaded with.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/session/loaded_model.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

const std::string kGoldens = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/";
const std::string kLlama = kGoldens + "llama/llama-a-f32-gqa-untied/model.gguf";
const std::string kGpt2 = kGoldens + "gpt2/gpt2-a-f32-release-names/model.gguf";

std::shared_ptr<const Model> Load(const std::string& path, const LoadOptions& options) {
  auto model = LoadModel(path, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

TEST(Engine, ItsPlanIsOfItsOwnOptions) {
  const auto model = Load(kLlama, SmallOptions());
  ASSERT_NE(model, nullptr);
  auto same = NewEngine(model, SmallOptions());
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_EQ((*same)->context(), 32);
  EXPECT_EQ((*same)->memory_plan().total(), model->memory_plan().total());

  LoadOptions larger = SmallOptions();
  larger.context = 300;
  larger.sequences = 2;
  auto engine = NewEngine(model, larger);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->context(), 300);
  EXPECT_EQ(model->memory_plan().context, 32);
  EXPECT_EQ((*engine)->memory_plan().kv, 6 * (*same)->memory_plan().kv);  // 3 blocks of 128 positions for each of two sequences
  // And Generate goes by it: a prompt that is too long for the model's own plan.
  GenerateOptions options;
  options.max_tokens = 1;
  const std::vector<int32_t> prompt(100, 1);
  EXPECT_TRUE(Generate(**engine, prompt, options).ok());
  EXPECT_NE(Generate(**same, prompt, options).status().message().find("room for 32"), std::string::npos);
}

TEST(Engine, RefusesWhatTheModelCannotDo) {
  const auto model = Load(kGpt2, SmallOptions());
  ASSERT_NE(model, nullptr);
  const auto expect = [&](LoadOptions options, const std::string& part) {
    const auto engine = NewEngine(model, options);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.status().code(), StatusCode::kBadInput);
    EXPECT_NE(engine.status().message().find(part), std::string::npos) << engine.status().message();
  };
  LoadOptions options = SmallOptions();
  options.context = 65;  // it has learned 64
  expect(options, "the model has learned 64");
  options.context = int64_t{1} << 31;
  expect(options, "0 (the model's) to 2147483647 positions, not 2147483648");
  options.context = -1;
  expect(options, "not -1");
  options = SmallOptions();
  options.activations = ActivationMode::kInt8;
  expect(options, "int8 activations need quantised weights");
}

// Rows of logits are planned for, and no more are given.
TEST(Engine, RowsOfLogitsAreInThePlan) {
  LoadOptions options = SmallOptions();
  const auto model = Load(kLlama, options);
  ASSERT_NE(model, nullptr);
  const uint64_t row = 4 * static_cast<uint64_t>(model->recipe().vocab);
  auto scratch = [&](int64_t rows, int32_t sequences, int64_t expected) {
    options.max_logit_rows = rows;
    options.sequences = sequences;
    auto engine = NewEngine(model, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return uint64_t{0};
    EXPECT_EQ((*engine)->max_logit_rows(), expected);
    auto sequence = (*engine)->NewSequence();
    auto step = [&](int64_t n) { return (*engine)->Step(std::vector<BatchRow>(static_cast<size_t>(n), {1, *sequence, true})); };
    EXPECT_TRUE(step(expected).ok());
    if (expected < 8) {
      EXPECT_EQ(step(expected + 1).status().code(), StatusCode::kBadInput);
    }
    EXPECT_EQ((*engine)->Length(*sequence), expected);
    return (*engine)->memory_plan().scratch;
  };
  const uint64_t one = scratch(0, 1, 1);
  EXPECT_EQ(scratch(1, 1, 1), one);
  EXPECT_EQ(scratch(0, 3, 3), one + 2 * row);  // one a sequence
  EXPECT_EQ(scratch(8, 1, 8), one + 7 * row);
  EXPECT_EQ(scratch(1000, 1, 8), one + 7 * row);  // no more than a batch has
}

// More than there is: refused with the numbers, whatever was planned at the load.
TEST(Engine, MoreMemoryThanThereIs) {
  const auto model = Load(kLlama, SmallOptions());
  ASSERT_NE(model, nullptr);
  LoadOptions huge = SmallOptions();
  huge.context = 2147483647;
  huge.sequences = 64;
  const auto engine = NewEngine(model, huge);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kBadInput);
  EXPECT_NE(engine.status().message().find("not enough memory"), std::string::npos) << engine.status().message();
  EXPECT_NE(engine.status().message().find("context 2147483647"), std::string::npos) << engine.status().message();
}

// Caches fill as they are used, so that what is free does not tell what other engines have been promised.
TEST(Engine, EnginesOfAModelDoNotPlanTheSameMemory) {
  const auto model = Load(kLlama, SmallOptions());
  ASSERT_NE(model, nullptr);
  LoadOptions options = SmallOptions();
  const uint64_t bytes_per_block = model->memory_plan().kv;  // of a context of 32
  options.context = static_cast<int64_t>(AvailableMemoryBytes() / 5 * 3 / bytes_per_block) * 128;
  if (options.context > 2147483647) GTEST_SKIP() << "more memory than a sequence of this model can fill";
  auto first = NewEngine(model, options);
  ASSERT_TRUE(first.ok()) << first.status().message();
  auto second = NewEngine(model, options);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("not enough memory"), std::string::npos) << second.status().message();
  EXPECT_NE(second.status().message().find("other engines"), std::string::npos) << second.status().message();
  EXPECT_TRUE(NewEngine(model, SmallOptions()).ok());
  first = InternalError("gone");
  EXPECT_TRUE(NewEngine(model, options).ok());
}

// By the bytes that are stored: an expert's two packed projections are halves of one tensor, and count once.
TEST(Model, MatrixTypesByStoredBytes) {
  Inventory inventory;
  ModelSpec spec;
  const auto add = [&](const std::string& name, DType type, uint64_t bytes) {
    StoredTensor t;
    t.name = name;
    t.dtype = type;
    t.bytes = bytes;
    inventory.tensors.push_back(t);
  };
  add("gate_up_blocks", DType::kU8, 1000);
  add("gate_up_scales", DType::kU8, 60);
  add("down_blocks", DType::kU8, 500);
  add("down_scales", DType::kU8, 30);
  add("embedding", DType::kBF16, 2000);
  add("expert.0", DType::kF16, 800);
  add("expert.1", DType::kF16, 800);
  add("norm", DType::kF32, 10000);
  inventory.BuildIndex();
  const std::vector<uint64_t> experts = {2, 4, 4};
  for (const RowMap half : {RowMap{0, 1, 2}, RowMap{1, 1, 2}}) {
    spec.bindings.push_back({.role = Role::kExpertGate,
                             .names = {"gate_up_blocks", "gate_up_scales"},
                             .shape = experts,
                             .rows = half,
                             .hf_mxfp4 = true});
  }
  spec.bindings.push_back(
      {.role = Role::kExpertDown, .names = {"down_blocks", "down_scales"}, .shape = experts, .hf_mxfp4 = true});
  spec.bindings.push_back({.role = Role::kTokenEmbedding, .names = {"embedding"}, .shape = {10, 10}});
  spec.bindings.push_back({.role = Role::kExpertUp, .names = {"expert.0", "expert.1"}, .shape = experts});
  spec.bindings.push_back({.role = Role::kAttnNorm, .names = {"norm"}, .shape = {10}});
  EXPECT_EQ(MatrixTypes(inventory, spec), (std::vector<DType>{DType::kBF16, DType::kF16, DType::kMXFP4}));
}

}  // namespace
}  // namespace tally
