// SPDX-License-Identifier: Apache-2.0
#include "models/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "counters/books/books.h"
#include "counters/books/closed_form.h"
#include "counters/books/weight_table.h"
#include "loaders/loaders.h"
#include "tests/models/spec_tools.h"

namespace tally {
namespace {

using synthetic::AllSynthetic;
using synthetic::Bound;
using synthetic::ExpectBadInput;
using synthetic::MustRead;
using synthetic::With;
using synthetic::Without;
using synthetic::WithoutTensors;
using synthetic::WithTensor;

// The tensors' own elements, U8 parts of MXFP4 counted as elements, less buffers.
uint64_t StoredParameters(const Inventory& inventory, const ModelSpec& spec) {
  uint64_t sum = 0;
  for (const StoredTensor& t : inventory.tensors) {
    const bool buffer = std::find(spec.buffers.begin(), spec.buffers.end(), t.name) != spec.buffers.end();
    const bool not_run = std::find(spec.not_run.begin(), spec.not_run.end(), t.name) != spec.not_run.end();
    if (buffer || not_run || t.name.starts_with("rope_f") || t.name.ends_with("_scales") || t.name.ends_with("_scale_inv")) {
      continue;
    }
    sum += t.name.ends_with("_blocks") ? 2 * t.elements() : t.elements();
  }
  return sum;
}

void ExpectAccountsAgree(const Inventory& inventory, const ModelSpec& spec) {
  const std::vector<WeightInfo> table = books::WeightTable(inventory, spec);
  const books::ParameterCounts counted = books::CountParameters(table, spec.recipe.all.experts.top_k),
                               closed = books::ClosedFormCounts(spec.recipe);
  // Tensor by tensor, by name.
  std::map<std::string, uint64_t> forms;
  for (const books::ParameterForm& p : books::ParameterForms(spec.recipe)) {
    if (!p.apart()) forms[(p.layer < 0 ? "" : "blk." + std::to_string(p.layer) + ".") + p.name] = p.count.value();
  }
  for (const WeightInfo& w : table) EXPECT_EQ(forms.count(w.name) == 1 ? forms[w.name] : 0, w.parameters()) << w.name;
  EXPECT_EQ(forms.size(), table.size());
  EXPECT_EQ(counted.total, closed.total);
  EXPECT_EQ(counted.active_all, closed.active_all);
  EXPECT_EQ(counted.active_head, closed.active_head);
  EXPECT_EQ(counted.active_none, closed.active_none);
  EXPECT_EQ(counted.total, StoredParameters(inventory, spec));
  uint64_t bytes = 0, stored = 0;
  for (const WeightInfo& w : table) bytes += w.stored_bytes;
  for (const StoredTensor& t : inventory.tensors) stored += t.bytes;
  for (const auto* names : {&spec.buffers, &spec.not_run}) {
    for (const std::string& name : *names) stored -= inventory.Find(name)->bytes;
  }
  for (const StoredTensor& t : inventory.tensors) stored -= t.name.starts_with("rope_f") ? t.bytes : 0;
  EXPECT_EQ(bytes, stored);
}

TEST(Registry, NamesAreUnique) {
  std::set<std::string_view> gguf, hf, types, names;
  for (const Family* f : Families()) {
    EXPECT_TRUE(names.insert(f->name).second);
    for (const std::string_view a : f->gguf_architectures) EXPECT_TRUE(gguf.insert(a).second) << a;
    for (const std::string_view a : f->hf_architectures) EXPECT_TRUE(hf.insert(a).second) << a;
    for (const std::string_view a : f->hf_model_types) EXPECT_TRUE(types.insert(a).second) << a;
  }
  EXPECT_GE(names.size(), 8u);
}

TEST(Registry, UnknownArchitectures) {
  ExpectBadInput(With(synthetic::GgufLlama(), "general.architecture", std::string("fly")),
                 {"made-up/weights", "'fly'", "gpt2", "llama", "gpt-oss"});
  const Inventory no_type = Without(synthetic::HfLlama(), "model_type");
  ExpectBadInput(
      With(no_type, "architectures", std::vector<std::string>{"FlyForCausalLM"}),
      {"config.json", "'FlyForCausalLM'", "GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM", "GptOssForCausalLM"});
  ExpectBadInput(Without(synthetic::GgufLlama(), "general.architecture"), {"general.architecture is missing"});
  const Inventory no_architectures = Without(synthetic::HfLlama(), "architectures");
  EXPECT_EQ(MustRead(no_architectures).recipe.family, "llama");
  ExpectBadInput(With(no_architectures, "model_type", std::string("evil\nname")), {"model_type 'evil\\nname'", "gpt_oss"});
  ExpectBadInput(Without(no_architectures, "model_type"), {"neither architectures nor model_type"});
}

// Architectures that are known and do not run are refused with the reason, by each of their names, in either format.
TEST(Registry, UnsupportedAreRefusedWithTheReason) {
  const auto gguf = [](std::string_view name) { return With(synthetic::GgufLlama(), "general.architecture", std::string(name)); };
  const auto of_type = [](std::string_view name) {
    return With(Without(synthetic::HfLlama(), "architectures"), "model_type", std::string(name));
  };
  const auto of_class = [](std::string_view name) {
    return With(Without(synthetic::HfLlama(), "model_type"), "architectures", std::vector{std::string(name)});
  };
  const auto reason = [](std::string_view name, std::string_view why) {
    return "'" + std::string(name) + "' is not supported: " + std::string(why);
  };
  for (const UnsupportedArchitecture& u : UnsupportedArchitectures()) {
    for (const char* const rest : {"", "2"}) {
      std::string hf(u.hf), name(u.gguf);
      if (hf.find('*') != hf.npos) hf.replace(hf.find('*'), 1, rest);
      if (name.find('*') != name.npos) name.replace(name.find('*'), 1, rest);
      EXPECT_NE(hf, "");
      ExpectBadInput(of_class(hf), {reason(hf, u.why)});
      if (!name.empty()) ExpectBadInput(gguf(name), {reason(name, u.why)});
    }
  }
  // model_type, as it is spelled there.
  for (const auto& [type, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"zamba2", "it has state-space layers"},
           {"minimax_text_01", "it has linear-attention layers"},
           {"recurrent_gemma", "it has recurrent layers"},
           {"mimo_v2_flash", "it is a mixture of experts without a reader"},
           {"hy_v3", "it is a mixture of experts without a reader"},
           {"bailing_moe", "it is a mixture of experts without a reader"},
           {"gemma3n_text", "it has several residual streams"}}) {
    ExpectBadInput(of_type(type), {reason(type, why)});
  }
  ExpectBadInput(of_class("MiniMaxM9ForCausalLM"), {"known: "});
  for (const Family* f : Families()) {
    const std::string not_run = "it is counted from its config.json and not run: it has " + std::string(f->not_run);
    EXPECT_EQ(CountedInGguf(*f).empty(), f->not_run.empty()) << f->name;
    for (const std::string_view name : CountedInGguf(*f)) ExpectBadInput(gguf(name), {reason(name, not_run)});
    for (const auto names : {f->hf_architectures, f->hf_model_types, f->gguf_architectures}) {
      for (const std::string_view name : names) EXPECT_TRUE(WhyUnsupported(name).empty() || !f->not_run.empty()) << name;
    }
  }
}

// Families that are only counted are refused by name, with the reason, whatever else the file has.
TEST(Registry, CountedOnlyIsRefused) {
  size_t refused = 0;
  for (const Family* f : Families()) {
    if (f->not_run.empty()) continue;
    ++refused;
    const std::string reason =
        "a model of family " + std::string(f->name) + " is counted and not run: it has " + std::string(f->not_run);
    for (const std::string_view name : f->hf_architectures) {
      ExpectBadInput(With(Without(synthetic::HfLlama(), "model_type"), "architectures", std::vector{std::string(name)}),
                     {reason});
    }
    for (const std::string_view name : f->hf_model_types) {
      ExpectBadInput(With(Without(synthetic::HfLlama(), "architectures"), "model_type", std::string(name)),
                     {"config.json", reason});
    }
  }
  EXPECT_EQ(refused, 9u);
}

// Buffers that nothing reads have no number that a model uses: transformers computes them anew, whatever is stored, or skips them.
TEST(Families, BuffersAreComputedAnew) {
  const std::set<std::string> computed = {
      "inv_freq",    "original_inv_freq", "cos_cached",   "sin_cached",     "cos_cache", "sin_cache",
      "masked_bias", "position_ids",      "causal_mask",  "bias",           "mask",      "attn_rot_embd",
      "input_scale", "activation_scale",  "output_scale", "input_scale_ub", "k_scale",   "v_scale"};
  std::set<std::string> families;
  for (const auto& [name, inventory] : AllSynthetic()) {
    SCOPED_TRACE(name);
    const ModelSpec spec = MustRead(inventory);
    families.insert(spec.recipe.family);
    for (const std::string& buffer : spec.buffers) {
      EXPECT_TRUE(computed.contains(buffer.substr(buffer.rfind('.') + 1))) << buffer;
    }
    if (inventory.format == FileFormat::kGguf) continue;
    for (const char* const number : {"model.layers.0.mlp.act_fn.beta", "model.layers.0.mlp.alpha", "model.embed_scale"}) {
      ExpectBadInput(WithTensor(inventory, number, {1}), {number, "has no place"});
    }
  }
  EXPECT_GT(families.size(), 3u);
}

TEST(Families, AccountsAgree) {
  for (const auto& [name, inventory] : AllSynthetic()) {
    SCOPED_TRACE(name);
    ExpectAccountsAgree(inventory, MustRead(inventory));
  }
}

// A number that is out of range, or of the wrong type, is an error that names its key.
TEST(Config, RangesAndTypes) {
  const std::vector<std::pair<Inventory, std::vector<std::string>>> cases = {
      {synthetic::HfGpt2(), {"n_layer", "n_embd", "n_head", "n_positions", "vocab_size"}},
      {synthetic::GgufGpt2(), {"gpt2.block_count", "gpt2.embedding_length", "gpt2.attention.head_count", "gpt2.context_length"}},
      {synthetic::HfLlama(),
       {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
        "vocab_size", "max_position_embeddings"}},
      {synthetic::GgufLlama(),
       {"llama.block_count", "llama.embedding_length", "llama.attention.head_count", "llama.attention.head_count_kv",
        "llama.attention.key_length", "llama.feed_forward_length", "llama.context_length"}},
      {synthetic::HfGptOss(),
       {"num_hidden_layers", "num_local_experts", "num_experts_per_tok", "intermediate_size", "sliding_window"}},
      {synthetic::GgufGptOss(),
       {"gpt-oss.expert_count", "gpt-oss.expert_used_count", "gpt-oss.expert_feed_forward_length",
        "gpt-oss.attention.sliding_window"}}};
  for (const auto& [inventory, keys] : cases) {
    for (const std::string& key : keys) {
      SCOPED_TRACE(key);
      for (const int64_t value : {int64_t{0}, int64_t{-1}, int64_t{INT64_MAX}, int64_t{INT64_MIN}, int64_t{UINT32_MAX}}) {
        ExpectBadInput(With(inventory, key, value), {key, "expected 1 to"});
      }
      ExpectBadInput(With(inventory, key, std::string("many")), {key});
    }
  }
}

TEST(Config, MissingKeysAreNamed) {
  const std::vector<std::pair<Inventory, std::vector<std::string>>> cases = {
      {synthetic::HfGpt2(), {"n_layer", "n_embd", "n_head"}},
      {synthetic::GgufGpt2(),
       {"gpt2.block_count", "gpt2.embedding_length", "gpt2.attention.head_count", "gpt2.context_length",
        "gpt2.attention.layer_norm_epsilon"}},
      {synthetic::HfLlama(), {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"}},
      {synthetic::GgufLlama(),
       {"llama.block_count", "llama.embedding_length", "llama.attention.head_count", "llama.feed_forward_length",
        "llama.context_length", "llama.attention.layer_norm_rms_epsilon"}},
      {synthetic::HfGptOss(), {"num_local_experts", "num_experts_per_tok", "rope_scaling.rope_type"}},
      {synthetic::GgufGptOss(),
       {"gpt-oss.expert_count", "gpt-oss.expert_used_count", "gpt-oss.attention.sliding_window", "gpt-oss.rope.scaling.factor"}}};
  for (const auto& [inventory, keys] : cases) {
    for (const std::string& key : keys)
      ExpectBadInput(Without(inventory, key), {inventory.metadata.source + ": required key " + key + " is missing"});
  }
}

// Context and vocabulary have the defaults of the published configuration classes. A vocabulary, or learned positions, of another
// size than the tensors' are refused.
TEST(Config, DefaultsOfThePublishedClasses) {
  const std::string key = "max_position_embeddings";
  EXPECT_EQ(MustRead(Without(synthetic::HfLlama(), key)).recipe.context, 2048);
  const Inventory mistral = With(synthetic::HfLlama(), "model_type", std::string("mistral"));
  EXPECT_EQ(MustRead(Without(mistral, key)).recipe.context, 131072);
  EXPECT_EQ(MustRead(Without(synthetic::HfGptOss(), key)).recipe.context, 131072);
  ExpectBadInput(Without(synthetic::HfLlama(), "vocab_size"), {"embed_tokens", "expected [32000, "});
  ExpectBadInput(Without(synthetic::HfGptOss(), "vocab_size"), {"expected [201088, 64]"});
  ExpectBadInput(Without(synthetic::HfGpt2(), "n_positions"), {"wpe", "expected [1024, 8]"});
  ExpectBadInput(Without(synthetic::HfGpt2(), "vocab_size"), {"wte", "expected [50257, 8]"});
}

// A token beyond the vocabulary can never be drawn. A tokenizer of a GGUF file tells it itself.
TEST(Config, EndTokensBeyondTheVocabularyAreNoted) {
  const Inventory hf = synthetic::HfLlama(), gguf = synthetic::GgufLlama();  // 11 tokens
  ModelSpec spec = MustRead(With(hf, "generation_config.eos_token_id", std::vector<int64_t>{2, 11, 50256}));
  EXPECT_EQ(spec.recipe.eos_tokens, std::vector<int32_t>{2});
  const std::string which = "its generation_config.eos_token_id names token ", rest = " of a vocabulary of 11, which is ignored";
  EXPECT_EQ(spec.notes, (std::vector<std::string>{which + "11" + rest, which + "50256" + rest}));
  spec = MustRead(With(gguf, "tokenizer.ggml.eos_token_id", uint64_t{11}));
  EXPECT_EQ(spec.recipe.eos_tokens, std::vector<int32_t>{});
  EXPECT_EQ(spec.notes.size(), gguf.metadata.Has("tokenizer.ggml.tokens") ? 0u : 1u);
  EXPECT_EQ(MustRead(hf).notes, std::vector<std::string>{});
}

TEST(Config, RealNumbers) {
  for (const double value :
       {0.0, -1e-5, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), 1e300, 1e-300}) {
    ExpectBadInput(With(synthetic::HfLlama(), "rms_norm_eps", value), {"rms_norm_eps", "positive finite"});
    ExpectBadInput(With(synthetic::HfLlama(), "rope_theta", value), {"rope_theta", "positive finite"});
    ExpectBadInput(With(synthetic::GgufGpt2(), "gpt2.attention.layer_norm_epsilon", value),
                   {"layer_norm_epsilon", "positive finite"});
    ExpectBadInput(With(synthetic::HfGptOss(), "swiglu_limit", value), {"swiglu_limit", "positive finite"});
    ExpectBadInput(With(synthetic::GgufGptOss(), "gpt-oss.rope.scaling.factor", value),
                   {"rope.scaling.factor", "positive finite"});
  }
}

TEST(Config, Heads) {
  ExpectBadInput(With(synthetic::HfLlama(), "num_key_value_heads", int64_t{3}), {"4 attention heads", "3 key-value heads"});
  ExpectBadInput(With(synthetic::HfLlama(), "head_dim", int64_t{5}), {"rope", "5 dimensions"});
  ExpectBadInput(With(Without(synthetic::HfLlama(), "head_dim"), "num_attention_heads", int64_t{5}), {"width 12", "5 heads"});
  ExpectBadInput(With(synthetic::GgufLlama(), "llama.rope.dimension_count", int64_t{8}), {"rope turns 8", "6 dimensions"});
  ExpectBadInput(With(synthetic::GgufLlama(), "llama.attention.value_length", int64_t{4}), {"value_length"});
  ExpectBadInput(With(synthetic::HfGpt2(), "n_head", int64_t{3}), {"width 8", "3 heads"});
  ExpectBadInput(With(synthetic::HfGptOss(), "num_experts_per_tok", int64_t{6}), {"num_experts_per_tok", "1 to 5"});
  ExpectBadInput(With(synthetic::GgufGptOss(), "gpt-oss.expert_used_count", int64_t{6}), {"expert_used_count", "1 to 5"});
}

TEST(Gpt2, HuggingFace) {
  for (const std::string prefix : {"", "transformer."}) {
    const ModelSpec spec = MustRead(synthetic::HfGpt2(prefix));
    const Recipe& r = spec.recipe;
    EXPECT_EQ(r.family, "gpt2");
    EXPECT_EQ(r.n_layers, 2);
    EXPECT_EQ(r.all.ffn.width, 32);  // n_inner is null: 4 widths
    EXPECT_EQ(r.all.attention.head_dim, 4);
    EXPECT_EQ(r.all.attention.n_kv_heads, 2);
    EXPECT_EQ(r.context, 16);
    EXPECT_EQ(r.norm, NormKind::kLayer);
    EXPECT_TRUE(r.learned_positions && r.all.attention.fused_qkv && r.all.attention.q_bias && r.all.attention.k_bias &&
                r.all.attention.v_bias && r.all.attention.o_bias && r.all.ffn.bias && r.tied_head);
    EXPECT_FALSE(r.all.network.gated || r.all.attention.qk_norm != QkNormKind::kNone || r.all.attention.sinks);
    EXPECT_EQ(r.rope.style, RopeStyle::kNone);
    EXPECT_EQ(r.all.network.activation, ActivationKind::kGeluTanh);
    EXPECT_EQ(r.all.attention.scale, 0.5f);
    EXPECT_EQ(r.layers[1].attention.scale, 0.5f);
    EXPECT_EQ(r.eos_tokens, std::vector<int32_t>{10});
    EXPECT_EQ(spec.buffers, (std::vector<std::string>{prefix + "h.0.attn.bias", prefix + "h.1.attn.bias"}));
    const TensorBinding* qkv = Bound(spec, Role::kQkv, 1);
    ASSERT_NE(qkv, nullptr);
    EXPECT_EQ(qkv->names, std::vector<std::string>{prefix + "h.1.attn.c_attn.weight"});
    EXPECT_EQ(qkv->storage, Storage::kTransposed);
    EXPECT_EQ(qkv->shape, (std::vector<uint64_t>{24, 8}));
    EXPECT_EQ(Bound(spec, Role::kHead), nullptr);
  }
}

TEST(Gpt2, AttentionScales) {
  const Inventory base = synthetic::HfGpt2();
  const Recipe plain = MustRead(With(base, "scale_attn_weights", false)).recipe;
  EXPECT_EQ(plain.layers[0].attention.scale, 1.0f);
  const Recipe by_layer = MustRead(With(base, "scale_attn_by_inverse_layer_idx", true)).recipe;
  EXPECT_EQ(by_layer.layers[0].attention.scale, 0.5f);
  EXPECT_EQ(by_layer.layers[1].attention.scale, 0.25f);
}

TEST(Gpt2, Activations) {
  const Inventory base = synthetic::HfGpt2();
  EXPECT_EQ(MustRead(With(base, "activation_function", std::string("gelu"))).recipe.all.network.activation,
            ActivationKind::kGeluErf);
  EXPECT_EQ(MustRead(With(base, "activation_function", std::string("gelu_pytorch_tanh"))).recipe.all.network.activation,
            ActivationKind::kGeluTanh);
  ExpectBadInput(With(base, "activation_function", std::string("relu")), {"activation_function", "'relu'", "not supported"});
}

TEST(Gpt2, Heads) {
  const Inventory with_head = WithTensor(synthetic::HfGpt2("transformer."), "lm_head.weight", {11, 8});
  EXPECT_FALSE(MustRead(With(with_head, "tie_word_embeddings", false)).recipe.tied_head);
  const ModelSpec untold = MustRead(with_head);  // a head that is stored is a head
  EXPECT_FALSE(untold.recipe.tied_head);
  EXPECT_NE(Bound(untold, Role::kHead), nullptr);
  const ModelSpec tied = MustRead(With(with_head, "tie_word_embeddings", true));
  EXPECT_TRUE(tied.recipe.tied_head);
  EXPECT_EQ(tied.not_run, std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(tied.stored_head, "lm_head.weight");
  ExpectBadInput(With(synthetic::HfGpt2(), "tie_word_embeddings", false), {"'lm_head.weight' [11, 8] is missing"});
  const Inventory gguf = synthetic::GgufGpt2();
  EXPECT_FALSE(MustRead(gguf).recipe.tied_head);
  EXPECT_TRUE(MustRead(WithoutTensors(gguf, "output.weight")).recipe.tied_head);
}

// A tied matrix may be stored under the head's name alone.
TEST(Tying, AHeadThatIsStoredAloneIsTheEmbedding) {
  const Inventory gpt2 = WithTensor(synthetic::HfGpt2(), "lm_head.weight", {11, 8});
  for (const auto& [inventory, embedding, head] :
       {std::tuple{gpt2, "wte.weight", "lm_head.weight"},  // tied by default
        {With(synthetic::HfLlama(), "tie_word_embeddings", true), "model.embed_tokens.weight", "lm_head.weight"},
        {With(synthetic::HfGptNeox(), "tie_word_embeddings", true), "gpt_neox.embed_in.weight", "embed_out.weight"}}) {
    SCOPED_TRACE(embedding);
    const Inventory alone = WithoutTensors(inventory, embedding);
    const ModelSpec spec = MustRead(alone);
    EXPECT_TRUE(spec.recipe.tied_head);
    EXPECT_EQ(Bound(spec, Role::kTokenEmbedding)->names, std::vector<std::string>{head});
    EXPECT_TRUE(spec.not_run.empty() && spec.stored_head.empty());
    ExpectAccountsAgree(alone, spec);
  }
  ExpectBadInput(WithoutTensors(synthetic::HfLlama(), "model.embed_tokens.weight"), {"model.embed_tokens.weight", "missing"});
}

TEST(Gpt2, WithoutItsQkvBiasesAFileIsNotWhole) {
  ExpectBadInput(WithoutTensors(synthetic::HfGpt2(), "*c_attn.bias"), {"c_attn.bias"});
}

TEST(Llama, HuggingFace) {
  const ModelSpec spec = MustRead(synthetic::HfLlama());
  const Recipe& r = spec.recipe;
  EXPECT_EQ(r.family, "llama");
  EXPECT_EQ(r.all.attention.head_dim, 6);
  EXPECT_EQ(r.rope.style, RopeStyle::kRotateHalf);
  EXPECT_EQ(r.rope.dim, 6);
  EXPECT_EQ(r.norm, NormKind::kRms);
  EXPECT_EQ(r.all.network.activation, ActivationKind::kSilu);
  EXPECT_FLOAT_EQ(r.norm_eps, 1e-5f);
  EXPECT_FLOAT_EQ(r.layers[2].attention.scale, 1 / std::sqrt(6.0f));
  EXPECT_FALSE(r.tied_head || r.all.attention.q_bias || r.all.attention.o_bias || r.all.ffn.bias || r.all.attention.fused_qkv);
  EXPECT_EQ(r.layers[0].attention.window, 0);
  const Recipe biased = MustRead(synthetic::HfLlama(true)).recipe;
  EXPECT_TRUE(biased.all.attention.q_bias && biased.all.attention.k_bias && biased.all.attention.v_bias &&
              biased.all.attention.o_bias && biased.all.ffn.bias);
  const Inventory tied = WithoutTensors(With(synthetic::HfLlama(), "tie_word_embeddings", true), "lm_head.weight");
  EXPECT_TRUE(MustRead(tied).recipe.tied_head);
  ExpectBadInput(WithoutTensors(synthetic::HfLlama(), "lm_head.weight"), {"lm_head.weight", "missing"});
  EXPECT_EQ(MustRead(With(synthetic::HfLlama(), "tie_word_embeddings", true)).not_run,
            std::vector<std::string>{"lm_head.weight"});
  const Inventory old = WithTensor(synthetic::HfLlama(), "model.layers.1.self_attn.rotary_emb.inv_freq", {3});
  EXPECT_EQ(MustRead(old).buffers.size(), 1u);
  ExpectBadInput(With(synthetic::HfLlama(), "hidden_act", std::string("relu")), {"hidden_act", "'relu'"});
}

TEST(Llama, RopeScaling) {
  const Inventory base = synthetic::HfLlama();
  for (const std::string p : {"rope_scaling.", "rope_parameters."}) {
    for (const std::string key : {"rope_type", "type"}) {
      Inventory inv = With(With(base, p + key, std::string("linear")), p + "factor", 4.0);
      const RopeScaling linear = MustRead(inv).recipe.rope.scaling;
      EXPECT_EQ(linear.kind, RopeScalingKind::kLinear);
      EXPECT_EQ(linear.factor, 4.0);
      EXPECT_EQ(MustRead(With(base, p + key, std::string("default"))).recipe.rope.scaling.kind, RopeScalingKind::kNone);
      ExpectBadInput(With(inv, p + key, std::string("ntk")), {p, "'ntk'", "not supported"});
    }
  }
  Inventory llama3 = With(With(base, "rope_scaling.rope_type", std::string("llama3")), "rope_scaling.factor", 8.0);
  ExpectBadInput(llama3, {"rope_scaling.low_freq_factor is missing"});
  llama3 = With(With(llama3, "rope_scaling.low_freq_factor", 1.0), "rope_scaling.high_freq_factor", 4.0);
  llama3 = With(llama3, "rope_scaling.original_max_position_embeddings", int64_t{8192});
  const RopeScaling s = MustRead(llama3).recipe.rope.scaling;
  EXPECT_EQ(s.kind, RopeScalingKind::kLlama3);
  EXPECT_EQ(s.original_context, 8192);
  EXPECT_EQ(s.high_freq_factor, 4);
  ExpectBadInput(With(llama3, "rope_scaling.low_freq_factor", 5.0), {"low_freq_factor"});
  Inventory yarn = With(With(base, "rope_scaling.type", std::string("yarn")), "rope_scaling.factor", 4.0);
  const RopeScaling y = MustRead(yarn).recipe.rope.scaling;
  EXPECT_TRUE(y.truncate);  // where the key is absent
  EXPECT_EQ(y.original_context, 64);
  EXPECT_NEAR(y.attention_factor, 0.1 * std::log(4.0) + 1, 1e-12);
  EXPECT_EQ(MustRead(With(yarn, "rope_scaling.attention_factor", 1.5)).recipe.rope.scaling.attention_factor, 1.5);
  ExpectBadInput(With(yarn, "rope_scaling.mscale", 1.0), {"mscale"});
  EXPECT_EQ(MustRead(With(Without(base, "rope_theta"), "rope_parameters.rope_theta", 5e5)).recipe.rope.theta, 5e5);
  EXPECT_EQ(MustRead(Without(base, "rope_theta")).recipe.rope.theta, 10000);
  // Where both stand there, the one of rope_parameters counts (transformers' convert_rope_params_to_dict). rope_scaling would take
  // the place of rope_parameters: it must say the same.
  const Inventory both = With(With(base, "rope_theta", 2e4), "rope_parameters.rope_theta", 5e5);
  EXPECT_EQ(MustRead(both).recipe.rope.theta, 5e5);
  ExpectBadInput(With(both, "rope_scaling.rope_type", std::string("default")),
                 {"rope_scaling and rope_parameters differ in rope_theta"});
  EXPECT_EQ(MustRead(With(both, "rope_scaling.rope_theta", 5e5)).recipe.rope.theta, 5e5);
}

TEST(Llama, Mistral) {
  Inventory inv = With(synthetic::HfLlama(), "model_type", std::string("mistral"));
  for (const LayerRecipe& layer : MustRead(inv).recipe.layers)
    EXPECT_EQ(layer.attention.window, 4096);  // MistralConfig's default
  inv = With(inv, "sliding_window", int64_t{8});
  for (const LayerRecipe& layer : MustRead(inv).recipe.layers) EXPECT_EQ(layer.attention.window, 8);
  // Llama's published classes have no window.
  EXPECT_EQ(MustRead(With(synthetic::HfLlama(), "sliding_window", int64_t{8})).recipe.layers[0].attention.window, 0);
}

// Where MistralConfig has a default, an explicit null says "none".
TEST(Llama, MistralNulls) {
  Inventory inv = With(synthetic::HfLlama(), "model_type", std::string("mistral"));
  inv.metadata.SetNull("sliding_window");
  for (const LayerRecipe& layer : MustRead(inv).recipe.layers) EXPECT_EQ(layer.attention.window, 0);
  inv = Without(inv, "num_key_value_heads");
  ExpectBadInput(inv, {"4 attention heads cannot share 8 key-value heads"});  // the default
  inv.metadata.SetNull("num_key_value_heads");
  ExpectBadInput(inv, {"k_proj", "has shape [12, 12]", "expected [24, 12]"});  // as many as there are heads
}

TEST(Llama, Gguf) {
  const Inventory inv = synthetic::GgufLlama();
  const ModelSpec spec = MustRead(inv);
  const Recipe& r = spec.recipe;
  EXPECT_EQ(r.vocab, 11);
  EXPECT_EQ(r.rope.style, RopeStyle::kAdjacentPair);
  EXPECT_TRUE(r.rope.freq_factors && r.tied_head);
  EXPECT_EQ(r.rope.theta, 500000);
  ASSERT_NE(Bound(spec, Role::kRopeFactors), nullptr);
  EXPECT_EQ(Bound(spec, Role::kRopeFactors)->shape, std::vector<uint64_t>{3});
  EXPECT_EQ(Bound(spec, Role::kQ, 0)->storage, Storage::kPlain);
  EXPECT_FALSE(MustRead(WithoutTensors(inv, "rope_freqs.weight")).recipe.rope.freq_factors);
  EXPECT_FALSE(MustRead(WithTensor(inv, "output.weight", {11, 12})).recipe.tied_head);
  Inventory linear = With(With(inv, "llama.rope.scaling.type", std::string("linear")), "llama.rope.scaling.factor", 2.0);
  EXPECT_EQ(MustRead(linear).recipe.rope.scaling.kind, RopeScalingKind::kLinear);
  const Recipe untyped = MustRead(With(inv, "llama.rope.scaling.factor", 2.0)).recipe;  // as llama.cpp has it
  EXPECT_EQ(untyped.rope.scaling.kind, RopeScalingKind::kLinear);
  EXPECT_EQ(untyped.rope.scaling.factor, 2);
  const Inventory none = With(With(inv, "llama.rope.scaling.type", std::string("none")), "llama.rope.scaling.factor", 2.0);
  EXPECT_EQ(MustRead(none).recipe.rope.scaling.kind, RopeScalingKind::kNone);
  for (const double nothing : {0.0, 1.0}) {  // as llama.cpp has it
    EXPECT_EQ(MustRead(With(linear, "llama.rope.scaling.factor", nothing)).recipe.rope.scaling.kind, RopeScalingKind::kNone);
  }
  ExpectBadInput(With(linear, "llama.rope.scaling.type", std::string("longrope")), {"rope.scaling.type", "longrope"});
  ExpectBadInput(With(inv, "llama.expert_count", int64_t{8}), {"llama.expert_used_count is missing"});
  EXPECT_EQ(MustRead(With(inv, "llama.attention.causal", true)).recipe.family, "llama");
  ExpectBadInput(With(inv, "llama.attention.causal", false), {"llama.attention.causal false is not supported"});
  ExpectBadInput(With(inv, "llama.attention.temperature_scale", 0.1), {"llama.attention.temperature_scale"});
  // Neutral values: factors of 1, caps and limits of 0, the usual scale of q.k.
  for (const auto& [key, neutral, other] : {std::tuple{"logit_scale", 1.0, 0.5},
                                            {"final_logit_softcapping", 0.0, 1.0},
                                            {"attention.scale", 1 / std::sqrt(6.0), 0.5},
                                            {"attention.clamp_kqv", 0.0, 1.0}}) {
    MustRead(With(inv, std::string("llama.") + key, neutral));
    ExpectBadInput(With(inv, std::string("llama.") + key, other), {key, "is not supported"});
  }
  Inventory biased = inv;
  for (int i = 0; i < 3; ++i) biased = WithTensor(biased, "blk." + std::to_string(i) + ".attn_q.bias", {24});
  EXPECT_TRUE(MustRead(biased).recipe.all.attention.q_bias);
  EXPECT_FALSE(MustRead(biased).recipe.all.attention.k_bias);
  ExpectBadInput(WithTensor(inv, "blk.1.attn_q.bias", {24}), {"'blk.0.attn_q.bias' [24] is missing"});
  Inventory no_embedding = WithoutTensors(inv, "token_embd.weight");
  ExpectBadInput(no_embedding, {"token_embd.weight is missing"});
}

TEST(GptOss, HuggingFace) {
  const ModelSpec spec = MustRead(synthetic::HfGptOss());
  const Recipe& r = spec.recipe;
  EXPECT_EQ(r.family, "gpt-oss");
  EXPECT_EQ(r.all.experts.n_experts, 5);
  EXPECT_EQ(r.all.experts.top_k, 2);
  EXPECT_EQ(r.all.experts.width, 32);
  EXPECT_TRUE(r.all.attention.sinks && r.all.attention.q_bias && r.all.attention.k_bias && r.all.attention.v_bias &&
              r.all.attention.o_bias && r.all.experts.router_bias && r.all.experts.bias);
  EXPECT_FALSE(r.tied_head || r.all.ffn.bias || r.all.attention.qk_norm != QkNormKind::kNone);
  EXPECT_EQ(r.all.network.activation, ActivationKind::kSwigluOai);
  EXPECT_EQ(r.all.network.swiglu_limit, 7.0f);
  EXPECT_EQ(r.all.experts.routing, RoutingRule::kTopKThenSoftmax);
  EXPECT_EQ(r.layers[0].attention.window, 8);
  EXPECT_EQ(r.layers[1].attention.window, 0);
  EXPECT_EQ(r.layers[2].attention.window, 8);
  EXPECT_TRUE(r.layers[0].sparse() && r.layers[1].sparse());
  EXPECT_EQ(r.rope.style, RopeStyle::kRotateHalf);
  EXPECT_EQ(r.rope.scaling.kind, RopeScalingKind::kYarn);
  EXPECT_FALSE(r.rope.scaling.truncate);
  EXPECT_NEAR(r.rope.scaling.attention_factor, 1.3465735902799727, 1e-12);
  EXPECT_EQ(r.eos_tokens, (std::vector<int32_t>{3, 7}));  // sorted
  const TensorBinding *gate = Bound(spec, Role::kExpertGate, 1), *up = Bound(spec, Role::kExpertUp, 1),
                      *bias = Bound(spec, Role::kExpertUpBias, 1);
  ASSERT_TRUE(gate != nullptr && up != nullptr && bias != nullptr);
  EXPECT_TRUE(gate->split == DType::kMXFP4 && up->split == DType::kMXFP4 && !bias->split);
  EXPECT_EQ(gate->rows, (RowMap{0, 1, 2}));
  EXPECT_EQ(up->rows, (RowMap{1, 1, 2}));
  EXPECT_EQ(bias->rows, (RowMap{1, 1, 2}));
  EXPECT_EQ(gate->names, (std::vector<std::string>{"model.layers.1.mlp.experts.gate_up_proj_blocks",
                                                   "model.layers.1.mlp.experts.gate_up_proj_scales"}));
  EXPECT_EQ(gate->shape, (std::vector<uint64_t>{5, 32, 64}));
  EXPECT_EQ(bias->shape, (std::vector<uint64_t>{5, 32}));
}

TEST(GptOss, HuggingFaceOptions) {
  const Inventory base = synthetic::HfGptOss();
  EXPECT_TRUE(MustRead(Without(base, "rope_scaling.truncate")).recipe.rope.scaling.truncate);
  const std::vector<LayerRecipe> layers = MustRead(Without(base, "layer_types")).recipe.layers;
  EXPECT_TRUE(layers[0].attention.window == 8 && layers[1].attention.window == 0 && layers[2].attention.window == 8);
  EXPECT_EQ(MustRead(With(Without(base, "num_experts_per_tok"), "experts_per_token", int64_t{3})).recipe.all.experts.top_k, 3);
  EXPECT_EQ(MustRead(With(base, "swiglu_limit", 5.0)).recipe.all.network.swiglu_limit, 5.0f);
  ExpectBadInput(With(base, "layer_types", std::vector<std::string>{"full_attention"}), {"layer_types lists 1 layers of 3"});
  ExpectBadInput(With(base, "layer_types", std::vector<std::string>(3, "linear_attention")),
                 {"layer_types", "'linear_attention'"});
  ExpectBadInput(With(base, "hidden_size", int64_t{48}), {"MXFP4", "48"});
  Inventory bf16 = WithoutTensors(WithoutTensors(base, "*_blocks"), "*_scales");
  for (int i = 0; i < 3; ++i)
    bf16 = WithTensor(bf16, "model.layers." + std::to_string(i) + ".mlp.experts.gate_up_proj", {5, 64, 64});
  ExpectBadInput(bf16, {"mlp.experts.down_proj", "missing"});
  // As save_pretrained writes experts that are not quantised.
  for (int i = 0; i < 3; ++i)
    bf16 = WithTensor(bf16, "model.layers." + std::to_string(i) + ".mlp.experts.down_proj", {5, 32, 64});
  const ModelSpec spec = MustRead(bf16);
  const TensorBinding *gate = Bound(spec, Role::kExpertGate, 1), *up = Bound(spec, Role::kExpertUp, 1),
                      *down = Bound(spec, Role::kExpertDown, 1);
  ASSERT_TRUE(gate != nullptr && up != nullptr && down != nullptr);
  for (const TensorBinding* b : {gate, up, down}) EXPECT_TRUE(b->storage == Storage::kTransposed && !b->split);
  EXPECT_EQ(gate->names, up->names);
  EXPECT_EQ(gate->rows, (RowMap{0, 1, 2}));
  EXPECT_EQ(up->rows, (RowMap{1, 1, 2}));
  EXPECT_TRUE(down->rows.all());
}

TEST(GptOss, Gguf) {
  const ModelSpec spec = MustRead(synthetic::GgufGptOss());
  const Recipe& r = spec.recipe;
  EXPECT_EQ(r.rope.style, RopeStyle::kRotateHalf);
  EXPECT_FALSE(r.rope.scaling.truncate);  // as published, though the file cannot say so
  EXPECT_EQ(r.rope.scaling.beta_fast, 32);
  EXPECT_EQ(r.rope.scaling.beta_slow, 1);
  EXPECT_EQ(r.rope.scaling.original_context, 4096);
  EXPECT_TRUE(r.layers[0].attention.window == 8 && r.layers[1].attention.window == 0 && r.layers[2].attention.window == 8);
  EXPECT_EQ(Bound(spec, Role::kFfnNorm, 0)->names, std::vector<std::string>{"blk.0.post_attention_norm.weight"});
  EXPECT_EQ(Bound(spec, Role::kExpertGate, 0)->storage, Storage::kPlain);
  EXPECT_EQ(MustRead(With(synthetic::GgufGptOss(), "gpt-oss.rope.scaling.yarn_beta_fast", 8.0)).recipe.rope.scaling.beta_fast, 8);
  ExpectBadInput(WithoutTensors(synthetic::GgufGptOss(), "output.weight"), {"output.weight", "missing"});
}

TEST(Qwen2Moe, BothFormats) {
  const ModelSpec hf = MustRead(synthetic::HfQwen2Moe()), gguf = MustRead(synthetic::GgufQwen2Moe());
  for (const Recipe& r : {hf.recipe, gguf.recipe}) {
    EXPECT_EQ(r.family, "qwen2-moe");
    EXPECT_EQ(r.all.experts.shared_width, 6);
    EXPECT_EQ(r.all.experts.width, 5);
    EXPECT_TRUE(r.all.experts.shared_gate && r.all.attention.q_bias && r.all.attention.k_bias && r.all.attention.v_bias &&
                !r.all.attention.o_bias);
    EXPECT_EQ(r.all.experts.routing, RoutingRule::kSoftmaxThenTopK);
    EXPECT_TRUE(r.layers[1].sparse());
  }
  EXPECT_FALSE(hf.recipe.layers[0].sparse());
  EXPECT_EQ(Bound(hf, Role::kExpertDown, 1)->names, (std::vector<std::string>{"model.layers.1.mlp.experts.0.down_proj.weight",
                                                                              "model.layers.1.mlp.experts.1.down_proj.weight",
                                                                              "model.layers.1.mlp.experts.2.down_proj.weight"}));
  EXPECT_EQ(Bound(hf, Role::kSharedExpertSigmoid, 1)->shape, (std::vector<uint64_t>{1, 8}));
  EXPECT_EQ(MustRead(With(synthetic::HfQwen2Moe(), "norm_topk_prob", true)).recipe.all.experts.routing,
            RoutingRule::kSoftmaxThenTopKRenormed);
  ExpectBadInput(With(synthetic::HfQwen2Moe(), "num_experts", int64_t{65536}),
                 {"'model.layers.1.mlp.gate.weight' has shape [3, 8]; expected [65536, 8]"});
}

TEST(Gemma3, BothFormats) {
  const ModelSpec hf = MustRead(synthetic::HfGemma3()), gguf = MustRead(synthetic::GgufGemma3());
  for (const Recipe& r : {hf.recipe, gguf.recipe}) {
    EXPECT_EQ(r.family, "gemma3");
    EXPECT_TRUE(r.all.residual.post_norms && r.tied_head && r.all.network.gated);
    EXPECT_EQ(r.all.attention.qk_norm, QkNormKind::kHead);
    EXPECT_EQ(r.all.network.activation, ActivationKind::kGeluTanh);
    EXPECT_EQ(r.embedding_scale, std::sqrt(8.0f));
    EXPECT_EQ(r.rope.theta, 1e6);
    EXPECT_EQ(r.local_rope.theta, 1e4);
    EXPECT_EQ(r.local_rope.dim, 6);
    EXPECT_EQ(r.layers[0].attention.window, 4);
    EXPECT_EQ(r.layers[0].attention.rope, LayerRope::kLocal);
  }
  EXPECT_EQ(hf.recipe.layers[1].attention.window, 0);
  EXPECT_EQ(hf.recipe.layers[1].attention.rope, LayerRope::kGlobal);
  EXPECT_EQ(gguf.recipe.layers[1].attention.rope, LayerRope::kLocal);  // one in six is global
  EXPECT_EQ(hf.recipe.all.attention.scale, 0.25f);
  EXPECT_FLOAT_EQ(gguf.recipe.all.attention.scale, 1 / std::sqrt(6.0f));
  for (const Role norm : {Role::kAttnNorm, Role::kAttnPostNorm, Role::kFfnNorm, Role::kFfnPostNorm, Role::kQNorm, Role::kKNorm}) {
    EXPECT_EQ(Bound(hf, norm, 1)->storage, Storage::kPlusOne);
    EXPECT_EQ(Bound(gguf, norm, 1)->storage, Storage::kPlain);
  }
  EXPECT_EQ(Bound(hf, Role::kOutputNorm)->storage, Storage::kPlusOne);
  // Scaling is the global layers'.
  Inventory scaled =
      With(With(synthetic::HfGemma3(), "rope_scaling.rope_type", std::string("linear")), "rope_scaling.factor", 8.0);
  EXPECT_EQ(MustRead(scaled).recipe.rope.scaling.factor, 8);
  EXPECT_EQ(MustRead(scaled).recipe.local_rope.scaling.kind, RopeScalingKind::kNone);
}

// A flag for each layer in the place of a period.
TEST(Gemma3, WindowsByLayer) {
  const Inventory inv = synthetic::GgufGemma3();
  const std::string key = "gemma3.attention.sliding_window_pattern";
  const Recipe r = MustRead(With(inv, key, std::vector<bool>{false, true})).recipe;
  EXPECT_EQ(r.layers[0].attention.window, 0);
  EXPECT_EQ(r.layers[0].attention.rope, LayerRope::kGlobal);
  EXPECT_EQ(r.layers[1].attention.window, 4);
  EXPECT_EQ(MustRead(With(inv, key, std::vector<int64_t>{1, 0})).recipe.layers[1].attention.window, 0);
  EXPECT_EQ(MustRead(With(inv, key, int64_t{1})).recipe.layers[0].attention.window, 0);
  ExpectBadInput(With(inv, key, std::vector<bool>{true}), {"sliding_window_pattern lists 1 layers of 2"});
  ExpectBadInput(With(inv, key, std::vector<int64_t>{2, 0}), {"sliding_window_pattern", "an array of booleans"});
}

TEST(Gemma3, TheTextPartOfAModelThatSees) {
  Inventory parts =
      WithTensor(synthetic::HfGemma3(true), "vision_tower.vision_model.embeddings.patch_embedding.weight", {4, 3, 2, 2});
  parts = WithTensor(parts, "multi_modal_projector.mm_input_projection_weight", {4, 8});
  const ModelSpec spec = MustRead(parts);
  EXPECT_EQ(spec.not_run.size(), 2u);
  ASSERT_EQ(spec.parts_not_run.size(), 2u);
  EXPECT_EQ(spec.parts_not_run[0].name, "vision_tower");
  EXPECT_EQ(spec.parts_not_run[0].parameters, 48u);
  EXPECT_EQ(spec.parts_not_run[1].name, "multi_modal_projector");
  EXPECT_EQ(spec.parts_not_run[1].parameters, 32u);
  // GGUF files that have the towers too.
  const ModelSpec gguf = MustRead(WithTensor(synthetic::GgufGemma3(), "v.blk.0.attn_k.weight", {4, 4}));
  EXPECT_EQ(gguf.not_run, std::vector<std::string>{"v.blk.0.attn_k.weight"});
  EXPECT_EQ(Bound(spec, Role::kQ, 1)->names, std::vector<std::string>{"language_model.model.layers.1.self_attn.q_proj.weight"});
  EXPECT_FALSE(
      MustRead(WithTensor(With(parts, "tie_word_embeddings", false), "language_model.lm_head.weight", {11, 8})).recipe.tied_head);
  const books::NotRun n = books::CountNotRun(parts, spec);
  EXPECT_EQ(n.tensors, 2u);
  EXPECT_EQ(n.parameters, 4u * 3 * 2 * 2 + 4 * 8);
  EXPECT_EQ(n.names, "vision_tower, multi_modal_projector");
  EXPECT_EQ(n.head, "");
  const Inventory with_head = WithTensor(With(parts, "tie_word_embeddings", true), "language_model.lm_head.weight", {11, 8});
  const books::NotRun copied = books::CountNotRun(with_head, MustRead(with_head));
  EXPECT_EQ(copied.parameters, n.parameters + 11 * 8);
  EXPECT_EQ(copied.names, n.names + ", language_model.lm_head.weight");
  EXPECT_EQ(copied.head, "language_model.lm_head.weight");
}

// As transformers writes such checkpoints since 4.52.
TEST(Gemma3, TheTextPartWithinTheModel) {
  Inventory parts = WithTensor(
      WithTensor(With(synthetic::HfGemma3(true), "tie_word_embeddings", false), "language_model.lm_head.weight", {11, 8}),
      "vision_tower.post_layernorm.weight", {4});
  for (StoredTensor& t : parts.tensors) {
    const std::string_view old = "language_model.";
    const bool text = t.name.starts_with(old);
    if (text) t.name.erase(0, old.size());
    if (text && t.name.starts_with("model.")) t.name = "model.language_model." + t.name.substr(6);
    if (!text) t.name = "model." + t.name;
  }
  parts.BuildIndex();
  const ModelSpec spec = MustRead(parts);
  EXPECT_EQ(Bound(spec, Role::kQ, 1)->names, std::vector<std::string>{"model.language_model.layers.1.self_attn.q_proj.weight"});
  EXPECT_EQ(Bound(spec, Role::kHead)->names, std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(spec.parts_not_run.at(0).name, "model.vision_tower");
}

TEST(GptNeox, BothFormats) {
  const ModelSpec hf = MustRead(synthetic::HfGptNeox()), gguf = MustRead(synthetic::GgufGptNeox());
  for (const Recipe& r : {hf.recipe, gguf.recipe}) {
    EXPECT_EQ(r.family, "gpt-neox");
    EXPECT_EQ(r.norm, NormKind::kLayer);
    EXPECT_TRUE(r.all.attention.q_bias && r.all.attention.k_bias && r.all.attention.v_bias && r.all.attention.o_bias &&
                r.all.ffn.bias);
    EXPECT_FALSE(r.all.network.gated || r.all.attention.fused_qkv || r.tied_head);
    EXPECT_EQ(r.all.network.activation, ActivationKind::kGeluErf);
    EXPECT_EQ(r.rope.style, RopeStyle::kRotateHalf);
    EXPECT_EQ(r.rope.dim, 2);
    EXPECT_EQ(r.all.attention.n_kv_heads, 2);
  }
  EXPECT_EQ(hf.recipe.all.residual.kind, Residual::kParallel);
  EXPECT_EQ(gguf.recipe.all.residual.kind, Residual::kSequential);
  EXPECT_EQ(hf.buffers.size(), 6u);
  EXPECT_EQ(Bound(hf, Role::kK, 1)->rows, (RowMap{4, 4, 12}));
  EXPECT_EQ(Bound(hf, Role::kVBias, 1)->rows, (RowMap{8, 4, 12}));
  EXPECT_EQ(Bound(gguf, Role::kK, 1)->rows, (RowMap{8, 8, 8}));
  EXPECT_EQ(Bound(gguf, Role::kVBias, 1)->rows, (RowMap{16, 8, 8}));
  EXPECT_EQ(MustRead(Without(synthetic::HfGptNeox(), "use_parallel_residual")).recipe.all.residual.kind, Residual::kParallel);
  EXPECT_EQ(MustRead(With(synthetic::HfGptNeox(), "hidden_act", std::string("gelu_new"))).recipe.all.network.activation,
            ActivationKind::kGeluTanh);
  EXPECT_EQ(MustRead(With(synthetic::HfGptNeox(), "tie_word_embeddings", true)).not_run,
            std::vector<std::string>{"embed_out.weight"});
}

// Real files.

const std::string kGoldens = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/";
const std::string kShared = std::string(TALLY_SOURCE_DIR) + "/../shared/";

std::vector<std::string> CheckpointsIn(const std::string& directory) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().extension() == ".gguf") found.push_back(entry.path());
    if (entry.path().filename() == "config.json") found.push_back(entry.path().parent_path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Goldens, EveryCheckpointReads) {
  const std::vector<std::string> paths = CheckpointsIn(kGoldens);
  EXPECT_GE(paths.size(), 12u);
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const Result<Inventory> inventory = ReadCheckpoint(path);
    ASSERT_TRUE(inventory.ok()) << inventory.status().message();
    const ModelSpec spec = MustRead(*inventory);
    ExpectAccountsAgree(*inventory, spec);
    EXPECT_FALSE(spec.recipe.layers.empty());
  }
}

TEST(Falcon, BothNormsOrOneInAllLayers) {
  const Result<Inventory> inventory = ReadCheckpoint(kGoldens + "falcon/falcon-b-bf16-grouped-2norms/model.gguf");
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  for (const char* name : {"blk.1.attn_norm_2.weight", "blk.1.attn_norm_2.bias"}) {
    ExpectBadInput(WithoutTensors(*inventory, name), {name, "is missing"});
  }
  ExpectBadInput(WithoutTensors(*inventory, "blk.0.attn_norm.weight"), {"blk.0.attn_norm.weight", "is missing"});
}

// More than is in the repository: other families, small published models.
TEST(SharedFiles, EveryCheckpointReadsOrSaysWhyNot) {
  if (!std::filesystem::exists(kShared + "goldens")) GTEST_SKIP() << "no " << kShared;
  int read = 0, refused = 0;
  for (const std::string directory : {"goldens", "weights"}) {
    for (const std::string& path : CheckpointsIn(kShared + directory)) {
      SCOPED_TRACE(path);
      const Result<Inventory> inventory = ReadCheckpoint(path);
      ASSERT_TRUE(inventory.ok()) << inventory.status().message();
      const std::string place = path.substr(kShared.size());
      if (place.find("gpt-nano-sort") != std::string::npos) {
        ++refused;
        ExpectBadInput(*inventory, {"c_attn.bias"});  // the file was derived without them
      } else {
        ++read;
        const ModelSpec spec = MustRead(*inventory);
        ExpectAccountsAgree(*inventory, spec);
        EXPECT_FALSE(spec.recipe.layers.empty());
      }
    }
  }
  EXPECT_GE(read, 20);
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace tally
