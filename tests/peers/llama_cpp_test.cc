// SPDX-License-Identifier: Apache-2.0
// Logits of every family beside those of llama.cpp: a small GGUF file in F32 with random weights, the same ids, every position. llama.cpp
// is npm's node-llama-cpp's (llama_cpp/package.json pins it). Prints a table of the greatest differences, as shares of the greatest logit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/studies/synth.h"
#include "loaders/loaders.h"
#include "models/family.h"
#include "tests/goldens/logits.h"
#include "tests/support/npm.h"
#include "tests/support/small_config.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

const std::string kSources = TALLY_SOURCE_DIR "/tests/peers/llama_cpp";
const std::string kInstalled = TALLY_LLAMA_CPP_DIR;
const std::string kVocabulary = TALLY_SOURCE_DIR "/models/demo/demo.gguf";

// More than a chunk of every chunked form of a recurrence (64), than the windows (5) and than the context of scaled ropes (16).
constexpr int32_t kTokens = 100;
constexpr int kPositions = 128, kWords = 1024;

enum class Outcome : uint8_t {
  kSame,     // the logits agree
  kOther,    // llama.cpp computes something else than the published model: `why` says what
  kRefused,  // llama.cpp does not load the file: `why` is part of its error
};

struct Case {
  const char* architecture;
  const char* model;     // of the catalogue
  const char* variant;   // "": as published, but for the sizes
  const char* settings;  // a JSON merge patch of its small configuration
  const char* keys;      // keys of the GGUF file that are set afterwards; a JSON object
  Outcome outcome = Outcome::kSame;
  const char* why = "";
};

constexpr const char* kNoWindow = R"({"sliding_window": null})";
// llama.cpp has heads of one size for keys and values.
constexpr const char* kEqualHeads = R"({"linear_key_head_dim": 16, "linear_value_head_dim": 16, "head_dim": 64})";
// Converters multiply the weights by these factors, and GGUF has no keys for them.
#define TALLY_NO_FACTORS                                                                                               \
  R"("attention_in_multiplier": 1, "attention_out_multiplier": 1, "embedding_multiplier": 1, "key_multiplier": 1,)"    \
  R"("lm_head_multiplier": 1, "mlp_multipliers": [1, 1], "ssm_in_multiplier": 1, "ssm_multipliers": [1, 1, 1, 1, 1],)" \
  R"("ssm_out_multiplier": 1)"
constexpr const char* kFourValueHeads =
    R"({"linear_key_head_dim": 16, "linear_value_head_dim": 16, "head_dim": 64, "linear_num_value_heads": 8})";
constexpr const char* kBamba = R"({"architectures": ["BambaForCausalLM"], "model_type": "bamba", "layer_types": null,
    "attn_layer_indices": [2, 5], "attention_multiplier": null, "embedding_multiplier": null, "residual_multiplier": null,
    "logits_scaling": null, "num_local_experts": null, "shared_intermediate_size": null, "position_embedding_type": null,
    "intermediate_size": 96, "tie_word_embeddings": false})";
constexpr const char* kGraniteSwa = R"({"architectures": ["GraniteSWAForCausalLM"], "model_type": "granite_swa",
    "sliding_window": 5, "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
    "full_attention", "sliding_attention"], "layer_rope_theta": [0, 10000000, 10000000, 10000000, 0, 10000000],
    "rope_theta": 10000000})";
constexpr const char* kBaichuan7B = R"({"architectures": ["BaiChuanForCausalLM"], "model_type": "baichuan",
    "num_hidden_layers": 32, "num_key_value_heads": null})";
constexpr const char* kBaichuan13B = R"({"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan",
    "num_hidden_layers": 40, "num_key_value_heads": null})";
constexpr const char* kNemotron4 = R"({"architectures": ["NemotronForCausalLM"], "model_type": "nemotron", "hidden_act": "relu2",
    "norm_eps": 1e-5, "partial_rotary_factor": 0.5})";
constexpr const char* kQwen1 = R"({"architectures": ["QWenLMHeadModel"], "model_type": "qwen", "layer_norm_epsilon": 1e-6,
    "num_key_value_heads": null, "seq_length": 128})";
constexpr const char* kStableLm = R"({"architectures": ["StableLmForCausalLM"], "model_type": "stablelm",
    "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "use_qkv_bias": true})";
constexpr const char* kParallelStableLm = R"({"architectures": ["StableLmForCausalLM"], "model_type": "stablelm",
    "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "use_parallel_residual": true})";
constexpr const char* kUsualBounds = R"({"rope_parameters": {"full_attention": {"beta_fast": 32}}})";
constexpr const char *kUnknown = "unknown model architecture", *kUnsupported = "unsupported model architecture";

const Case kCases[] = {
    {"apertus", "Apertus-8B", "", "{}",
     R"({"xielu.alpha_n": [-1.25, -0.5, 0.0, 0.25, 0.5, 1.5], "xielu.alpha_p": [0.5, -0.25, 1.25, 0.0, 0.75, -1.0],
         "xielu.beta": [0.5, 0.25, 0.5, 0.75, 0.5, 0.5]})"},
    {"arcee", "AFM-4.5B", "", "{}", "{}"},
    {"baichuan", "TinyLlama-1.1B", "rope", kBaichuan7B, "{}"},
    {"baichuan", "TinyLlama-1.1B", "ALiBi", kBaichuan13B, "{}"},
    {"afmoe", "Trinity-Nano", "", "{}", "{}"},
    {"bailingmoe2", "Ling-mini-2.0", "", "{}", "{}"},
    {"bailingmoe3", "Ling-3.0-tiny", "", "{}", "{}"},
    {"bailingmoe3", "Ling-3.0-tiny", "limits of SwiGLU",
     R"({"expert_swiglu_limit_list": [0, 0, 0.5, 0.25, 0, 0.125], "share_expert_swiglu_limit_list": [0, 0.25, 0, 0.5, 0, 0.125]})",
     "{}"},
    {"bailingmoe3", "Ling-3.0-tiny", "queries of one matrix", R"({"q_lora_rank": null})", "{}"},
    {"bloom", "BLOOM-560M", "", "{}", "{}"},
    {"chatglm", "GLM-4-9B", "", "{}", "{}"},
    {"cohere2", "Command-R7B", "", "{}", "{}"},
    {"cohere2moe", "North-Mini-Code", "", "{}", "{}"},
    {"cohere2moe", "North-Mini-Code", "LayerNorm, weights normed", R"({"rms_norm_eps": null, "norm_topk_prob": true})", "{}"},
    {"command-r", "Command-R", "", "{}", "{}"},
    {"deepseek", "DeepSeekMoE-16B", "", "{}", "{}"},
    // llama.cpp knows models without a compressed query by their 27 layers.
    {"deepseek2", "DeepSeek-V2-Lite", "", R"({"num_hidden_layers": 27})", "{}"},
    {"deepseek2", "DeepSeek-V2", "one group", R"({"n_group": 1, "topk_group": 1})", "{}"},
    {"deepseek2", "DeepSeek-V2", "", "{}", "{}", Outcome::kOther,
     "groups of experts are judged by their two best, as V3's; V2's published code takes the best"},
    {"deepseek2", "DeepSeek-V3", "", "{}", "{}"},
    {"deepseek2", "Kimi-K2", "", "{}", "{}"},
    {"ernie4_5", "ERNIE-4.5-0.3B", "", "{}", "{}"},
    // llama.cpp knows models with a window by their 64 layers.
    {"exaone4", "EXAONE-4.0-32B", "", R"({"num_hidden_layers": 64})", "{}"},
    {"exaone4", "EXAONE-4.0-1.2B", "", "{}", "{}"},
    // llama.cpp's latent norms have the eps of all others; the published code's have another.
    {"deepseek2", "GLM-4.7-Flash", "one eps", R"({"rms_norm_eps": 1e-6})", "{}"},
    {"dots1", "dots.llm1", "", "{}", "{}"},
    {"ernie4_5-moe", "ERNIE-4.5-21B-A3B", "", "{}", "{}"},
    {"exaone-moe", "K-EXAONE-236B-A23B", "", "{}", "{}"},
    {"falcon", "Falcon-7B", "", "{}", "{}"},
    {"falcon", "Falcon-40B", "", "{}", "{}"},
    {"falcon-h1", "Falcon-H1-0.5B", "", "{" TALLY_NO_FACTORS "}", "{}"},
    {"falcon-h1", "Falcon-H1-0.5B", "norm in 2 groups",
     R"({"mamba_rms_norm": true, "mamba_norm_before_gate": false, "mamba_n_groups": 2,)" TALLY_NO_FACTORS "}", "{}"},
    {"gemma", "Gemma-2B", "", "{}", "{}"},
    {"gemma2", "Gemma-2-9B", "", "{}", "{}"},
    {"gemma3", "Gemma-3-1B", "", "{}", "{}"},
    {"gemma3", "Gemma-3-4B", "", "{}", "{}"},
    {"gemma4", "Gemma-4-E2B", "", "{}", "{}"},
    {"gemma4", "Gemma-4-12B", "", "{}", "{}"},
    {"gemma4", "Gemma-4-26B-A4B", "", "{}", "{}"},
    {"glm4", "GLM-4-9B-0414", "", "{}", "{}"},
    {"glm4", "GLM-4-9B-0414", "M-RoPE", "{}", R"({"glm4.rope.dimension_sections": [2, 1, 1, 0]})"},
    {"glm4moe", "GLM-4.5", "", "{}", "{}"},
    {"glm4moe", "Solar-Open-100B", "", "{}", "{}"},
    {"gpt-oss", "gpt-oss-20b", "", R"({"quantization_config": null})", "{}"},
    {"gpt2", "gpt2", "", "{}", "{}"},
    {"gptneox", "Pythia-1.4B", "", "{}", "{}"},
    {"gptneox", "Pythia-1.4B", "sequential", R"({"use_parallel_residual": false})", "{}"},
    {"granite", "Granite-3.1-8B", "", "{}", "{}"},
    {"granite_swa", "Granite-3.1-8B", "windows and sinks", kGraniteSwa, "{}"},
    {"granitehybrid", "Granite-4.0-H-Tiny", "", R"({"attention_multiplier": 0.2})", "{}"},
    {"granitehybrid", "Granite-4.0-H-Tiny", "dense", R"({"attention_multiplier": 0.2, "num_local_experts": 0})", "{}"},
    {"granitehybrid", "Granite-4.0-H-Tiny", "2 groups", R"({"mamba_d_state": 24})",
     R"({"granitehybrid.ssm.group_count": 2, "granitehybrid.ssm.state_size": 12})"},
    {"granitehybrid", "Granite-4.0-H-Tiny", "as Bamba", kBamba, "{}"},
    {"granitemoe", "Granite-3.0-1B-A400M", "", "{}", "{}"},
    {"hunyuan-dense", "Hunyuan-7B", "", "{}", "{}"},
    {"hunyuan-moe", "Hunyuan-A13B", "", "{}", "{}"},
    {"internlm2", "InternLM2.5-7B", "no scaling", R"({"rope_scaling": null})", "{}"},
    {"laguna", "Laguna-XS.2", "YaRN's usual bounds", kUsualBounds, "{}"},
    {"laguna", "Laguna-XS.2", "a gate of each element",
     R"({"gating": "per-element", "rope_parameters": {"full_attention": {"beta_fast": 32}}})", "{}"},
    {"laguna", "Laguna-XS.2", "", "{}", "{}", Outcome::kOther, "yarn_beta_fast is not read in this architecture"},
    {"lfm2", "LFM2-1.2B", "", "{}", "{}"},
    {"lfm2moe", "LFM2-8B-A1B", "", "{}", "{}"},
    {"kimi-linear", "Kimi-Linear-48B-A3B", "one eps", R"({"rms_norm_eps": 1e-6})", "{}"},
    {"llama", "Llama-2-7B", "", "{}", "{}"},
    {"llama", "Llama-3.1-8B", "", "{}", "{}"},
    {"llama", "Mixtral-8x7B", "", "{}", "{}"},
    {"llama", "Mistral-7B-v0.1", "no window", kNoWindow, "{}"},
    {"llama", "Mistral-7B-v0.1", "", "{}", "{}", Outcome::kOther, "the window of attention is not applied"},
    {"llama4", "Llama-4-Scout", "", "{}", "{}"},
    {"mamba2", "Codestral-Mamba-7B", "", R"({"num_heads": 8})", "{}"},
    {"mamba2", "Codestral-Mamba-7B", "1 group", R"({"num_heads": 8, "n_groups": 1})", "{}"},
    {"minicpm", "MiniCPM-2B", "", "{}", "{}"},
    {"mistral3", "Ministral-3-8B", "", "{}", "{}"},
    {"minimax-m2", "MiniMax-M2", "", "{}", "{}"},
    {"mistral4", "Mistral-Small-4", "no scaling", R"({"rope_parameters": {"rope_type": "default"}})", "{}"},
    {"mistral4", "Mistral-Small-4", "", "{}", "{}", Outcome::kOther,
     "YaRN's magnitude, squared, multiplies q.k, as in DeepSeek's models; transformers' code does not multiply"},
    {"mpt", "MPT-7B", "", "{}", "{}"},
    {"muse-glimmer", "Muse-Glimmer-30B", "", "{}", "{}"},
    {"nemotron", "TinyLlama-1.1B", "as Nemotron-4", kNemotron4, "{}"},
    {"nemotron_h", "Nemotron-3-Nano", "dense", R"({"hybrid_override_pattern": "M-M*M-", "n_routed_experts": null})", "{}"},
    {"nemotron_h_moe", "Nemotron-3-Nano", "", "{}", "{}"},
    {"nemotron_h_moe", "Nemotron-3-Nano", "latent experts", R"({"moe_latent_size": 32})", "{}"},
    {"olmo2", "OLMo-2-7B", "", "{}", "{}"},
    {"olmo2", "Olmo-3-7B", "", "{}", "{}"},
    {"olmoe", "OLMoE-1B-7B", "", "{}", "{}"},
    {"orion", "TinyLlama-1.1B", "as Orion", R"({"architectures": ["OrionForCausalLM"], "model_type": "orion"})", "{}"},
    {"phi2", "Phi-2", "", "{}", "{}"},
    {"phi3", "Phi-3-mini-4k", "no window", kNoWindow, "{}"},
    {"phi3", "Phi-3-mini-4k", "", "{}", "{}", Outcome::kOther, "the window of attention is not applied"},
    {"phi3", "Phi-4-mini", "no window", kNoWindow, "{}"},
    {"qwen", "TinyLlama-1.1B", "as Qwen", kQwen1, "{}"},
    {"qwen2", "Qwen2-7B", "", "{}", "{}"},
    {"qwen2moe", "Qwen1.5-MoE-A2.7B", "", "{}", "{}"},
    {"qwen3", "Qwen3-4B", "", "{}", "{}"},
    {"qwen35", "Qwen3.5-4B", "", kEqualHeads, "{}"},
    {"qwen35moe", "Qwen3.6-35B-A3B", "", kFourValueHeads, "{}"},
    {"qwen3moe", "Qwen3-30B-A3B", "", "{}", "{}"},
    {"qwen3next", "Qwen3-Coder-Next", "", kEqualHeads, "{}"},
    {"qwen3vl", "Qwen3-VL-4B", "", "{}", "{}"},
    {"qwen3vlmoe", "Qwen3-VL-30B-A3B", "", "{}", "{}"},
    {"seed_oss", "Seed-OSS-36B", "", "{}", "{}"},
    {"smollm3", "SmolLM3-3B", "", "{}", "{}"},
    {"stablelm", "TinyLlama-1.1B", "as StableLM", kStableLm, "{}"},
    {"stablelm", "TinyLlama-1.1B", "parallel", kParallelStableLm, "{}"},
    {"starcoder", "StarCoder", "", "{}", "{}"},
    {"starcoder2", "StarCoder2-3B", "no window", kNoWindow, "{}"},
    {"xverse", "TinyLlama-1.1B", "renamed", R"({"architectures": ["XverseForCausalLM"], "model_type": "xverse"})", "{}"},
    // Families that llama.cpp does not run: another model's file with their names.
    {"gpt-neo", "TinyLlama-1.1B", "", "{}", R"({"general.architecture": "gpt-neo"})", Outcome::kRefused, kUnknown},
    {"gpt-j", "TinyLlama-1.1B", "", "{}", R"({"general.architecture": "gptj"})", Outcome::kRefused, kUnsupported},
    {"opt", "TinyLlama-1.1B", "", "{}", R"({"general.architecture": "opt"})", Outcome::kRefused, kUnknown},
    {"cs336", "TinyLlama-1.1B", "", "{}", R"({"general.architecture": "cs336"})", Outcome::kRefused, kUnknown},
    {"mini-gpt", "TinyLlama-1.1B", "", "{}", R"({"general.architecture": "mini-gpt"})", Outcome::kRefused, kUnknown},
};
#undef TALLY_NO_FACTORS

std::string NameOf(const Case& c) { return std::string(c.model) + (*c.variant == '\0' ? "" : ", ") + c.variant; }

// Values of a tensor at which a slip in an order, a sign or a factor shows, where synth has one number or little noise. False: synth's
// will do.
bool FillVector(const std::string& name, std::mt19937& random, std::vector<float>& values) {
  const auto has = [&](const char* part) { return name.find(part) != name.npos; };
  const auto between = [&](double from, double to) { return std::uniform_real_distribution<double>(from, to)(random); };
  for (float& v : values) {
    if (has("ssm_a") && !has("alpha")) {
      v = static_cast<float>(std::exp(between(0, std::log(16))) *
                             (v > 0 ? 1 : -1));  // as Mamba-2 is initialised; Ling 3's are positive
    } else if (has("ssm_dt.bias")) {             // the softplus of it is a step
      v = static_cast<float>(std::log(std::expm1(std::exp(between(std::log(0.001), std::log(0.1))))));
    } else if (has("norm") || has("ssm_d")) {
      v = static_cast<float>(name.ends_with(".bias") ? between(-0.3, 0.3) : between(0.5, 1.5));
    } else if (name.ends_with(".bias")) {
      v = static_cast<float>(between(-0.3, 0.3));
    } else {
      return false;
    }
  }
  return true;
}

// The file with other vectors and keys. Groups of Mamba-2 are rows of its norm.
Status Rewrite(const std::string& from, const OrderedJson& keys, const std::string& to) {
  TALLY_ASSIGN_OR_RETURN(const Inventory made, ReadGguf(from));
  TALLY_ASSIGN_OR_RETURN(const FileReader reader, FileReader::Open(from));
  GgufWriter writer;
  for (const auto& [key, value] : made.metadata.values()) {
    if (!keys.contains(key)) {
      writer.Set(key, value);
    } else if (keys[key].is_string()) {
      writer.Set(key, keys[key].get<std::string>());
    } else if (!keys[key].is_array()) {
      writer.Set(key, keys[key].get<int64_t>());
    }
  }
  for (const auto& [key, value] : keys.items()) {  // sections of M-RoPE, numbers of each layer
    if (!value.is_array()) continue;
    const bool whole = value.front().is_number_integer();
    whole ? writer.Set(key, value.get<std::vector<int64_t>>()) : writer.Set(key, value.get<std::vector<double>>());
  }
  uint64_t groups = 0;
  for (const auto& [key, value] : keys.items()) {
    if (key.ends_with(".group_count")) groups = value.get<uint64_t>();
  }
  for (const StoredTensor& t : made.tensors) {
    const bool split = groups > 0 && t.name.ends_with(".ssm_norm.weight");
    writer.AddTensor(t.name, t.dtype, split ? std::vector<uint64_t>{groups, t.elements() / groups} : t.shape);
  }
  std::vector<std::vector<float>> vectors(made.tensors.size());
  std::mt19937 random(1);
  for (size_t i = 0; i < vectors.size(); ++i) {
    std::vector<float> values(made.tensors[i].elements());
    if (made.tensors[i].name.ends_with("ssm_a")) {
      TALLY_RETURN_IF_ERROR(
          reader.ReadAt(made.tensors[i].offset, {reinterpret_cast<uint8_t*>(values.data()), values.size() * 4}));
    }
    if (made.tensors[i].dtype == DType::kF32 && FillVector(made.tensors[i].name, random, values)) vectors[i] = std::move(values);
  }
  Status read;
  const Status written = writer.Write(to, [&](size_t i, uint64_t offset, std::span<uint8_t> piece) {
    if (!vectors[i].empty()) {
      std::memcpy(piece.data(), reinterpret_cast<const uint8_t*>(vectors[i].data()) + offset, piece.size());
    } else if (Status s = reader.ReadAt(made.tensors[i].offset + offset, piece); !s.ok()) {
      read = std::move(s);
    }
  });
  return read.ok() ? written : read;
}

std::vector<int32_t> Ids() {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kTokens; ++i) ids.push_back((i * i * 7 + i * 31 + 3) % (kWords - 1));
  return ids;
}

// Writes the file of the case.
void Make(const Case& c, const TempFolder& folder, const std::string& path) {
  OrderedJson config = SmallConfig(c.model);
  OrderedJson& text = config.contains("text_config") ? config["text_config"] : config;
  text["vocab_size"] = kWords;
  if (text.contains("vocab_size_per_layer_input")) text["vocab_size_per_layer_input"] = kWords;
  for (const char* key : {"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "model_max_length"}) {
    if (text.contains(key)) text[key] = kPositions;
  }
  text.merge_patch(OrderedJson::parse(c.settings));
  SynthOptions options;
  options.type = DType::kF32;
  options.vocab_from = kVocabulary;
  const auto made = Synthesize(folder.Write("config.json", config.dump()), folder / "synth.gguf", options);
  ASSERT_TRUE(made.ok()) << NameOf(c) << ": " << made.status().message();
  const Status status = Rewrite(folder / "synth.gguf", OrderedJson::parse(c.keys), path);
  ASSERT_TRUE(status.ok()) << NameOf(c) << ": " << status.message();
}

// One process of the peer's runs all files, since its start takes longer than they do.
class LlamaCpp : public testing::TestWithParam<size_t> {
 protected:
  static void SetUpTestSuite() {
    missing_ = new std::string(InstallNpm(kSources, kInstalled, {"logits.mjs"}));
    folder_ = new TempFolder;
    if (!missing_->empty()) return;
    std::string list;
    for (const int32_t id : Ids()) list += (list.empty() ? "" : ",") + std::to_string(id);
    std::vector<std::string> files;
    const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->current_test_suite();
    for (int i = 0; i < suite.total_test_count(); ++i) {
      if (!suite.GetTestInfo(i)->should_run()) continue;
      files.push_back(FileOf(kCases[i]));
      Make(kCases[i], *folder_, files.back());
    }
    // The library may abort: the others are run without the file that it was at.
    while (!files.empty()) {
      std::string command = "cd '" + folder_->path() + "' && node '" + kInstalled + "/logits.mjs' " + list;
      for (const std::string& file : files) command += " '" + file + "'";
      const int code = Shell(command + " >log 2>&1");
      std::erase_if(files, [](const std::string& f) { return Exists(f + ".logits") || Exists(f + ".error"); });
      if (files.empty()) break;
      std::ofstream(files[0] + ".error") << "it ended with " << code << ": " << ReadAll(*folder_ / "log");
      files.erase(files.begin());
    }
  }
  static void TearDownTestSuite() {
    for (const std::string& row : *rows_) std::printf("%s\n", row.c_str());
    rows_->clear();
    delete missing_;
    delete folder_;
  }
  static void Row(const Case& c, const std::string& result) {
    rows_->push_back("| " + std::string(c.architecture) + " | " + NameOf(c) + " | " + result + " |");
  }
  static std::string FileOf(const Case& c) { return *folder_ / (std::to_string(&c - kCases) + ".gguf"); }
  static bool Exists(const std::string& path) { return std::filesystem::exists(path); }

  static std::string* missing_;
  static TempFolder* folder_;
  static std::vector<std::string>* rows_;
};
std::string* LlamaCpp::missing_ = nullptr;
TempFolder* LlamaCpp::folder_ = nullptr;
std::vector<std::string>* LlamaCpp::rows_ = new std::vector<std::string>;

TEST_P(LlamaCpp, Logits) {
  if (!missing_->empty()) GTEST_SKIP() << *missing_;
  const Case& c = kCases[GetParam()];
  const std::string path = FileOf(c), error = Exists(path + ".error") ? ReadAll(path + ".error") : "";
  if (c.outcome == Outcome::kRefused) {
    Row(c, "llama.cpp: " + error.substr(0, error.find('\n')));
    EXPECT_NE(error.find(c.why), error.npos) << error;
    return;
  }
  ASSERT_EQ(error, "");

  EngineOptions exact = Exact();
  exact.context = kPositions;
  exact.max_batch = exact.max_logit_rows = kTokens;
  const Opened opened = Open(path, exact);
  ASSERT_NE(opened.engine, nullptr);
  const std::vector<float> ours = Logits(*opened.engine, Ids(), kTokens);
  std::vector<float> theirs(ours.size());
  const std::string bytes = ReadAll(path + ".logits");
  ASSERT_EQ(bytes.size(), ours.size() * sizeof(float));
  std::memcpy(theirs.data(), bytes.data(), bytes.size());

  double greatest = 0, most = 0, sum = 0, squares = 0;
  size_t position = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double a = static_cast<double>(ours[i]), b = static_cast<double>(theirs[i]);
    greatest = std::max(greatest, std::fabs(b));
    sum += b;
    squares += b * b;
    if (!(std::fabs(a - b) <= most)) most = std::fabs(a - b), position = i / kWords;
  }
  const double n = static_cast<double>(ours.size()), spread = std::sqrt(squares / n - sum / n * (sum / n));
  EXPECT_GT(spread, greatest / 10) << "the logits say little";
  EXPECT_EQ(ReadGguf(path)->metadata.GetString("general.architecture").value().value_or(""), c.architecture);
  // llama.cpp looks GELU up in a table of f16 values. Gemma 4's norms after each block, without a residual of the same size, let it show
  // more: with the same rounding in our kernel its three models are within 4.3e-4.
  const ActivationKind activation = opened.model->recipe().all.network.activation;
  const bool table = activation == ActivationKind::kGeluErf || activation == ActivationKind::kGeluTanh;
  const double apart = most / greatest, bar = !table ? 3e-5 : std::string_view(c.architecture) == "gemma4" ? 3e-3 : 1e-3;
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%.1e", apart);
  Row(c, std::string(text.data()) + (c.outcome == Outcome::kOther ? ", llama.cpp: " + std::string(c.why) : ""));
  if (c.outcome == Outcome::kSame) {
    EXPECT_LE(apart, bar) << "most at position " << position;
  } else {
    EXPECT_GT(apart, 1e-2) << "llama.cpp agrees now: " << c.why;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LlamaCpp, testing::Range(size_t{0}, std::size(kCases)),
                         [](const testing::TestParamInfo<size_t>& c) {
                           std::string name = kCases[c.param].architecture + ("_" + NameOf(kCases[c.param]));
                           std::erase_if(name, [](char letter) { return letter == ' ' || letter == ','; });
                           std::ranges::replace_if(
                               name, [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) == 0; }, '_');
                           return name;
                         });

// llama.cpp's own grammars, as they come with node-llama-cpp.
TEST(LlamaCppGrammars, AreReadAsTheyAre) {
  if (const std::string missing = InstallNpm(kSources, kInstalled, {"logits.mjs"}); !missing.empty()) GTEST_SKIP() << missing;
  const std::map<std::string, std::pair<const char*, const char*>> texts = {
      // that are in them, and not
      {"arithmetic.gbnf", {"x*(2 )= y\n", "x=\n"}},
      {"c.gbnf", {"int f(int x){x = y+1;while(x<3){return  f(x);}//c\n}", "int f(int x){x = ;}"}},
      {"chess.gbnf", {"1. e4 e5\n2. Nf3 Nc6\n3. O-O exd5+\n", "2. e4 e5\n"}},
      {"english.gbnf", {"An [odd] \"text\".", "na\xc3\xafve"}},
      {"japanese.gbnf", {"\xe3\x81\xb2\xe3\x82\xab \xe4\xb8\x80", "a"}},
      {"json.gbnf", {"{\"a\": [1, 2.5e3, \"x\\n\"]}", "[1]"}},
      {"json_arr.gbnf", {"[\n1,\n{\"a\":null}]", "[1]"}},
      {"list.gbnf", {"- a b\n- c\n", "- a"}}};
  size_t read = 0;
  for (const auto& file : std::filesystem::directory_iterator(kInstalled + "/node_modules/node-llama-cpp/llama/grammars")) {
    const std::string name = file.path().filename().string();
    if (!name.ends_with(".gbnf")) continue;
    const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromGbnf(ReadAll(file.path().string()));
    ASSERT_TRUE(grammar.ok()) << name << ": " << grammar.status().message();
    const auto text = texts.find(name);
    if (text == texts.end()) continue;
    ++read;
    EXPECT_TRUE((*grammar)->Accepts(text->second.first)) << name;
    EXPECT_FALSE((*grammar)->Accepts(text->second.second)) << name;
  }
  EXPECT_EQ(read, texts.size());
}

TEST(LlamaCppTable, HasEveryFamily) {
  std::set<std::string> rows, wanted;
  for (const Case& c : kCases) rows.insert(c.architecture);
  for (const Family* family : Families()) {
    if (!family->not_run.empty()) continue;
    wanted.insert(family->gguf_architectures.begin(), family->gguf_architectures.end());
    if (family->gguf_architectures.empty()) wanted.emplace(family->name);
  }
  EXPECT_EQ(rows, wanted);
}

}  // namespace
}  // namespace tally
