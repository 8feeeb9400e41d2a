// SPDX-License-Identifier: Apache-2.0
// A small checkpoint that speaks: a GGUF with a byte-level BPE vocabulary and weights made so that the next token is a function
// of the last one alone. What commands do with text can be tested to the letter with it.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "loaders/loaders.h"

namespace tally {

class TextModel {
 public:
  // Ids 0 to 255 are the bytes. "ab" is the one merge.
  static constexpr int32_t kAb = 256, kBegin = 257, kEnd = 258, kTurn = 259, kVocab = 300, kContext = 1024;
  static constexpr int64_t kWidth = 304;

  // After "a" comes "b", and so on to "z" and the end token; an e with an acute accent stands between "e" and "f", as two tokens
  // of one byte. After <|turn|> comes "x", after "~" an escape character, after everything else "a". Where the end token may not be
  // drawn: a space.
  static int32_t Next(int32_t id) {
    if (id == 'e') return 0xc3;
    if (id == 0xc3) return 0xa9;
    if (id == 0xa9) return 'f';
    if (id == 'z') return kEnd;
    if (id == kAb) return 'c';
    if (id == kTurn) return 'x';
    if (id == '~') return 0x1b;
    return id >= 'a' && id < 'z' ? id + 1 : 'a';
  }

  // The same as a Qwen3.5 with a layer for multi-token prediction, which guesses right.
  static Status WritePredicting(const std::string& path) {
    GgufWriter writer;
    SetMetadata(writer, "qwen35");
    const auto set = [&](const char* key, int64_t value) { writer.Set(std::string("qwen35.") + key, value); };
    set("block_count", 3);
    set("nextn_predict_layers", 1);
    set("full_attention_interval", 2);
    for (const char* const key : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) set(key, 16);
    for (const char* const key : {"ssm.group_count", "ssm.time_step_rank"}) set(key, 1);
    for (const char* const key : {"ssm.state_size", "ssm.inner_size"}) set(key, 16);
    set("ssm.conv_kernel", 4);
    writer.Set("qwen35.rope.dimension_sections", std::vector<int64_t>{3, 3, 2, 0});
    std::vector<std::vector<float>> tensors;
    const auto add = [&](const std::string& name, std::vector<uint64_t> shape, float value) -> std::vector<float>& {
      uint64_t n = 1;
      for (const uint64_t d : shape) n *= d;
      writer.AddTensor(name, DType::kF32, std::move(shape));
      return tensors.emplace_back(n, value);
    };
    constexpr uint64_t kE = kWidth, kF = 32, kHeadWidths = 4 * 16;
    AddEmbeddingAndHead(add);
    for (const std::string block : {"blk.0.", "blk.1.", "blk.2."}) {  // a delta net, attention, and the layer, which add nothing
      for (const char* const norm : {"attn_norm.weight", "post_attention_norm.weight"}) add(block + norm, {kE}, 1);
      if (block == "blk.0.") {
        add(block + "attn_qkv.weight", {48, kE}, 0);
        for (const char* const rate : {"ssm_beta.weight", "ssm_alpha.weight"}) add(block + rate, {1, kE}, 0);
        add(block + "attn_gate.weight", {16, kE}, 0);
        add(block + "ssm_conv1d.weight", {48, 4}, 0);
        add(block + "ssm_dt.bias", {1}, 0);
        add(block + "ssm_a", {1}, -1);
        add(block + "ssm_norm.weight", {16}, 1);
        add(block + "ssm_out.weight", {kE, 16}, 0);
      } else {
        add(block + "attn_q.weight", {2 * kHeadWidths, kE}, 0);
        for (const char* const m : {"attn_k.weight", "attn_v.weight"}) add(block + m, {kHeadWidths, kE}, 0);
        for (const char* const norm : {"attn_q_norm.weight", "attn_k_norm.weight"}) add(block + norm, {16}, 1);
        add(block + "attn_output.weight", {kE, kHeadWidths}, 0);
      }
      for (const char* const m : {"ffn_gate.weight", "ffn_up.weight"}) add(block + m, {kF, kE}, 0);
      add(block + "ffn_down.weight", {kE, kF}, 0);
    }
    // The layer's output is the next token's embedding.
    std::vector<float>& joined = add("blk.2.nextn.eh_proj.weight", {kE, 2 * kE}, 0);
    for (size_t i = 0; i < kE; ++i) joined[i * 2 * kE + i] = 1;
    for (const char* const norm : {"enorm", "hnorm", "shared_head_norm"}) {
      add(std::string("blk.2.nextn.") + norm + ".weight", {kE}, 1);
    }
    return WriteTensors(writer, path, tensors);
  }

  // `spoilt`: a token whose embedding holds a NaN (-1: none).
  static Status Write(const std::string& path, int32_t spoilt = -1) {
    GgufWriter writer;
    SetMetadata(writer, "llama");
    writer.Set("llama.block_count", int64_t{1});
    std::vector<std::vector<float>> tensors;
    const auto add = [&](const char* name, std::vector<uint64_t> shape, float value) -> std::vector<float>& {
      uint64_t n = 1;
      for (const uint64_t d : shape) n *= d;
      writer.AddTensor(name, DType::kF32, std::move(shape));
      return tensors.emplace_back(n, value);
    };
    constexpr uint64_t kE = kWidth, kF = 32;
    AddEmbeddingAndHead(add);
    if (spoilt >= 0) tensors[0][static_cast<size_t>(spoilt) * kE] = NAN;
    add("blk.0.attn_norm.weight", {kE}, 1);
    for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight"}) {
      add(name, {kE, kE}, 0);
    }
    add("blk.0.ffn_norm.weight", {kE}, 1);
    add("blk.0.ffn_gate.weight", {kF, kE}, 0);
    add("blk.0.ffn_up.weight", {kF, kE}, 0);
    add("blk.0.ffn_down.weight", {kE, kF}, 0);
    return WriteTensors(writer, path, tensors);
  }

 private:
  // A token's row is a unit vector of its own, attention and feed-forward add nothing to it, and the head reads off what follows.
  template <class Add>
  static void AddEmbeddingAndHead(const Add& add) {
    constexpr uint64_t kE = kWidth;
    std::vector<float>& embedding = add("token_embd.weight", {kVocab, kE}, 0);
    for (size_t id = 0; id < kVocab; ++id) embedding[id * kE + id] = 1;
    add("output_norm.weight", {kE}, 1);
    std::vector<float>& head = add("output.weight", {kVocab, kE}, 0);
    for (size_t id = 0; id < kVocab; ++id) head[static_cast<size_t>(Next(static_cast<int32_t>(id))) * kE + id] = 4;
    head[size_t{' '} * kE + 'z'] = 3;
  }
  static Status WriteTensors(const GgufWriter& writer, const std::string& path, const std::vector<std::vector<float>>& tensors) {
    return writer.Write(path, [&](size_t tensor, uint64_t offset, std::span<uint8_t> piece) {
      std::memcpy(piece.data(), reinterpret_cast<const uint8_t*>(tensors[tensor].data()) + offset, piece.size());
    });
  }

  // The letter that stands for a byte in the vocabularies of byte-level BPE (GPT-2's bytes_to_unicode).
  static std::string Letter(int byte) {
    static const std::array<int, 256> letters = [] {
      std::array<int, 256> table{};
      for (int b = 0, next = 256; b < 256; ++b) {
        const bool itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        table[static_cast<size_t>(b)] = itself ? b : next++;
      }
      return table;
    }();
    const int code = letters[static_cast<size_t>(byte)];
    if (code < 0x80) return {static_cast<char>(code)};
    return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
  }

  static void SetMetadata(GgufWriter& writer, const std::string& architecture) {
    constexpr int64_t kNormal = 1, kControl = 3, kUnused = 5;  // tokenizer.ggml.token_type
    std::vector<std::string> tokens;
    std::vector<int64_t> types;
    for (int b = 0; b < 256; ++b) tokens.push_back(Letter(b));
    tokens.push_back("ab");
    types.assign(tokens.size(), kNormal);
    for (const char* control : {"<|begin|>", "<|end|>", "<|turn|>"}) tokens.push_back(control), types.push_back(kControl);
    while (tokens.size() < kVocab) tokens.push_back("[unused" + std::to_string(tokens.size()) + "]"), types.push_back(kUnused);
    writer.Set("general.architecture", architecture);
    writer.Set(architecture + ".context_length", int64_t{kContext});
    writer.Set(architecture + ".embedding_length", kWidth);
    writer.Set(architecture + ".feed_forward_length", int64_t{32});
    writer.Set(architecture + ".attention.head_count", int64_t{4});
    writer.Set(architecture + ".attention.layer_norm_rms_epsilon", 1e-5);
    writer.Set("tokenizer.ggml.model", std::string("gpt2"));
    writer.Set("tokenizer.ggml.pre", std::string("gpt-2"));
    writer.Set("tokenizer.ggml.tokens", tokens);
    writer.Set("tokenizer.ggml.token_type", types);
    writer.Set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    writer.Set("tokenizer.ggml.bos_token_id", int64_t{kBegin});
    writer.Set("tokenizer.ggml.eos_token_id", int64_t{kEnd});
    writer.Set("tokenizer.ggml.add_bos_token", true);
  }
};

}  // namespace tally
