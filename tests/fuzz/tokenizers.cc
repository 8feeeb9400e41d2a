// SPDX-License-Identifier: Apache-2.0
// The readers of tokenizers, and what tokenizers do with text and ids.
#include <algorithm>
#include <memory>
#include <optional>

#include "engine/text/bpe.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"
#include "loaders/loaders.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"
#include "tests/models/synthetic_files.h"

namespace tally::fuzz {
namespace {

using Ids = std::vector<int32_t>;

constexpr std::string_view kText = "Hello, w\xC3\xB6rld!  1234 <s> don't\r\n\t\xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x98\x80\xFF";

std::string Streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamingDecoder decoder(tokenizer);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

// Encodes the text with every option and decodes it; nullopt where the tokenizer refuses it, in one line.
std::optional<Ids> CheckText(const Tokenizer& tokenizer, std::string_view text) {
  std::optional<Ids> plain;
  for (const bool add : {true, false}) {
    for (const bool parse : {true, false}) {
      const Result<Ids> ids = tokenizer.Encode(text, {add, parse});
      if (!ids.ok()) {
        RequireOneLine(ids.status());
        return std::nullopt;
      }
      for (const int32_t id : *ids) Require(id >= 0 && id < tokenizer.vocab_size(), "an id beyond the vocabulary");
      std::string storage;
      const std::string decoded = tokenizer.Decode(*ids);
      Require(Streamed(tokenizer, *ids) == WellFormed(decoded, &storage), "decoding piece by piece gives another text");
      if (!add && !parse) plain = *ids;
    }
  }
  return plain;
}

void CheckTokenizer(const Tokenizer& tokenizer, std::string_view more) {
  Require(tokenizer.vocab_size() > 0, "a tokenizer without tokens");
  Require(tokenizer.bos() < tokenizer.vocab_size(), "a first token beyond the vocabulary");
  for (const int32_t id : tokenizer.eos()) Require(id >= 0 && id < tokenizer.vocab_size(), "an end token beyond the vocabulary");
  for (const int32_t id : {-1, 0, tokenizer.vocab_size() - 1, tokenizer.vocab_size(), INT32_MAX, INT32_MIN})
    tokenizer.TokenBytes(id);
  Ids all(static_cast<size_t>(std::min(tokenizer.vocab_size(), 1000)));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  tokenizer.Decode(all);
  CheckText(tokenizer, kText);
  CheckText(tokenizer, more.substr(0, 500));
}

void CheckOutcome(const Result<std::unique_ptr<Tokenizer>>& made, std::string_view input) {
  if (!made.ok()) return RequireOneLine(made.status());
  if (*made != nullptr) CheckTokenizer(**made, input);
}

RawGguf ByteLevel() {
  RawGguf g;
  Bytes tokens, types, merges;
  tokens.U32(8).U64(261);
  types.U32(5).U64(261);
  for (int b = 0; b < 256; ++b) tokens.Str(AlphabetOfBytes(std::string(1, static_cast<char>(b)))), types.U32(1);
  for (const char* merged : {"he", "ll", "hell"}) tokens.Str(merged), types.U32(1);
  for (const char* special : {"<s>", "</s>"}) tokens.Str(special), types.U32(3);
  merges.U32(8).U64(3).Str("h e").Str("l l").Str("he ll");
  g.keys = {Key("general.architecture", 8, Bytes().Str("llama")),
            Key("tokenizer.ggml.model", 8, Bytes().Str("gpt2")),
            Key("tokenizer.ggml.pre", 8, Bytes().Str("gpt-2")),
            Key("tokenizer.ggml.tokens", 9, tokens),
            Key("tokenizer.ggml.token_type", 9, types),
            Key("tokenizer.ggml.merges", 9, merges),
            Key("tokenizer.ggml.bos_token_id", 4, Bytes().U32(259)),
            Key("tokenizer.ggml.eos_token_id", 4, Bytes().U32(260)),
            Key("tokenizer.ggml.add_bos_token", 7, Bytes().U8(1))};
  return g;
}

RawGguf Scored() {
  RawGguf g;
  const std::vector<std::pair<const char*, float>> words = {
      {"\xE2\x96\x81", -1},   {"h", -2},    {"e", -3}, {"l", -4}, {"o", -5}, {"he", -6}, {"ll", -7},
      {"\xE2\x96\x81he", -8}, {"hello", -9}};
  const uint64_t n = 3 + 256 + words.size();
  Bytes tokens, types, scores;
  tokens.U32(8).U64(n);
  types.U32(5).U64(n);
  scores.U32(6).U64(n);
  const auto add = [&](std::string_view text, uint32_t type, float score) {
    tokens.Str(text), types.U32(type), scores.Le(score);
  };
  add("<unk>", 2, 0), add("<s>", 3, 0), add("</s>", 3, 0);
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(b));
    add(text, 6, 0);
  }
  for (const auto& [word, score] : words) add(word, 1, score);
  g.keys = {Key("tokenizer.ggml.model", 8, Bytes().Str("llama")),
            Key("tokenizer.ggml.tokens", 9, tokens),
            Key("tokenizer.ggml.token_type", 9, types),
            Key("tokenizer.ggml.scores", 9, scores),
            Key("tokenizer.ggml.bos_token_id", 4, Bytes().U32(1)),
            Key("tokenizer.ggml.eos_token_id", 4, Bytes().U32(2)),
            Key("tokenizer.ggml.unknown_token_id", 4, Bytes().U32(0))};
  return g;
}

std::string Json(std::string_view added, std::string_view normalizer, std::string_view pre, std::string_view post,
                 std::string_view decoder, std::string_view model) {
  return R"({"version":"1.0","added_tokens":)" + std::string(added) + R"(,"normalizer":)" + std::string(normalizer) +
         R"(,"pre_tokenizer":)" + std::string(pre) + R"(,"post_processor":)" + std::string(post) + R"(,"decoder":)" +
         std::string(decoder) + R"(,"model":{"type":"BPE",)" + std::string(model) + "}}";
}

std::vector<std::string> JsonSeeds() {
  const std::string vocab =
      R"("vocab":{"a":0,"b":1,"c":2,"ab":3,"_":4,"_a":5,"<u>":6,"bc":7},"merges":["a b","_ a",["b","c"]],"unk_token":"<u>")";
  return {
      Json("[]", "null", "null", "null", R"({"type":"Fuse"})", vocab),
      Json(
          R"([{"id":8,"content":"<s>","lstrip":true,"rstrip":true,"normalized":true,"special":true}])",
          R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"_"},{"type":"Replace","pattern":{"Regex":" "},"content":"_"},{"type":"NFC"},{"type":"Lowercase"}]})",
          R"x({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{L}+|\\s+(?!\\S)"},"behavior":"Isolated","invert":false},{"type":"Digits","individual_digits":true},{"type":"Punctuation"}]})x",
          R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[8]}}})",
          R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})",
          vocab + R"(,"fuse_unk":true)") +
          std::string(kNextFile) +
          R"({"bos_token":"<s>","eos_token":{"content":"<s>"},"tokenizer_class":"LlamaTokenizerFast","add_eos_token":true})",
      Json("[]", "null", R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})", R"({"type":"ByteLevel"})",
           R"({"type":"ByteLevel"})", R"("vocab":{"a":0,"b":1,"\u0120":2,"ab":3},"merges":["a b"],"ignore_merges":true)"),
      Json(
          "[]", "null", R"({"type":"Metaspace","replacement":"_","prepend_scheme":"always","split":true})", "null",
          R"({"type":"Metaspace","replacement":"_","prepend_scheme":"always"})",
          R"("vocab":{"_":0,"a":1,"_a":2,"<0xC3>":3,"<0xA9>":4,"<u>":5},"merges":["_ a"],"byte_fallback":true,"unk_token":"<u>")")};
}

void RunGguf(std::string_view input) {
  static const Scratch scratch;
  const Result<Inventory> inventory = ReadGguf(scratch.Write("m.gguf", input));
  if (!inventory.ok()) return RequireOneLine(inventory.status());
  CheckOutcome(TokenizerFor(*inventory), input);
}

std::vector<std::string> GgufSeeds() { return {ByteLevel().Make(), Scored().Make()}; }

void RunJson(std::string_view input) {
  static const Scratch scratch;
  const std::vector<std::string_view> files = Files(input);
  if (files.size() > 1) {
    scratch.Write("tokenizer_config.json", files[1]);
  } else {
    scratch.Remove("tokenizer_config.json");
  }
  CheckOutcome(TokenizerFromJson(scratch.Write("tokenizer.json", files[0])), input);
}

// The first line: the encoding; empty, as the file's name says.
void RunRanks(std::string_view input) {
  static const Scratch scratch;
  const size_t line = std::min(input.find('\n'), input.size());
  const std::string path = scratch.Write("r50k_base.tiktoken", input.substr(std::min(line + 1, input.size())));
  CheckOutcome(TokenizerFromRanks(path, std::string(input.substr(0, line))), input);
}

std::string Base64(std::string_view bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j) word = word << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) text += i + j <= bytes.size() ? kDigits[word >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::vector<std::string> RankSeeds() {
  std::string ranks;
  int32_t rank = 0;
  for (int b = 0; b < 256; ++b) ranks += Base64(std::string(1, static_cast<char>(b))) + " " + std::to_string(rank++) + "\n";
  for (const char* merged : {"he", "ll", "hell", " w", "hello"}) ranks += Base64(merged) + " " + std::to_string(rank++) + "\n";
  return {"cl100k_base\n" + ranks, "r50k\n" + ranks, "o200k_harmony\n" + ranks, "\n" + ranks};
}

// One of each kind, sound.
struct Sound {
  std::unique_ptr<Tokenizer> byte_level, scored;
  std::vector<std::unique_ptr<Tokenizer>> json;

  Sound() {
    const Scratch scratch;
    const auto of_gguf = [&](const RawGguf& g) {
      Result<Inventory> inventory = ReadGguf(scratch.Write("m.gguf", g.Make()));
      Require(inventory.ok(), "a seed that is not read");
      Result<std::unique_ptr<Tokenizer>> made = TokenizerFor(*inventory);
      Require(made.ok() && *made != nullptr, "a seed without a tokenizer");
      return std::move(*made);
    };
    byte_level = of_gguf(ByteLevel());
    scored = of_gguf(Scored());
    for (const std::string& seed : JsonSeeds()) {
      Result<std::unique_ptr<Tokenizer>> made = TokenizerFromJson(scratch.Write("tokenizer.json", Files(seed)[0]));
      Require(made.ok(), "a seed that is not read: " + made.status().message());
      json.push_back(std::move(*made));
    }
  }
};

void RunText(std::string_view input) {
  static const Sound sound;
  std::string storage;
  const std::string_view text = WellFormed(input, &storage);
  for (const Tokenizer* whole : {sound.byte_level.get(), sound.scored.get()}) {  // they have every byte
    const std::optional<Ids> ids = CheckText(*whole, input);
    Require(ids.has_value(), "a text that is refused");
    Require(whole->Decode(*ids) == text, "encoding and decoding gives another text");
  }
  for (const auto& tokenizer : sound.json) CheckText(*tokenizer, input);
  Ids ids;  // any at all
  for (size_t i = 0; i + 2 <= input.size(); i += 2) {
    ids.push_back(static_cast<int16_t>(static_cast<uint8_t>(input[i]) | static_cast<uint8_t>(input[i + 1]) << 8));
  }
  for (const Tokenizer* t : {sound.byte_level.get(), sound.scored.get(), sound.json[0].get()}) {
    Require(Streamed(*t, ids) == WellFormed(t->Decode(ids), &storage), "decoding piece by piece gives another text");
  }
}

std::vector<std::string> TextSeeds() {
  return {std::string(kText),    "", "hello hello</s>", std::string("\0\x01\x03\x01", 4), "aaaaaaaaaaaaaaaabc_ab",
          "  \n\n  \t \xC2\x85x"};
}

}  // namespace

const Target kTokenizerGguf = {"tokenizer_gguf", RunGguf, GgufSeeds};
const Target kTokenizerJson = {"tokenizer_json", RunJson, JsonSeeds};
const Target kRanks = {"ranks", RunRanks, RankSeeds};
const Target kText = {"text", RunText, TextSeeds};

}  // namespace tally::fuzz
