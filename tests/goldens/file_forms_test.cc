// SPDX-License-Identifier: Apache-2.0
// One model in the forms that Hugging Face files have: experts one by one or all in a tensor, under each of their names, and a text model's
// tensors with each prefix. The logits are those of the published form, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/studies/quantize.h"
#include "engine/studies/synth.h"
#include "loaders/loaders.h"
#include "models/family.h"
#include "tests/goldens/logits.h"
#include "tests/support/small_config.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

struct Tensor {
  std::vector<uint64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

// A directory of random weights in F32.
struct Made {
  TempFolder folder;
  OrderedJson config;
  ModelSpec spec;
  Tensors tensors;

  explicit Made(OrderedJson as) : config(std::move(as)) {
    SynthOptions options;
    options.type = DType::kF32;
    const auto made = Synthesize(folder.Write("config.json", config.dump()), folder / "made", options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    const auto inventory = ReadCheckpoint(folder / "made");
    EXPECT_TRUE(inventory.ok()) << inventory.status().message();
    spec = ReadModelSpec(*inventory).value();
    auto file = FileReader::Open(inventory->files[0].path);
    for (const StoredTensor& t : inventory->tensors) {
      if (t.dtype != DType::kF32) continue;
      Tensor& own = tensors[t.name];
      own.shape = t.shape;
      own.values.resize(t.elements());
      EXPECT_TRUE(file->ReadAt(t.offset, {reinterpret_cast<uint8_t*>(own.values.data()), t.bytes}).ok());
    }
  }

  // True for experts in two tensors of bytes (gpt-oss).
  bool split() const {
    return std::ranges::any_of(spec.bindings, [](const TensorBinding& b) { return b.split.has_value(); });
  }

  std::string Save(const std::string& name, const Tensors& as) {
    std::filesystem::create_directory(folder / name);
    folder.Write(name + "/config.json", config.dump());
    std::vector<StoredTensor> stored;
    std::vector<const Tensor*> order;
    for (const auto& [tensor, own] : as) {
      stored.push_back({.name = tensor, .shape = own.shape});
      order.push_back(&own);
    }
    const Status written =
        WriteSafetensors(folder / name + "/model.safetensors", stored, [&](size_t i, uint64_t offset, std::span<uint8_t> piece) {
          std::memcpy(piece.data(), reinterpret_cast<const uint8_t*>(order[i]->values.data()) + offset, piece.size());
        });
    EXPECT_TRUE(written.ok()) << written.message();
    return folder / name;
  }
};

std::vector<float> LogitsOf(const std::string& path) {
  EngineOptions options = Exact();
  options.context = 16;
  Opened opened = Open(path, options);
  return opened.engine == nullptr ? std::vector<float>() : Logits(*opened.engine, {3, 7, 1, 9, 2}, 5);
}

// One published model of each family and kind of its class, of those that `wanted` says.
std::vector<std::string> OneOfEach(const std::function<bool(const Recipe&)>& wanted) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const std::string& name : SmallModels()) {
    if (name == "cs336") continue;
    const OrderedJson config = SmallConfig(name);
    const auto inventory = ReadConfigText(config.dump(), name);
    const auto spec = ReadFamily(*inventory);
    if (!spec.ok() || spec->recipe.counted_only || !wanted(spec->recipe)) continue;
    if (seen.insert(spec->recipe.family + config.value("architectures", OrderedJson::array()).dump()).second)
      names.push_back(name);
  }
  return names;
}

// The matrices of all experts, [experts][out][in].
std::vector<float> Matrices(const TensorBinding& b, const Tensors& tensors) {
  std::vector<float> all;
  const uint64_t experts = b.shape[0], out = b.shape[1], in = b.shape[2];
  for (uint64_t e = 0; e < experts; ++e) {
    const Tensor& t = tensors.at(b.names[b.names.size() > 1 ? e : 0]);
    const uint64_t slices = b.names.size() > 1 ? 1 : experts, slice = t.values.size() / slices;
    const float* const from = t.values.data() + (b.names.size() > 1 ? 0 : e * slice);
    const uint64_t rows = slice / in;  // stored
    for (uint64_t r = 0; r < out; ++r) {
      for (uint64_t c = 0; c < in; ++c) {
        const uint64_t row = b.rows.Stored(r);
        all.push_back(b.storage == Storage::kTransposed ? from[c * rows + row] : from[row * in + c]);
      }
    }
  }
  return all;
}

// What the experts' names of a layer begin with.
std::string ModuleOf(const std::string& name) {
  const size_t at = name.find("experts.");
  return (at != name.npos ? name.substr(0, at) : name.substr(0, name.rfind('.', name.rfind('.') - 1) + 1)) + "experts.";
}

enum class Form { kNames, kLetters, kFused, kTransposed };

// The same values in another form of the experts.
Tensors InForm(const Made& made, Form form) {
  Tensors out = made.tensors;
  const auto bound = [&](Role role, int32_t layer) -> const TensorBinding* {
    const auto is = [&](const TensorBinding& b) { return b.role == role && b.layer == layer; };
    const auto found = std::ranges::find_if(made.spec.bindings, is);
    return found == made.spec.bindings.end() ? nullptr : &*found;
  };
  for (int32_t layer = 0; layer < made.spec.recipe.n_layers; ++layer) {
    const TensorBinding *gate = bound(Role::kExpertGate, layer), *up = bound(Role::kExpertUp, layer),
                        *down = bound(Role::kExpertDown, layer);
    if (up == nullptr) continue;
    for (const TensorBinding* b : {gate, up, down}) {
      for (const std::string& name : b == nullptr ? std::vector<std::string>() : b->names) out.erase(name);
    }
    const std::string module = ModuleOf(up->names[0]);
    const uint64_t experts = up->shape[0], width = up->shape[1], in = up->shape[2];
    const std::vector<float> g = gate == nullptr ? std::vector<float>() : Matrices(*gate, made.tensors),
                             u = Matrices(*up, made.tensors), d = Matrices(*down, made.tensors);
    const auto part = [](const std::vector<float>& all, uint64_t e, uint64_t n) {
      return std::vector<float>(all.begin() + static_cast<int64_t>(e * n), all.begin() + static_cast<int64_t>((e + 1) * n));
    };
    if (form == Form::kNames || form == Form::kLetters) {
      const bool letters = form == Form::kLetters;
      for (uint64_t e = 0; e < experts; ++e) {
        const std::string own = module + std::to_string(e) + ".";
        if (gate != nullptr) out[own + (letters ? "w1" : "gate_proj") + ".weight"] = {{width, in}, part(g, e, width * in)};
        out[own + (letters ? "w3" : "up_proj") + ".weight"] = {{width, in}, part(u, e, width * in)};
        out[own + (letters ? "w2" : "down_proj") + ".weight"] = {{in, width}, part(d, e, width * in)};
      }
      continue;
    }
    std::vector<float> both;
    for (uint64_t e = 0; e < experts; ++e) {
      for (const auto* all : {&g, &u}) {
        if (all->empty()) continue;
        const std::vector<float> of = part(*all, e, width * in);
        both.insert(both.end(), of.begin(), of.end());
      }
    }
    const auto put = [&](const std::string& name, uint64_t rows, uint64_t cols, const std::vector<float>& values) {
      Tensor& t = out[name];
      t = {{experts, rows, cols}, values};
      if (form == Form::kFused) return;
      t.shape = {experts, cols, rows};
      for (uint64_t e = 0; e < experts; ++e) {
        for (uint64_t r = 0; r < rows; ++r) {
          for (uint64_t c = 0; c < cols; ++c) t.values[(e * cols + c) * rows + r] = values[(e * rows + r) * cols + c];
        }
      }
    };
    put(module + (gate == nullptr ? "up_proj" : "gate_up_proj"), gate == nullptr ? width : 2 * width, in, both);
    put(module + "down_proj", in, width, d);
  }
  return out;
}

class Experts : public testing::TestWithParam<std::string> {};

TEST_P(Experts, InEveryForm) {
  Made made(SmallConfig(GetParam()));
  const bool ungated = made.spec.recipe.all.experts.ungated || !made.spec.recipe.all.network.gated;
  if (made.split()) GTEST_SKIP() << "experts in a format of their own";
  const std::vector<float> published = LogitsOf(made.folder / "made");
  ASSERT_FALSE(published.empty());
  for (const Form form : {Form::kNames, Form::kLetters, Form::kFused, Form::kTransposed}) {
    if (ungated && form == Form::kTransposed) continue;
    const std::string name = "form" + std::to_string(static_cast<int>(form));
    SCOPED_TRACE(name);
    ExpectSameLogits(LogitsOf(made.Save(name, InForm(made, form))), published, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Experts,
                         testing::ValuesIn(OneOfEach([](const Recipe& r) { return r.all.experts.n_experts > 0; })),
                         SmallModelName);

// transformers 5 calls every mixture "mlp".
TEST(ExpertNames, OfTransformers5) {
  for (const char* model : {"Mixtral-8x7B", "MiniMax-M2"}) {
    Made made(SmallConfig(model));
    Tensors renamed;
    for (auto& [name, tensor] : InForm(made, Form::kFused)) {
      std::string to = name;
      constexpr std::string_view kOld = "block_sparse_moe.";
      if (const size_t at = to.find(kOld); at != to.npos) to.replace(at, kOld.size(), "mlp.");
      renamed[to] = tensor;
    }
    ExpectSameLogits(LogitsOf(made.Save("renamed", renamed)), LogitsOf(made.folder / "made"), model);
  }
}

// A width of the input that is an expert's, or twice an expert's: what is beside tells how the matrices lie.
TEST(ExpertNames, SquareMatrices) {
  for (const int width : {kWidth, kWidth / 2}) {
    OrderedJson config = SmallConfig("Qwen3-30B-A3B");
    config["moe_intermediate_size"] = width;
    Made made(config);
    ASSERT_EQ(made.spec.recipe.all.experts.width, width);
    const std::vector<float> published = LogitsOf(made.folder / "made");
    for (const Form form : {Form::kFused, Form::kTransposed}) {
      ExpectSameLogits(LogitsOf(made.Save(form == Form::kFused ? "fused" : "transposed", InForm(made, form))), published, "");
    }
  }
}

TEST(ExpertNames, QuantizedAlike) {
  Made made(SmallConfig("Qwen3-30B-A3B"));
  std::vector<std::string> files;
  for (const std::string& from : {made.folder / "made", made.Save("fused", InForm(made, Form::kFused))}) {
    files.push_back(from + ".gguf");
    QuantizeOptions options;
    options.type = "q8_0";
    options.threads = 2;
    const auto report = Quantize(from, files.back(), options);
    ASSERT_TRUE(report.ok()) << report.status().message();
  }
  ExpectSameLogits(LogitsOf(files[1]), LogitsOf(files[0]), "Q8_0");
}

class Prefixes : public testing::TestWithParam<std::string> {};

TEST_P(Prefixes, WhateverTheClass) {
  Made made(SmallConfig(GetParam()));
  std::string body;
  for (const char* each : {"model.", "language_model.model.", "model.language_model."}) {
    const std::string layer = std::string(each) + "layers.0.";
    const auto first = made.tensors.lower_bound(layer);
    if (first != made.tensors.end() && first->first.starts_with(layer)) body = each;
  }
  if (body.empty() || made.split()) GTEST_SKIP() << "its names have no such prefix";
  const std::vector<float> published = LogitsOf(made.folder / "made");
  for (const std::string to : {"", "model.", "language_model.", "language_model.model.", "model.language_model."}) {
    Tensors renamed;
    for (const auto& [name, tensor] : made.tensors) {
      const bool head = name.ends_with("lm_head.weight");
      const std::string as = head ? (to == "language_model.model." ? "language_model." : "") + std::string("lm_head.weight")
                             : name.starts_with(body) ? to + name.substr(body.size())
                                                      : name;
      renamed[as] = tensor;
    }
    SCOPED_TRACE(to);
    ExpectSameLogits(LogitsOf(made.Save("to_" + to, renamed)), published, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Prefixes, testing::ValuesIn(OneOfEach([](const Recipe&) { return true; })), SmallModelName);

TEST(PrefixNames, OfTwoAtOnce) {
  Made made(SmallConfig("Qwen3-0.6B"));
  Tensors twice = made.tensors;
  for (const auto& [name, tensor] : made.tensors) {
    if (name.starts_with("model.")) twice["model.language_model." + name.substr(6)] = tensor;
  }
  ExpectSameLogits(LogitsOf(made.Save("twice", twice)), LogitsOf(made.folder / "made"), "the same twice");
  twice["model.language_model.layers.1.mlp.up_proj.weight"].values[5] += 1;
  const auto read = ReadCheckpoint(made.Save("differ", twice));
  ASSERT_FALSE(read.ok());
  for (const char* named : {"'model.language_model.layers.1.mlp.up_proj.weight'", "'model.layers.1.mlp.up_proj.weight'"}) {
    EXPECT_NE(read.status().message().find(named), std::string::npos) << read.status().message();
  }
}

// A mixture of Qwen3.5 that was saved again without its tower, by either class.
TEST(PrefixNames, TextModelsAlone) {
  Made made(SmallConfig("Qwen3.6-35B-A3B"));
  const std::vector<float> published = LogitsOf(made.folder / "made");
  const OrderedJson whole = made.config;
  Tensors renamed;
  for (const auto& [name, tensor] : made.tensors) {
    constexpr std::string_view kBefore = "language_model.";
    renamed[name.starts_with(kBefore) ? name.substr(kBefore.size()) : name] = tensor;
  }
  for (const char* architecture : {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"}) {
    for (const bool flat : {false, true}) {
      made.config = flat ? whole["text_config"] : whole;
      made.config["architectures"] = {architecture};
      made.config["tie_word_embeddings"] = whole.value("tie_word_embeddings", false);
      made.config["model_type"] = flat ? "qwen3_5_moe_text" : "qwen3_5_moe";
      SCOPED_TRACE(made.config["architectures"].dump() + (flat ? " flat" : ""));
      for (const Tensors* names : {&made.tensors, &renamed})
        ExpectSameLogits(LogitsOf(made.Save("again", *names)), published, "");
    }
  }
}

}  // namespace
}  // namespace tally
