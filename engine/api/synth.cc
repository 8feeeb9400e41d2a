#include "engine/api/synth.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>
#include <vector>

#include "engine/api/synth_noise.h"
#include "loaders/loaders.h"

namespace tally {
namespace {

enum class Fill : uint8_t { kNoise, kOnes, kLlama3Factors };

struct Tensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // outermost first
  Fill fill = Fill::kNoise;
  float deviation = 0;
};

// Shapes as published: openai/gpt-oss-20b config.json; meta-llama Llama-3.2-1B and Llama-3.1-8B; gpt2 and gpt2-xl.
enum class Arch : uint8_t { kGptOss, kLlama, kGpt2 };
struct Shape {
  std::string_view name;
  Arch arch;
  int32_t layers, d_model, d_ff, heads, kv_heads, head_dim, vocab, context;
  int32_t experts, top_k;
  bool tied;
  double rope_factor;  // llama3 scaling
};
constexpr std::array<Shape, 5> kShapes = {{
    {"gpt-oss-20b", Arch::kGptOss, 24, 2880, 2880, 64, 8, 64, 201088, 131072, 32, 4, false, 0},
    {"llama-3.2-1b", Arch::kLlama, 16, 2048, 8192, 32, 8, 64, 128256, 131072, 0, 0, true, 32},
    {"llama-3.1-8b", Arch::kLlama, 32, 4096, 14336, 32, 8, 128, 128256, 131072, 0, 0, false, 8},
    {"gpt2", Arch::kGpt2, 12, 768, 3072, 12, 12, 64, 50257, 1024, 0, 0, true, 0},
    {"gpt2-xl", Arch::kGpt2, 48, 1600, 6400, 25, 25, 64, 50257, 1024, 0, 0, true, 0},
}};
constexpr std::array<std::string_view, 5> kNames = {kShapes[0].name, kShapes[1].name, kShapes[2].name, kShapes[3].name,
                                                    kShapes[4].name};

// The divisors that the published Llama 3 scaling gives each rotated pair, as converters store them (rope_freqs.weight):
// low_freq_factor 1, high_freq_factor 4, original context 8192 (Llama 3.1 reference code, apply_scaling).
float Llama3Factor(int32_t pair, int32_t head_dim, double scale) {
  constexpr double kContext = 8192, kLow = 1, kHigh = 4, kTheta = 500000;
  const double wavelength = 2 * std::numbers::pi * std::pow(kTheta, 2.0 * pair / head_dim);
  if (wavelength < kContext / kHigh) return 1;
  if (wavelength > kContext / kLow) return static_cast<float>(scale);
  const double smooth = (kContext / wavelength - kLow) / (kHigh - kLow);
  return static_cast<float>(1 / ((1 - smooth) / scale + smooth));
}

class Planner {
 public:
  Planner(const Shape& shape, DType type) : s_(shape), type_(type) {
    if (s_.arch == Arch::kGptOss) GptOss();
    if (s_.arch == Arch::kLlama) Llama();
    if (s_.arch == Arch::kGpt2) Gpt2();
  }
  std::vector<Tensor> Take() { return std::move(tensors_); }

 private:
  // Deviation 1 / sqrt(inputs) keeps the scale of what a matrix is applied to, so activations stay finite in any depth.
  static float Unit(uint64_t inputs) { return 1 / std::sqrt(static_cast<float>(inputs)); }

  void Add(std::string name, DType dtype, std::vector<uint64_t> shape, float deviation) {
    tensors_.push_back({std::move(name), dtype, std::move(shape), Fill::kNoise, deviation});
  }
  void Matrix(const std::string& name, uint64_t out, uint64_t in) { Add(name + ".weight", type_, {out, in}, Unit(in)); }
  void Bias(const std::string& name, uint64_t n) { Add(name + ".bias", DType::kF32, {n}, 0.1f); }
  void MatrixBias(const std::string& name, uint64_t out, uint64_t in) {
    Matrix(name, out, in);
    Bias(name, out);
  }
  void Ones(const std::string& name, uint64_t n) { tensors_.push_back({name + ".weight", DType::kF32, {n}, Fill::kOnes, 0}); }
  static std::string Block(int32_t i, const char* name) { return "blk." + std::to_string(i) + "." + name; }

  void GptOss() {
    const uint64_t e = s_.d_model, q = s_.heads * s_.head_dim, kv = s_.kv_heads * s_.head_dim, x = s_.experts, f = s_.d_ff;
    Add("token_embd.weight", type_, {uint64_t(s_.vocab), e}, 1.0f);
    Matrix("output", s_.vocab, e);
    Ones("output_norm", e);
    for (int32_t i = 0; i < s_.layers; ++i) {
      Ones(Block(i, "attn_norm"), e);
      Ones(Block(i, "post_attention_norm"), e);
      MatrixBias(Block(i, "attn_q"), q, e);
      MatrixBias(Block(i, "attn_k"), kv, e);
      MatrixBias(Block(i, "attn_v"), kv, e);
      MatrixBias(Block(i, "attn_output"), e, q);
      Add(Block(i, "attn_sinks.weight"), DType::kF32, {uint64_t(s_.heads)}, 1.0f);
      Add(Block(i, "ffn_gate_inp.weight"), DType::kF32, {x, e}, Unit(e));
      Bias(Block(i, "ffn_gate_inp"), x);
      for (const char* name : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
        const bool down = name == std::string_view("ffn_down_exps");
        const uint64_t rows = down ? e : f, cols = down ? f : e;
        Add(Block(i, name) + ".weight", DType::kMXFP4, {x, rows, cols}, Unit(cols));
        Add(Block(i, name) + ".bias", DType::kF32, {x, rows}, 0.1f);
      }
    }
  }

  void Llama() {
    const uint64_t e = s_.d_model, q = s_.heads * s_.head_dim, kv = s_.kv_heads * s_.head_dim, f = s_.d_ff;
    // A tied embedding is the head too: the head's scale is the one that matters.
    Add("token_embd.weight", type_, {uint64_t(s_.vocab), e}, s_.tied ? Unit(e) : 1.0f);
    if (!s_.tied) Matrix("output", s_.vocab, e);
    Ones("output_norm", e);
    tensors_.push_back({"rope_freqs.weight", DType::kF32, {uint64_t(s_.head_dim / 2)}, Fill::kLlama3Factors, 0});
    for (int32_t i = 0; i < s_.layers; ++i) {
      Ones(Block(i, "attn_norm"), e);
      Ones(Block(i, "ffn_norm"), e);
      Matrix(Block(i, "attn_q"), q, e);
      Matrix(Block(i, "attn_k"), kv, e);
      Matrix(Block(i, "attn_v"), kv, e);
      Matrix(Block(i, "attn_output"), e, q);
      Matrix(Block(i, "ffn_gate"), f, e);
      Matrix(Block(i, "ffn_up"), f, e);
      Matrix(Block(i, "ffn_down"), e, f);
    }
  }

  void Gpt2() {
    const uint64_t e = s_.d_model, f = s_.d_ff;
    Add("token_embd.weight", type_, {uint64_t(s_.vocab), e}, Unit(e));
    Add("position_embd.weight", DType::kF32, {uint64_t(s_.context), e}, 0.5f * Unit(e));
    Ones("output_norm", e);
    Bias("output_norm", e);
    for (int32_t i = 0; i < s_.layers; ++i) {
      Ones(Block(i, "attn_norm"), e);
      Bias(Block(i, "attn_norm"), e);
      MatrixBias(Block(i, "attn_qkv"), 3 * e, e);
      MatrixBias(Block(i, "attn_output"), e, e);
      Ones(Block(i, "ffn_norm"), e);
      Bias(Block(i, "ffn_norm"), e);
      MatrixBias(Block(i, "ffn_up"), f, e);
      MatrixBias(Block(i, "ffn_down"), e, f);
    }
  }

  Shape s_;
  DType type_;
  std::vector<Tensor> tensors_;
};

// general.file_type of llama.cpp's enumeration: what most of the file is.
int64_t FileType(DType type, bool experts) {
  if (experts) return 38;  // MXFP4 experts
  switch (type) {
    case DType::kF32: return 0;
    case DType::kF16: return 1;
    case DType::kQ4_0: return 2;
    case DType::kQ8_0: return 7;
    case DType::kBF16: return 32;
    default: return 38;
  }
}

void SetMetadata(const Shape& s, DType type, GgufWriter& writer) {
  const std::string arch = s.arch == Arch::kGptOss ? "gpt-oss" : s.arch == Arch::kLlama ? "llama" : "gpt2";
  auto set = [&](const char* key, int64_t value) { writer.Set(arch + "." + key, value); };
  auto set_float = [&](const char* key, double value) { writer.Set(arch + "." + key, value); };
  writer.Set("general.architecture", arch);
  writer.Set("general.name", std::string(s.name) + " (synthetic)");
  writer.Set("general.file_type", FileType(type, s.experts > 0));
  if (GetDTypeInfo(type).quantised || s.experts > 0) writer.Set("general.quantization_version", int64_t{2});
  set("block_count", s.layers);
  set("context_length", s.context);
  set("embedding_length", s.d_model);
  set("feed_forward_length", s.d_ff);
  set("attention.head_count", s.heads);
  set("vocab_size", s.vocab);
  if (s.arch == Arch::kGpt2) {
    set_float("attention.layer_norm_epsilon", 1e-5);
    return;
  }
  set("attention.head_count_kv", s.kv_heads);
  set("attention.key_length", s.head_dim);
  set("attention.value_length", s.head_dim);
  set_float("attention.layer_norm_rms_epsilon", 1e-5);
  set("rope.dimension_count", s.head_dim);
  set_float("rope.freq_base", s.arch == Arch::kGptOss ? 150000 : 500000);
  if (s.arch == Arch::kGptOss) {
    set("expert_count", s.experts);
    set("expert_used_count", s.top_k);
    set("expert_feed_forward_length", s.d_ff);
    set("attention.sliding_window", 128);
    writer.Set(arch + ".rope.scaling.type", std::string("yarn"));
    set_float("rope.scaling.factor", 32);
    set("rope.scaling.original_context_length", 4096);
  }
}

// Copies the tokenizer.* keys of another GGUF; words that the model has beyond them become unused tokens named as llama.cpp's
// converter names them.
Status CopyVocabulary(const std::string& path, int32_t vocab, GgufWriter& writer) {
  constexpr int64_t kUnused = 5;  // tokenizer.ggml.token_type
  TALLY_ASSIGN_OR_RETURN(const Inventory source, ReadGguf(path));
  TALLY_ASSIGN_OR_RETURN(const auto tokens, source.metadata.GetStrings("tokenizer.ggml.tokens"));
  if (!tokens.has_value()) return BadInput(path + ": no tokenizer.ggml.tokens to copy");
  if (tokens->size() > static_cast<size_t>(vocab)) {
    return BadInput(path + ": its vocabulary has " + std::to_string(tokens->size()) + " tokens, and the model has room for " +
                    std::to_string(vocab));
  }
  const size_t n = static_cast<size_t>(vocab);
  for (const auto& [key, value] : source.metadata.values()) {
    if (!key.starts_with("tokenizer.")) continue;
    MetaValue copy = value;
    if (key == "tokenizer.ggml.tokens") {
      auto words = *tokens;
      while (words.size() < n) words.push_back("[PAD" + std::to_string(words.size()) + "]");
      copy = std::move(words);
    } else if (auto* types = std::get_if<std::vector<int64_t>>(&copy); types && key == "tokenizer.ggml.token_type") {
      types->resize(n, kUnused);
    } else if (auto* scores = std::get_if<std::vector<double>>(&copy)) {
      if (key == "tokenizer.ggml.scores") scores->resize(n, -1000.0);
    }
    writer.Set(key, std::move(copy));
  }
  return {};
}

struct Plan {
  Shape shape;
  std::vector<Tensor> tensors;
  GgufWriter writer;
  SynthReport report;
};

Result<Plan> MakePlan(std::string_view model, const SynthOptions& options) {
  const auto found = std::find_if(kShapes.begin(), kShapes.end(), [&](const Shape& s) { return s.name == model; });
  if (found == kShapes.end()) {
    std::string known;
    for (const std::string_view name : kNames) known += (known.empty() ? "" : ", ") + std::string(name);
    return BadInput("'" + std::string(model) + "' is not a model whose shapes are built in: " + known);
  }
  if (options.layers < 0 || options.layers > found->layers || options.vocab < 0 || options.vocab > found->vocab) {
    return BadInput("a smaller " + std::string(model) + " has 1 to " + std::to_string(found->layers) + " layers and 1 to " +
                    std::to_string(found->vocab) + " words");
  }
  Plan plan{*found, {}, {}, {}};
  if (options.layers > 0) plan.shape.layers = options.layers;
  if (options.vocab > 0) plan.shape.vocab = options.vocab;
  SetMetadata(plan.shape, options.type, plan.writer);
  if (options.vocab_from.empty()) {
    plan.writer.Set("tokenizer.ggml.model", std::string("no_vocab"));
  } else {
    TALLY_RETURN_IF_ERROR(CopyVocabulary(options.vocab_from, plan.shape.vocab, plan.writer));
  }
  plan.tensors = Planner(plan.shape, options.type).Take();
  for (const Tensor& t : plan.tensors) {
    uint64_t elements = 1;
    for (const uint64_t d : t.shape) elements *= d;
    if (t.fill != Fill::kLlama3Factors) plan.report.parameters += elements;
    ++plan.report.tensors;
    plan.writer.AddTensor(t.name, t.dtype, t.shape);
  }
  plan.report.bytes = plan.writer.TotalBytes();
  return plan;
}

}  // namespace

std::span<const std::string_view> SynthModels() { return kNames; }

Result<DType> ParseSynthType(std::string_view name) {
  std::string known;
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kMXFP4}) {
    const std::string_view other = DTypeName(t);
    auto same = [](char a, char b) {
      return std::toupper(static_cast<unsigned char>(a)) == std::toupper(static_cast<unsigned char>(b));
    };
    if (std::equal(name.begin(), name.end(), other.begin(), other.end(), same)) return t;
    known += (known.empty() ? "" : ", ") + std::string(other);
  }
  return BadInput("'" + std::string(name) + "' is not a type that weights can be written in: " + known);
}

Result<SynthReport> PlanSynth(std::string_view model, const SynthOptions& options) {
  TALLY_ASSIGN_OR_RETURN(const Plan plan, MakePlan(model, options));
  return plan.report;
}

Result<SynthReport> Synthesize(std::string_view model, const std::string& path, const SynthOptions& options) {
  TALLY_ASSIGN_OR_RETURN(const Plan plan, MakePlan(model, options));
  NoisePools noise(options.seed);
  auto fill = [&](size_t index, uint64_t offset, std::span<uint8_t> piece) {
    const Tensor& t = plan.tensors[index];
    if (t.fill == Fill::kNoise) return noise.Fill(index, t.dtype, t.deviation, offset, piece);
    for (size_t i = 0; i < piece.size(); ++i) {  // small vectors: byte by byte, wherever a piece begins
      const uint64_t at = offset + i;
      const float value =
          t.fill == Fill::kOnes ? 1.0f : Llama3Factor(static_cast<int32_t>(at / 4), plan.shape.head_dim, plan.shape.rope_factor);
      uint8_t bytes[4];
      std::memcpy(bytes, &value, 4);
      piece[i] = bytes[at % 4];
    }
  };
  TALLY_RETURN_IF_ERROR(plan.writer.Write(path, fill, options.progress));
  return plan.report;
}

}  // namespace tally
