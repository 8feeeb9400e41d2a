// SPDX-License-Identifier: Apache-2.0
// CheckClaims: every stored tensor has its place, its shape and a type that can be run there.
#include <set>

#include "engine/kernels/weight_view.h"
#include "engine/recipe/recipe.h"
#include "tests/models/spec_tools.h"

namespace tally {
namespace {

using synthetic::AllSynthetic;
using synthetic::Bound;
using synthetic::ExpectBadInput;
using synthetic::MustRead;
using synthetic::With;
using synthetic::WithoutTensors;
using synthetic::WithTensor;
using synthetic::WithType;

// Every required tensor, one after the other: missing, misshapen, of a type that cannot be a weight.
TEST(Claims, EveryTensorIsNeededWithItsShape) {
  for (const auto& [name, inventory] : AllSynthetic()) {
    SCOPED_TRACE(name);
    const ModelSpec spec = MustRead(inventory);
    const std::set<std::string> buffers(spec.buffers.begin(), spec.buffers.end());
    for (size_t i = 0; i < inventory.tensors.size(); ++i) {
      const std::string tensor = inventory.tensors[i].name;
      SCOPED_TRACE(tensor);
      if (buffers.count(tensor)) continue;  // a mask may be there or not, of any shape
      Inventory wrong = inventory;
      wrong.tensors[i].shape.back() += 1;
      wrong.BuildIndex();
      if (tensor != "token_embd.weight" && tensor != "wte.weight") ExpectBadInput(wrong, {tensor, "has shape", "expected ["});
      wrong = inventory;
      wrong.tensors[i].shape.insert(wrong.tensors[i].shape.begin(), 1);
      wrong.BuildIndex();
      if (!tensor.ends_with("ffn_gate_inp_shexp.weight")) ExpectBadInput(wrong, {tensor});  // a matrix of one row
      wrong = inventory;
      wrong.tensors[i].dtype = wrong.tensors[i].dtype == DType::kU8 ? DType::kF32 : DType::kI32;
      wrong.BuildIndex();
      ExpectBadInput(wrong, {tensor, "has type"});
      // The files may decide about tied heads, stored rope divisors, and biases of the Llama and GPT-2
      // attention.
      if (tensor == "output.weight" || tensor == "rope_freqs.weight") continue;
      wrong = inventory;
      wrong.tensors.erase(wrong.tensors.begin() + static_cast<std::ptrdiff_t>(i));
      wrong.BuildIndex();
      ExpectBadInput(wrong, {tensor, "missing"});
    }
  }
}

TEST(Claims, ATensorWithoutAPlaceIsNamed) {
  for (const auto& [name, inventory] : AllSynthetic()) {
    SCOPED_TRACE(name);
    ExpectBadInput(WithTensor(inventory, "blk.3.attn_q.weight", {24, 12}),
                   {"'blk.3.attn_q.weight' [24, 12]", "no place", "layers"});
    ExpectBadInput(WithTensor(inventory, "bell\a", {1}), {"bell\\x07"});
  }
}

TEST(Claims, LayersAndTensorsMustAgree) {
  for (const auto& [inventory, key] :
       {std::pair{synthetic::HfLlama(), "num_hidden_layers"}, {synthetic::GgufLlama(), "llama.block_count"}}) {
    const std::string layer = inventory.format == FileFormat::kGguf ? "blk." : "model.layers.";
    ExpectBadInput(With(inventory, key, int64_t{2}), {layer + "2.", "no place", "2 layers"});
    ExpectBadInput(With(inventory, key, int64_t{4}), {layer + "3.", "missing"});
  }
}

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kMXFP4,
                            DType::kF64, DType::kI8,  DType::kI16,  DType::kI32,  DType::kU8,   DType::kBOOL};

// A matrix may be of any type that can be multiplied, a vector of those that widen to f32 exactly.
TEST(Claims, TypesThatCanBeRun) {
  for (const DType type : kTypes) {
    SCOPED_TRACE(DTypeName(type));
    const std::string found = "has type " + std::string(DTypeName(type));
    const auto check = [&](const Inventory& inventory, const std::string& tensor, bool runs, const std::string& expected) {
      SCOPED_TRACE(tensor);
      if (runs) {
        MustRead(WithType(inventory, tensor, type));
      } else {
        ExpectBadInput(WithType(inventory, tensor, type), {"'" + tensor + "' " + found, expected});
      }
    };
    const bool matrix = IsWeightType(type), vector = matrix && !GetDTypeInfo(type).quantised;
    const std::string any = "expected " + WeightTypeNames(), plain = "expected F32, F16 or BF16";
    for (const char* tensor : {"token_embd.weight", "blk.1.attn_q.weight", "blk.2.ffn_down.weight"}) {
      check(synthetic::GgufLlama(), tensor, matrix, any);
    }
    for (const char* tensor : {"rope_freqs.weight", "output_norm.weight", "blk.0.ffn_norm.weight"}) {
      check(synthetic::GgufLlama(), tensor, vector, plain);
    }
    for (const char* tensor : {"blk.0.attn_q.bias", "blk.1.attn_sinks.weight", "blk.2.ffn_up_exps.bias"}) {
      check(synthetic::GgufGptOss(), tensor, vector, plain);
    }
    check(synthetic::GgufGptOss(), "blk.2.ffn_gate_inp.weight", matrix, any);
    // Conv1D weights are turned while they are packed; blocks cannot be.
    check(synthetic::HfGpt2(), "h.0.attn.c_attn.weight", vector, plain);
    check(synthetic::HfGpt2(), "h.1.ln_1.bias", vector, plain);
    check(synthetic::HfGpt2(), "wpe.weight", matrix, any);
  }
}

// One stored tensor, several bindings: every row of it belongs to one of them.
TEST(Claims, SharedRows) {
  const auto check = [](uint64_t rows, std::vector<RowMap> maps, uint64_t each) {
    Inventory inventory;
    inventory.path = "made-up";
    inventory.files.push_back({"made-up/weights", 1 << 20});
    inventory.tensors.push_back({.name = "qkv", .dtype = DType::kF32, .shape = {rows, 4}, .bytes = rows * 16});
    inventory.BuildIndex();
    ModelSpec spec;
    spec.recipe.family = "made-up";
    const Role roles[] = {Role::kQ, Role::kK, Role::kV};
    for (size_t i = 0; i < maps.size(); ++i) {
      spec.bindings.push_back({.role = roles[i], .layer = 0, .names = {"qkv"}, .shape = {each, 4}, .rows = maps[i]});
    }
    return CheckClaims(inventory, spec);
  };
  const std::vector<RowMap> heads = {{0, 2, 6}, {2, 2, 6}, {4, 2, 6}}, cut = {{0, 4, 4}, {4, 4, 4}, {8, 4, 4}};
  EXPECT_TRUE(check(12, heads, 4).ok());
  EXPECT_TRUE(check(12, cut, 4).ok());
  EXPECT_TRUE(check(8, {{0, 1, 2}, {1, 1, 2}}, 4).ok());
  const auto says = [](const Status& status, StatusCode code, const std::string& part) {
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  says(check(13, heads, 4), StatusCode::kBadInput, "'qkv' has shape [13, 4]; expected [12, 4]");
  says(check(12, {heads[0], heads[1], heads[1]}, 4), StatusCode::kInternal, "qkv: row 2 is claimed twice");
  says(check(12, {cut[0], cut[1], {9, 4, 4}}, 4), StatusCode::kInternal, "qkv: has no row 12");
  says(check(12, {cut[0], cut[1], {}}, 4), StatusCode::kBadInput, "'qkv' has shape [12, 4]; expected [8, 4]");
  says(check(8, {{0, 8, 8}, {}}, 8), StatusCode::kInternal, "qkv: is claimed twice");
}

// Matrices of a layer may differ, as mixes of types have it; the experts of one matrix may not.
TEST(Claims, ExpertsOfAMatrixAreOfOneType) {
  MustRead(WithType(synthetic::GgufLlama(), "blk.1.ffn_up.weight", DType::kF16));
  MustRead(WithType(synthetic::GgufLlama(), "blk.1.attn_k.weight", DType::kF16));
  MustRead(WithType(synthetic::GgufGptOss(), "blk.0.ffn_gate_exps.weight", DType::kQ8_0));
  MustRead(WithType(synthetic::GgufGptOss(), "blk.0.ffn_gate_exps.bias", DType::kBF16));
  ExpectBadInput(WithType(synthetic::HfQwen2Moe(), "model.layers.1.mlp.experts.2.up_proj.weight", DType::kF16),
                 {"experts.0.up_proj.weight' (F32)", "experts.2.up_proj.weight' (F16)", "one type"});
}

// A tensor of a type that no DType is.
TEST(Claims, TypesThatAreUnknown) {
  Inventory weight = synthetic::GgufLlama(), extra = WithTensor(synthetic::GgufLlama(), "other", {4});
  for (StoredTensor& t : weight.tensors) {
    if (t.name == "blk.1.ffn_up.weight") t.dtype = DType::kU8, t.other_type = "ggml type 99";
  }
  extra.tensors.back().other_type = "C64";
  EXPECT_TRUE(CheckClaims(weight, ReadFamily(weight).value()).ok());  // so that it is counted
  ExpectBadInput(weight, {"'blk.1.ffn_up.weight' has type ggml type 99, which cannot be run"});
  ExpectBadInput(extra, {"'other' [4] of type C64 has no place"});
}

// What transformers computes anew, in any family; not what a family has a place for.
TEST(Claims, BuffersOfTransformers) {
  const std::vector<std::pair<std::string, std::vector<uint64_t>>> buffers = {
      {"model.layers.0.self_attn.rotary_emb.inv_freq", {3}},
      {"model.rotary_emb.inv_freq", {3}},
      {"model.layers.1.self_attn.rotary_emb.cos_cached", {1, 1, 64, 6}},
      {"model.layers.1.self_attn.masked_bias", {}},
      {"model.layers.2.self_attn.bias", {1, 1, 64, 64}},
      {"model.layers.2.attn.mask", {1, 1, 64, 64}},
      {"model.layers.0.self_attn.causal_mask", {64, 64}},
      {"model.position_ids", {1, 64}}};
  for (const auto& [name, shape] : buffers) {
    for (const Inventory& family : {synthetic::HfLlama(), synthetic::HfGptOss(), synthetic::HfQwen2Moe()}) {
      EXPECT_EQ(MustRead(WithTensor(family, name, shape)).buffers, std::vector<std::string>{name});
    }
  }
  MustRead(WithTensor(synthetic::HfLlama(), "empty", {0}));
  MustRead(WithTensor(synthetic::GgufLlama(), "blk.0.attn_rot_embd", {3}));
  for (const char* name : {"bias", "mask"}) {
    ExpectBadInput(WithTensor(synthetic::HfLlama(), std::string("model.layers.2.self_attn.") + name, {64, 64}),
                   {std::string("self_attn.") + name + "' [64, 64] has no place"});
  }
  ExpectBadInput(WithTensor(synthetic::HfLlama(), "model.layers.0.self_attn.q_proj.lora_A.weight", {8, 12}),
                 {"lora_A.weight' is part of a LoRA adapter", "merge"});
  ExpectBadInput(WithTensor(synthetic::HfLlama(), "lm_head.modules_to_save.default.weight", {8, 12}),
                 {"default.weight' is part of a PEFT adapter", "merge"});
}

// Layouts of quantisation that cannot be read, in files that do not say their method.
TEST(Claims, OtherLayoutsAreNamed) {
  const std::string q = "model.layers.0.self_attn.q_proj.";
  ExpectBadInput(WithTensor(WithoutTensors(synthetic::HfLlama(), q + "weight"), q + "qweight", {4, 12}, DType::kI32),
                 {"q_proj.weight'", "is missing", "there is '" + q + "qweight', of GPTQ or AWQ"});
  ExpectBadInput(WithTensor(WithType(synthetic::HfLlama(), q + "weight", DType::kF8_E5M2), q + "weight_scale", {}),
                 {"weight_scale' [] has no place", "it scales '" + q + "weight', which is F8_E5M2"});
}

// Prefixes that no wrapper of the table has, in files that are else whole.
TEST(Claims, UnknownWrappersAreNamed) {
  const auto renamed = [](const std::string& from, const std::string& to) {
    Inventory inventory = synthetic::HfLlama();
    for (StoredTensor& t : inventory.tensors) {
      if (t.name.starts_with(from)) t.name = to + t.name.substr(from.size());
    }
    inventory.BuildIndex();
    return inventory;
  };
  ExpectBadInput(renamed("", "student."),
                 {"'model.embed_tokens.weight'", "is missing", "; there is 'student.model.embed_tokens.weight'"});
  ExpectBadInput(renamed("model.layers.1.", "model.layers.1._orig_mod."),
                 {"'model.layers.1.input_layernorm.weight'", "; there is 'model.layers.1._orig_mod.input_layernorm.weight'"});
  const std::string norm = "model.norm.weight";  // not within a layer
  const Inventory without = WithTensor(WithoutTensors(synthetic::HfLlama(), norm), "model.layers.0.norm.weight", {12});
  const Status status = CheckClaims(without, ReadFamily(without).value());
  EXPECT_NE(status.message().find("'" + norm + "'"), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find("there is"), std::string::npos) << status.message();
}

// llama.cpp's one tensor for gate and up of all experts: gate's rows first.
TEST(Claims, GateAndUpOfExpertsInOneTensor) {
  Inventory fused = synthetic::GgufGptOss();
  const std::vector<uint64_t> shape = fused.Find("blk.0.ffn_gate_exps.weight")->shape;
  for (int layer = 0; fused.Find("blk." + std::to_string(layer) + ".ffn_gate_exps.weight") != nullptr; ++layer) {
    const std::string block = "blk." + std::to_string(layer);
    for (const char* part : {".ffn_gate_exps.weight", ".ffn_up_exps.weight", ".ffn_gate_exps.bias", ".ffn_up_exps.bias"}) {
      fused = WithoutTensors(fused, block + part);
    }
    fused = WithTensor(fused, block + ".ffn_gate_up_exps.weight", {shape[0], 2 * shape[1], shape[2]}, DType::kMXFP4);
    fused = WithTensor(fused, block + ".ffn_gate_up_exps.bias", {shape[0], 2 * shape[1]});
  }
  const ModelSpec spec = MustRead(fused);
  for (const auto& [role, first] : {std::pair{Role::kExpertGate, uint64_t{0}},
                                    {Role::kExpertUp, shape[1]},
                                    {Role::kExpertGateBias, uint64_t{0}},
                                    {Role::kExpertUpBias, shape[1]}}) {
    EXPECT_EQ(Bound(spec, role, 1)->rows, (RowMap{first, shape[1], shape[1]}));
  }
}

}  // namespace
}  // namespace tally
