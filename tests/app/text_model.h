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

  // `spoilt`: a token whose embedding holds a NaN (-1: none).
  static Status Write(const std::string& path, int32_t spoilt = -1) {
    GgufWriter writer;
    SetMetadata(writer);
    std::vector<std::vector<float>> tensors;
    const auto add = [&](const char* name, std::vector<uint64_t> shape, float value) -> std::vector<float>& {
      uint64_t n = 1;
      for (const uint64_t d : shape) n *= d;
      writer.AddTensor(name, DType::kF32, std::move(shape));
      return tensors.emplace_back(n, value);
    };
    // A token's row is a unit vector of its own, attention and feed-forward add nothing to it, and the head reads off what
    // follows.
    constexpr uint64_t kE = kWidth, kF = 32;
    std::vector<float>& embedding = add("token_embd.weight", {kVocab, kE}, 0);
    for (size_t id = 0; id < kVocab; ++id) embedding[id * kE + id] = 1;
    if (spoilt >= 0) embedding[static_cast<size_t>(spoilt) * kE] = NAN;
    add("blk.0.attn_norm.weight", {kE}, 1);
    for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight"}) {
      add(name, {kE, kE}, 0);
    }
    add("blk.0.ffn_norm.weight", {kE}, 1);
    add("blk.0.ffn_gate.weight", {kF, kE}, 0);
    add("blk.0.ffn_up.weight", {kF, kE}, 0);
    add("blk.0.ffn_down.weight", {kE, kF}, 0);
    add("output_norm.weight", {kE}, 1);
    std::vector<float>& head = add("output.weight", {kVocab, kE}, 0);
    for (size_t id = 0; id < kVocab; ++id) head[static_cast<size_t>(Next(static_cast<int32_t>(id))) * kE + id] = 4;
    head[size_t{' '} * kE + 'z'] = 3;
    return writer.Write(path, [&](size_t tensor, uint64_t offset, std::span<uint8_t> piece) {
      std::memcpy(piece.data(), reinterpret_cast<const uint8_t*>(tensors[tensor].data()) + offset, piece.size());
    });
  }

 private:
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

  static void SetMetadata(GgufWriter& writer) {
    constexpr int64_t kNormal = 1, kControl = 3, kUnused = 5;  // tokenizer.ggml.token_type
    std::vector<std::string> tokens;
    std::vector<int64_t> types;
    for (int b = 0; b < 256; ++b) tokens.push_back(Letter(b));
    tokens.push_back("ab");
    types.assign(tokens.size(), kNormal);
    for (const char* control : {"<|begin|>", "<|end|>", "<|turn|>"}) tokens.push_back(control), types.push_back(kControl);
    while (tokens.size() < kVocab) tokens.push_back("[unused" + std::to_string(tokens.size()) + "]"), types.push_back(kUnused);
    writer.Set("general.architecture", std::string("llama"));
    writer.Set("llama.block_count", int64_t{1});
    writer.Set("llama.context_length", int64_t{kContext});
    writer.Set("llama.embedding_length", kWidth);
    writer.Set("llama.feed_forward_length", int64_t{32});
    writer.Set("llama.attention.head_count", int64_t{4});
    writer.Set("llama.attention.layer_norm_rms_epsilon", 1e-5);
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
