// SPDX-License-Identifier: Apache-2.0
// Reading the synthetic checkpoints, as they are and with something changed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/family.h"
#include "tests/models/synthetic.h"

namespace tally::synthetic {

struct Named {
  const char* name;
  Inventory inventory;
};

inline std::vector<Named> AllSynthetic() {
  std::vector<Named> all;
  all.push_back({"hf gpt2", synthetic::HfGpt2()});
  all.push_back({"hf gpt2 prefixed", synthetic::HfGpt2("transformer.")});
  all.push_back({"gguf gpt2", synthetic::GgufGpt2()});
  all.push_back({"hf llama", synthetic::HfLlama()});
  all.push_back({"hf llama with biases", synthetic::HfLlama(true)});
  all.push_back({"gguf llama", synthetic::GgufLlama()});
  all.push_back({"hf gpt-oss", synthetic::HfGptOss()});
  all.push_back({"gguf gpt-oss", synthetic::GgufGptOss()});
  all.push_back({"hf qwen2-moe", synthetic::HfQwen2Moe()});
  all.push_back({"gguf qwen2-moe", synthetic::GgufQwen2Moe()});
  all.push_back({"hf gemma3", synthetic::HfGemma3()});
  all.push_back({"hf gemma3 of several parts", synthetic::HfGemma3(true)});
  all.push_back({"gguf gemma3", synthetic::GgufGemma3()});
  all.push_back({"hf gpt-neox", synthetic::HfGptNeox()});
  all.push_back({"gguf gpt-neox", synthetic::GgufGptNeox()});
  return all;
}

inline ModelSpec MustRead(const Inventory& inventory) {
  Result<ModelSpec> spec = ReadModelSpec(inventory);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.ok() ? std::move(spec).value() : ModelSpec{};
}

// One clear line that says all of `parts`.
inline void ExpectBadInput(const Inventory& inventory, std::vector<std::string> parts) {
  const Result<ModelSpec> spec = ReadModelSpec(inventory);
  ASSERT_FALSE(spec.ok()) << "read, though it should say " << parts.front();
  EXPECT_EQ(spec.status().code(), StatusCode::kBadInput) << spec.status().message();
  EXPECT_EQ(spec.status().message().find('\n'), std::string::npos);
  for (const std::string& part : parts) {
    EXPECT_NE(spec.status().message().find(part), std::string::npos)
        << "expected \"" << part << "\" in: " << spec.status().message();
  }
}

inline Inventory With(Inventory inventory, const std::string& key, MetaValue value) {
  inventory.metadata.Set(key, std::move(value));
  return inventory;
}

inline Inventory Without(const Inventory& inventory, const std::string& key) {
  Inventory out = inventory;
  out.metadata = Metadata();
  out.metadata.source = inventory.metadata.source;
  for (const auto& [k, v] : inventory.metadata.values()) {
    if (k != key) out.metadata.Set(k, v);
  }
  return out;
}

inline Inventory WithTensor(Inventory inventory, const std::string& name, std::vector<uint64_t> shape, DType type = DType::kF32) {
  StoredTensor t;
  t.name = name;
  t.shape = std::move(shape);
  t.dtype = type;
  inventory.tensors.push_back(std::move(t));
  inventory.BuildIndex();
  return inventory;
}

// Without the tensors of this name, or ("*ending") that end so.
inline Inventory WithoutTensors(const Inventory& inventory, std::string_view name) {
  Inventory out = inventory;
  std::erase_if(out.tensors,
                [&](const StoredTensor& t) { return name.starts_with('*') ? t.name.ends_with(name.substr(1)) : t.name == name; });
  EXPECT_LT(out.tensors.size(), inventory.tensors.size()) << name;
  out.BuildIndex();
  return out;
}

inline const TensorBinding* Bound(const ModelSpec& spec, Role role, int32_t layer = -1) {
  for (const TensorBinding& b : spec.bindings) {
    if (b.role == role && b.layer == layer) return &b;
  }
  return nullptr;
}

inline Inventory WithType(Inventory inventory, const std::string& name, DType type) {
  for (StoredTensor& t : inventory.tensors) {
    if (t.name == name) t.dtype = type;
  }
  EXPECT_NE(inventory.Find(name), nullptr) << name;
  return inventory;
}

}  // namespace tally::synthetic
