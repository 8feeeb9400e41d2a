// SPDX-License-Identifier: Apache-2.0
// Sound files of models that cannot be: tensors that are missing, extra or misshapen, hyper-parameters that make no sense.
#include <cmath>
#include <limits>
#include <utility>

#include "tests/models/spec_tools.h"
#include "tests/models/synthetic_files.h"
#include "tests/siege/siege.h"

namespace tally::siege {
namespace {

using namespace synthetic;

auto File(const Inventory& inventory) {
  return [bytes = GgufOf(inventory).Make()](const TempFolder& folder) { return folder.Write("m.gguf", bytes); };
}

auto Directory(const Inventory& inventory) {
  return [inventory](const TempFolder& folder) {
    folder.Write("config.json", ConfigOf(inventory));
    folder.Write("model.safetensors", SafetensorsOf(HeaderOf(inventory, 0, inventory.tensors.size())));
    return folder.path();
  };
}

// config.json has the JSON value `text` under a key: what no MetaValue can be.
auto WithJson(const Inventory& inventory, const std::string& key, const char* text) {
  return [=](const TempFolder& folder) {
    const std::string path = Directory(inventory)(folder);
    nlohmann::json config = nlohmann::json::parse(ConfigOf(inventory));
    config[key] = nlohmann::json::parse(text);
    folder.Write("config.json", config.dump());
    return path;
  };
}

Inventory Reshaped(Inventory inventory, std::string_view name, std::vector<uint64_t> shape, DType type = DType::kF32) {
  for (StoredTensor& t : inventory.tensors) {
    if (t.name != name) continue;
    t.shape = std::move(shape);
    t.dtype = type;
    t.bytes = StoredBytes(type, t.elements()).value_or(0);
  }
  return inventory;
}

Inventory Added(Inventory inventory, const std::string& name, std::vector<uint64_t> shape) {
  inventory = WithTensor(std::move(inventory), name, std::move(shape));
  inventory.tensors.back().bytes = *StoredBytes(DType::kF32, inventory.tensors.back().elements());
  return inventory;
}

std::string KnownToGguf() {
  std::string known;
  for (const Family* family : Families()) {
    for (const std::string_view name : family->gguf_architectures) known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return known;
}

}  // namespace

std::vector<Case> TensorCases() {
  return {
      {"NoneAtAll",
       [](const TempFolder& folder) {
         Inventory none = HfLlama();
         none.tensors.clear();
         return Directory(none)(folder);
       },
       "DIR: tensor 'model.embed_tokens.weight' [11, 12] is missing (llama needs it)"},
      {"MissingInGguf", File(WithoutTensors(GgufLlama(), "blk.2.ffn_up.weight")),
       "DIR/m.gguf: tensor 'blk.2.ffn_up.weight' [20, 12] is missing (llama needs it)"},
      {"MissingInSafetensors", Directory(WithoutTensors(HfLlama(), "model.layers.0.mlp.up_proj.weight")),
       "DIR: tensor 'model.layers.0.mlp.up_proj.weight' [20, 12] is missing (llama needs it)"},
      {"EmbeddingMissing", File(WithoutTensors(GgufLlama(), "token_embd.weight")),
       "DIR/m.gguf: tensor token_embd.weight is missing"},
      {"ExtraInGguf", File(Added(GgufLlama(), "blk.3.attn_norm.weight", {12})),
       "DIR/m.gguf: tensor 'blk.3.attn_norm.weight' [12] has no place in a llama model of 3 layers as its metadata describes it"},
      {"ExtraInSafetensors", Directory(Added(HfLlama(), "model.layers.0.self_attn.q_proj.extra", {2, 12})),
       "DIR/model.safetensors: tensor 'model.layers.0.self_attn.q_proj.extra' [2, 12] has no place in a llama model of 3 layers "
       "as its metadata describes it"},
      {"MisshapenInGguf", File(Reshaped(GgufLlama(), "blk.1.attn_k.weight", {12, 13})),
       "DIR/m.gguf: tensor 'blk.1.attn_k.weight' has shape [12, 13]; expected [12, 12]"},
      {"MisshapenInSafetensors", Directory(Reshaped(HfLlama(), "model.norm.weight", {12, 1})),
       "DIR/model.safetensors: tensor 'model.norm.weight' has shape [12, 1]; expected [12]"},
      {"Transposed", File(Reshaped(GgufLlama(), "blk.0.ffn_up.weight", {12, 20})),
       "DIR/m.gguf: tensor 'blk.0.ffn_up.weight' has shape [12, 20]; expected [20, 12]"},
      {"OfNoElements", Directory(Reshaped(HfLlama(), "model.norm.weight", {0})),
       "DIR/model.safetensors: tensor 'model.norm.weight' has shape [0]; expected [12]"},
      {"EmbeddingAVector", File(Reshaped(GgufLlama(), "token_embd.weight", {132})),
       "DIR/m.gguf: tensor token_embd.weight must be a matrix of 1 to 67108864 rows"},
      {"OfTypeThatCannotRun", Directory(Reshaped(HfLlama(), "model.norm.weight", {12}, DType::kI64)),
       "DIR/model.safetensors: tensor 'model.norm.weight' has type I64, which cannot be run; expected F32, F16 or BF16"},
      {"QuantisedVector", File(Reshaped(GgufGptOss(), "output_norm.weight", {64}, DType::kQ8_0)),
       "DIR/m.gguf: tensor 'output_norm.weight' has type Q8_0, which cannot be run; expected F32, F16 or BF16"},
      {"OfTypeThatIsOnlyStored", File(Reshaped(GgufGptOss(), "blk.1.ffn_up_exps.weight", {5, 32, 64}, DType::kQ8_1)),
       "DIR/m.gguf: tensor 'blk.1.ffn_up_exps.weight' has type Q8_1, which cannot be run; expected " + WeightTypeNames()},
      {"OfEightBitFloats", Directory(Reshaped(HfLlama(), "model.layers.0.mlp.up_proj.weight", {20, 12}, DType::kF8_E4M3)),
       "DIR: tensor 'model.layers.0.mlp.up_proj.weight_scale_inv' is missing, the scales of F8_E4M3 weights"},
      {"TiedHeadOfAnotherType",
       Directory(Reshaped(With(HfLlama(), "tie_word_embeddings", true), "lm_head.weight", {11, 12}, DType::kBF16)),
       "DIR/model.safetensors: tensor 'lm_head.weight' differs from 'model.embed_tokens.weight', yet tie_word_embeddings is "
       "true: "
       "set it to false to use the stored head, or remove the tensor"},
  };
}

std::vector<Case> HyperParameterCases() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  const std::string kEps = "llama.attention.layer_norm_rms_epsilon";
  const auto gguf = [](const std::string& key, MetaValue value) { return File(With(GgufLlama(), key, std::move(value))); };
  const auto hf = [](const std::string& key, MetaValue value) { return Directory(With(HfLlama(), key, std::move(value))); };
  const auto oss = [](const std::string& key, MetaValue value) { return Directory(With(HfGptOss(), key, std::move(value))); };
  return {
      // Families.
      {"ArchitectureUnknown", gguf("general.architecture", std::string("fly")),
       "DIR/m.gguf: general.architecture 'fly' is not supported; known: " + KnownToGguf()},
      {"ArchitectureOfStateSpaces", gguf("general.architecture", std::string("mamba")),
       "DIR/m.gguf: general.architecture 'mamba' is not supported: it is counted from its config.json and not run: it has "
       "Mamba's "
       "layers, with a decay for each channel and state"},
      {"ArchitectureOfLinearAttention", hf("architectures", std::vector<std::string>{"MiniMaxText01ForCausalLM"}),
       "DIR/config.json: architecture 'MiniMaxText01ForCausalLM' is not supported: it has linear-attention layers"},
      {"ArchitectureOfControlCharacters", gguf("general.architecture", std::string("a\n\x1b[2J")),
       "DIR/m.gguf: general.architecture 'a\\n\\x1b[2J' is not supported; known: " + KnownToGguf()},
      {"ArchitectureMissing", File(Without(GgufLlama(), "general.architecture")),
       "DIR/m.gguf: required key general.architecture is missing"},
      {"ArchitectureANumber", hf("architectures", int64_t{7}),
       "DIR/config.json: key 'architectures': expected an array of strings, found an integer"},
      {"ArchitecturesEmpty", Directory(Without(Without(HfLlama(), "architectures"), "model_type")),
       "DIR/config.json: neither architectures nor model_type says what model this is"},
      // NaN and infinity.
      {"EpsilonNan", gguf(kEps, kNan),
       "DIR/m.gguf: llama.attention.layer_norm_rms_epsilon is nan; expected a positive finite number"},
      {"EpsilonInfinite", gguf(kEps, kInf),
       "DIR/m.gguf: llama.attention.layer_norm_rms_epsilon is inf; expected a positive finite number"},
      {"EpsilonNegative", gguf(kEps, -1e-5),
       "DIR/m.gguf: llama.attention.layer_norm_rms_epsilon is -1e-05; expected a positive finite number"},
      {"EpsilonZero", hf("rms_norm_eps", 0.0), "DIR/config.json: rms_norm_eps is 0; expected a positive finite number"},
      {"EpsilonTooSmallForF32", hf("rms_norm_eps", 1e-300),
       "DIR/config.json: rms_norm_eps is 1e-300; expected a positive finite number"},
      {"RopeThetaNan", gguf("llama.rope.freq_base", kNan),
       "DIR/m.gguf: llama.rope.freq_base is nan; expected a positive finite number"},
      {"RopeThetaInfinite", gguf("llama.rope.freq_base", kInf),
       "DIR/m.gguf: llama.rope.freq_base is inf; expected a positive finite number"},
      {"RopeThetaBeyondF32", hf("rope_theta", 1e300), "DIR/config.json: rope_theta is 1e+300; expected a positive finite number"},
      {"RopeFactorNan", File(With(GgufGptOss(), "gpt-oss.rope.scaling.factor", kNan)),
       "DIR/m.gguf: gpt-oss.rope.scaling.factor is nan; expected a positive finite number"},
      {"SwigluLimitNegative", oss("swiglu_limit", -7.0),
       "DIR/config.json: swiglu_limit is -7; expected a positive finite number"},
      // Sizes.
      {"LayersZero", hf("num_hidden_layers", int64_t{0}), "DIR/config.json: num_hidden_layers is 0; expected 1 to 4096"},
      {"LayersNegative", hf("num_hidden_layers", int64_t{-1}), "DIR/config.json: num_hidden_layers is -1; expected 1 to 4096"},
      {"LayersMoreThanStored", gguf("llama.block_count", int64_t{4}),
       "DIR/m.gguf: tensor 'blk.3.attn_norm.weight' [12] is missing (llama needs it)"},
      {"LayersFewerThanStored", gguf("llama.block_count", int64_t{2}),
       "DIR/m.gguf: tensor 'blk.2.attn_norm.weight' [12] has no place in a llama model of 2 layers as its metadata describes it"},
      {"LayersBeyondAnyModel", gguf("llama.block_count", int64_t{UINT32_MAX}),
       "DIR/m.gguf: llama.block_count is 4294967295; expected 1 to 4096"},
      {"LayersAFraction", hf("num_hidden_layers", 2.5),
       "DIR/config.json: key 'num_hidden_layers': expected an integer that fits 64 signed bits, found a number (2.500000)"},
      {"LayersAText", hf("num_hidden_layers", std::string("three")),
       "DIR/config.json: key 'num_hidden_layers': expected an integer that fits 64 signed bits, found a string"},
      {"LayersMissing", Directory(Without(HfLlama(), "num_hidden_layers")),
       "DIR/config.json: required key num_hidden_layers is missing"},
      {"WidthBeyond64Bits", hf("hidden_size", uint64_t{UINT64_MAX}),
       "DIR/config.json: key 'hidden_size': expected an integer that fits 64 signed bits, found an integer "
       "(18446744073709551615)"},
      {"ContextZero", gguf("llama.context_length", int64_t{0}),
       "DIR/m.gguf: llama.context_length is 0; expected 1 to 2147483647"},
      {"FeedForwardOtherThanStored", gguf("llama.feed_forward_length", int64_t{21}),
       "DIR/m.gguf: tensor 'blk.0.ffn_gate.weight' has shape [20, 12]; expected [21, 12]"},
      // Heads.
      {"HeadsZero", hf("num_attention_heads", int64_t{0}), "DIR/config.json: num_attention_heads is 0; expected 1 to 65536"},
      {"HeadsZeroInGguf", gguf("llama.attention.head_count", int64_t{0}),
       "DIR/m.gguf: llama.attention.head_count is 0; expected 1 to 65536"},
      {"KeyValueHeadsZero", hf("num_key_value_heads", int64_t{0}),
       "DIR/config.json: num_key_value_heads is 0; expected 1 to 65536"},
      {"HeadsDoNotDivideTheWidth", Directory(With(Without(HfLlama(), "head_dim"), "num_attention_heads", int64_t{5})),
       "DIR/config.json: width 12 cannot be divided among 5 heads"},
      {"KeyValueHeadsDoNotDivideTheHeads", hf("num_key_value_heads", int64_t{3}),
       "DIR/config.json: 4 attention heads cannot share 3 key-value heads evenly"},
      {"KeyValueHeadsMoreThanHeads", hf("num_key_value_heads", int64_t{8}),
       "DIR/config.json: 4 attention heads cannot share 8 key-value heads evenly"},
      {"HeadsTooWide", Directory(With(With(HfLlama(), "num_attention_heads", int64_t{65536}), "head_dim", int64_t{65536})),
       "DIR/config.json: 65536 attention heads of 65536 are wider than 16777216"},
      {"HeadDimZero", hf("head_dim", int64_t{0}), "DIR/config.json: head_dim is 0; expected 1 to 65536"},
      // Rope.
      {"RopeDimensionOdd", gguf("llama.rope.dimension_count", int64_t{5}),
       "DIR/m.gguf: rope turns 5 of a head's 6 dimensions; expected an even number, at most all"},
      {"RopeDimensionLargerThanHeadDim", gguf("llama.rope.dimension_count", int64_t{8}),
       "DIR/m.gguf: rope turns 8 of a head's 6 dimensions; expected an even number, at most all"},
      {"RopeDivisorsZero", File(GgufLlama()), "DIR/m.gguf: rope: frequency factor 0 is not a positive number"},
      {"HeadDimOddUnderRope", hf("head_dim", int64_t{5}),
       "DIR/config.json: rope turns 5 of a head's 5 dimensions; expected an even number, at most all"},
      {"RopeScalingUnknown", hf("rope_scaling.rope_type", std::string("ntk")),
       "DIR/config.json: rope_scaling.rope_type 'ntk' is not supported"},
      {"RopeScalingWithoutFactor", hf("rope_scaling.rope_type", std::string("linear")),
       "DIR/config.json: required key rope_scaling.factor is missing"},
      {"YarnBetasTheWrongWayRound", oss("rope_scaling.beta_slow", 33.0),
       "DIR: rope: YaRN's beta_slow is more than its beta_fast"},
      // Values of no kind that a hyper-parameter has.
      {"WidthAnObject", WithJson(HfLlama(), "hidden_size", R"({"text": 12})"),
       "DIR/config.json: key 'hidden_size': expected an integer that fits 64 signed bits, found an object"},
      {"WidthAnArray", WithJson(HfLlama(), "hidden_size", "[12]"),
       "DIR/config.json: key 'hidden_size': expected an integer that fits 64 signed bits, found an array of integers"},
      {"LayerTypesNested", WithJson(HfGptOss(), "layer_types", R"([["full_attention"], ["full_attention"], ["full_attention"]])"),
       "DIR/config.json: key 'layer_types': expected an array of strings, found an array of arrays or objects"},
      {"LayerTypesOfSeveralKinds", WithJson(HfGptOss(), "layer_types", R"(["full_attention", 1, null])"),
       "DIR/config.json: key 'layer_types': expected an array of strings, found an array of several kinds or of null"},
      {"EndTokensNested", WithJson(HfLlama(), "eos_token_id", "[[1]]"), "DIR/config.json: eos_token_id is not a token id"},
      // Experts.
      {"TopKMoreThanExperts", oss("num_experts_per_tok", int64_t{6}),
       "DIR/config.json: num_experts_per_tok is 6; expected 1 to 5"},
      {"TopKZero", oss("num_experts_per_tok", int64_t{0}), "DIR/config.json: num_experts_per_tok is 0; expected 1 to 5"},
      {"TopKMoreThanExpertsInGguf", File(With(GgufGptOss(), "gpt-oss.expert_used_count", int64_t{6})),
       "DIR/m.gguf: gpt-oss.expert_used_count is 6; expected 1 to 5"},
      {"ExpertsZero", oss("num_local_experts", int64_t{0}), "DIR/config.json: num_local_experts is 0; expected 1 to 65536"},
      {"ExpertsMoreThanStored", oss("num_local_experts", int64_t{6}),
       "DIR/model.safetensors: tensor 'model.layers.0.mlp.router.weight' has shape [5, 64]; expected [6, 64]"},
      {"WindowZero", oss("sliding_window", int64_t{0}), "DIR/config.json: sliding_window is 0; expected 1 to 2147483647"},
      {"LayerTypesTooFew", oss("layer_types", std::vector<std::string>{"full_attention"}),
       "DIR/config.json: layer_types lists 1 layers of 3"},
      // Vocabulary.
      {"VocabularySmallerThanTheEmbedding", hf("vocab_size", int64_t{10}),
       "DIR/model.safetensors: tensor 'model.embed_tokens.weight' has shape [11, 12]; expected [10, 12]"},
      {"VocabularyLargerThanTheEmbedding", hf("vocab_size", int64_t{12}),
       "DIR/model.safetensors: tensor 'model.embed_tokens.weight' has shape [11, 12]; expected [12, 12]"},
      {"VocabularyZero", hf("vocab_size", int64_t{0}), "DIR/config.json: vocab_size is 0; expected 1 to 67108864"},
      {"EndTokenNegative", hf("eos_token_id", int64_t{-2}), "DIR/config.json: eos_token_id names token -2 of a vocabulary of 11"},
      {"GgufVocabularySmallerThanTheEmbedding", gguf("llama.vocab_size", uint64_t{10}),
       "DIR/m.gguf: vocab_size is 10, but token_embd.weight has 11 rows"},
      {"GgufVocabularyLargerThanTheEmbedding", gguf("llama.vocab_size", uint64_t{4294967295}),
       "DIR/m.gguf: llama.vocab_size is 4294967295; expected 1 to 67108864"},
      {"GgufTokensMoreThanTheEmbedding", gguf("tokenizer.ggml.tokens", std::vector<std::string>(12, "a")),
       "DIR/m.gguf: tokenizer.ggml.tokens lists 12 tokens, but token_embd.weight has 11 rows"},
      {"EndTokenAText", hf("eos_token_id", std::string("</s>")), "DIR/config.json: eos_token_id is not a token id"},
  };
}

}  // namespace tally::siege
