// SPDX-License-Identifier: Apache-2.0
// Tokenizers that cannot be: in a GGUF file's metadata and in a tokenizer.json, each beside a model that is sound, and as ranks.
#include <cmath>
#include <cstdint>
#include <utility>

#include "tests/models/spec_tools.h"
#include "tests/models/synthetic_files.h"
#include "tests/siege/siege.h"

namespace tally::siege {
namespace {

using namespace synthetic;
using Strings = std::vector<std::string>;

const std::string kPrefix = "tokenizer.ggml.";

// Eleven tokens, as the model has: six letters, three merged, two control tokens.
Inventory ByteLevel() {
  Inventory i = WithoutTensors(GgufLlama(), "rope_freqs.weight");  // zeros here
  i.metadata.Set(kPrefix + "model", std::string("gpt2"));
  i.metadata.Set(kPrefix + "pre", std::string("gpt-2"));
  i.metadata.Set(kPrefix + "tokens", Strings{"a", "b", "c", "d", "e", "f", "ab", "cd", "abcd", "<s>", "</s>"});
  i.metadata.Set(kPrefix + "token_type", std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3});
  i.metadata.Set(kPrefix + "merges", Strings{"a b", "c d", "ab cd"});
  return i;
}

Inventory Scored() {
  Inventory i = Without(ByteLevel(), kPrefix + "merges");
  i.metadata.Set(kPrefix + "model", std::string("llama"));
  i.metadata.Set(kPrefix + "scores", std::vector<double>(11, -1.0));
  return i;
}

auto File(const Inventory& inventory) {
  return [bytes = GgufOf(inventory).Make()](const TempFolder& folder) { return folder.Write("m.gguf", bytes); };
}
auto Changed(const Inventory& inventory, const std::string& key, MetaValue value) {
  return File(With(inventory, kPrefix + key, std::move(value)));
}

}  // namespace

std::vector<Case> GgufTokenizerCases() {
  const auto bpe = [](const std::string& key, MetaValue value) { return Changed(ByteLevel(), key, std::move(value)); };
  const auto spm = [](const std::string& key, MetaValue value) { return Changed(Scored(), key, std::move(value)); };
  return {
      {"ModelUnknown", bpe("model", std::string("rwkv")),
       "DIR/m.gguf: tokenizer.ggml.model: tokenizer model 'rwkv' is not supported, expected 'gpt2', 'llama' or 'gemma4'"},
      {"ModelOfControlCharacters", bpe("model", std::string("\n\x1b]0;x\a")),
       "DIR/m.gguf: tokenizer.ggml.model: tokenizer model '\\n\\x1b]0;x\\x07' is not supported, expected 'gpt2', 'llama' or "
       "'gemma4'"},
      {"ModelANumber", bpe("model", int64_t{2}),
       "DIR/m.gguf: key 'tokenizer.ggml.model': expected a string, found an integer (2)"},
      {"PreUnknown", bpe("pre", std::string("latin")),
       "DIR/m.gguf: tokenizer.ggml.pre: pre-tokenizer 'latin' is not supported (known: gpt-2, llama-bpe, dbrx, qwen2, qwen35, "
       "gpt-4o, cl100k, o200k, tekken, deepseek-coder, deepseek-llm, deepseek-v3, starcoder, bloom, viking, kimi-k2, "
       "seed-coder, superbpe, tiny_aya, bailingmoe, exaone-moe, laguna, afmoe, youtu, minicpm5, falcon, default, and others that "
       "cut "
       "as one of these)"},
      {"TokensMissing", File(Without(ByteLevel(), kPrefix + "tokens")),
       "DIR/m.gguf: tokenizer.ggml.tokens: expected the list of tokens"},
      {"TokensEmpty", bpe("tokens", Strings{}), "DIR/m.gguf: tokenizer.ggml.tokens: expected the list of tokens"},
      {"TokensNumbers", bpe("tokens", std::vector<int64_t>{1, 2}),
       "DIR/m.gguf: key 'tokenizer.ggml.tokens': expected an array of strings, found an array of integers"},
      {"TypesTooFew", bpe("token_type", std::vector<int64_t>{1, 1}),
       "DIR/m.gguf: tokenizer.ggml.token_type: 2 types for 11 tokens"},
      {"TypeUnknown", bpe("token_type", std::vector<int64_t>{1, 1, 1, 99, 1, 1, 1, 1, 1, 3, 3}),
       "DIR/m.gguf: tokenizer.ggml.token_type: token 3 is of type 99, expected 0 to 6"},
      {"TypeNegative", bpe("token_type", std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 3, -1}),
       "DIR/m.gguf: tokenizer.ggml.token_type: token 10 is of type -1, expected 0 to 6"},
      {"SpecialTokenTooLong",
       bpe("tokens", Strings{"a", "b", "c", "d", "e", "f", "ab", "cd", "abcd", std::string(5000, 's'), "</s>"}),
       "DIR/m.gguf: tokenizer.ggml.tokens: special token 9 has 5000 bytes, at most 1024 expected"},
      {"MergesMissing", File(Without(ByteLevel(), kPrefix + "merges")),
       "DIR/m.gguf: tokenizer.ggml.merges: expected the list of merges"},
      {"MergeOfAnUnknownToken", bpe("merges", Strings{"a b", "a z"}),
       "DIR/m.gguf: tokenizer.ggml.merges: merge 1 ('a' 'z') needs the token 'z', which is not in the vocabulary"},
      {"MergeIntoAnUnknownToken", bpe("merges", Strings{"a c"}),
       "DIR/m.gguf: tokenizer.ggml.merges: merge 0 ('a' 'c') needs the token 'ac', which is not in the vocabulary"},
      {"MergeWithoutSpace", bpe("merges", Strings{"ab"}),
       "DIR/m.gguf: tokenizer.ggml.merges: merge 0 is 'ab', expected two tokens with a space between"},
      {"MergeOfNothing", bpe("merges", Strings{" "}),
       "DIR/m.gguf: tokenizer.ggml.merges: merge 0 is ' ', expected two tokens with a space between"},
      {"MergeNotUtf8", bpe("merges", Strings{"\xff \xfe"}),
       "DIR/m.gguf: tokenizer.ggml.merges: merge 0 ('\\xff' '\\xfe') needs the token '\\xff', which is not in the vocabulary"},
      {"OwnNormalizerUnknown", File(With(ByteLevel(), "tally.tokenizer.normalizer", std::string(R"({"type":"Rot13"})"))),
       "DIR/m.gguf: tally.tokenizer.normalizer: type 'Rot13' is not supported"},
      {"OwnStripBeyondTheVocabulary", File(With(ByteLevel(), "tally.tokenizer.rstrip", std::vector<int64_t>{11})),
       "DIR/m.gguf: tally.tokenizer.rstrip: token id 11, expected 0 to 10"},
      {"OwnSpaceUnknown", File(With(Scored(), "tally.tokenizer.space", std::string("last"))),
       "DIR/m.gguf: tally.tokenizer.space: expected 'first' or 'always'"},
      {"BeginTokenAddedAndNotNamed", bpe("add_bos_token", true),
       "DIR/m.gguf: tokenizer.ggml.add_bos_token: true, but there is no bos_token_id"},
      {"EndTokenAddedAndNotNamed", bpe("add_eos_token", true),
       "DIR/m.gguf: tokenizer.ggml.add_eos_token: true, but there is no eos_token_id"},
      {"ScoresTooFew", spm("scores", std::vector<double>{1, 2}),
       "DIR/m.gguf: tokenizer.ggml.scores: expected 11 scores, one for each token"},
      {"ScoreNan", spm("scores", std::vector<double>(11, NAN)),
       "DIR/m.gguf: tokenizer.ggml.scores: the score of token 0 is not a number"},
      {"ByteTokenThatIsNone", spm("token_type", std::vector<int64_t>{6, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3}),
       "DIR/m.gguf: tokenizer.ggml.tokens: byte token 0 is 'a', expected <0x00> to <0xFF>"},
  };
}

namespace {

// The parts of a tokenizer.json; each is the text of a JSON value.
struct Parts {
  std::string vocab = R"({"a":0,"b":1,"c":2,"ab":3,"<u>":4})", merges = R"(["a b"])", model = R"("unk_token":"<u>")",
              added = "[]";
  std::string normalizer = "null", pre = "null", post = "null", decoder = R"({"type":"Fuse"})", type = "BPE";

  std::string Text() const {
    return R"({"version":"1.0","added_tokens":)" + added + R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" + pre +
           R"(,"post_processor":)" + post + R"(,"decoder":)" + decoder + R"(,"model":{"type":")" + type + R"(","vocab":)" +
           vocab + R"(,"merges":)" + merges + "," + model + "}}";
  }
};

// tokenizer.json of this text, and maybe a tokenizer_config.json, beside a sound model.
auto Text(std::string text, std::string config = "") {
  return [text = std::move(text), config = std::move(config)](const TempFolder& folder) {
    const Inventory model = HfLlama();
    folder.Write("config.json", ConfigOf(model));
    folder.Write("model.safetensors", SafetensorsOf(HeaderOf(model, 0, model.tensors.size())));
    folder.Write("tokenizer.json", text);
    if (!config.empty()) folder.Write("tokenizer_config.json", config);
    return folder.path();
  };
}

auto With(std::string Parts::*part, std::string value) {
  Parts parts;
  parts.*part = std::move(value);
  return Text(parts.Text());
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

std::vector<Case> JsonTokenizerCases() {
  return {
      {"Empty", Text(""), "DIR/tokenizer.json: the file is empty"},
      {"Broken", Text("{"),
       "DIR/tokenizer.json: not valid JSON: parse error at line 1, column 2: syntax error while parsing object key - unexpected "
       "end of input; expected string literal"},
      {"ZeroByteAfterTheEnd", Text(std::string("{}\0}}} x", 8)), "DIR/tokenizer.json: not valid JSON: a zero byte at byte 2"},
      {"AnArray", Text("[]"), "DIR/tokenizer.json: expected a JSON object, found an array"},
      {"NotUtf8", With(&Parts::vocab, "{\"\xff\":0}"),
       "DIR/tokenizer.json: not valid JSON: parse error at line 1, column 155: syntax error while parsing object key - invalid "
       "string: ill-formed UTF-8 byte; last read: '\"\\xff'; expected string literal"},
      {"Deep", Text(Repeated("{\"a\":", 1 << 20)), "DIR/tokenizer.json: nested more than 64 deep"},
      {"KeyTwice", With(&Parts::model, R"("unk_token":"<u>","unk_token":"a")"),
       "DIR/tokenizer.json: the key 'unk_token' appears twice"},
      {"TokenTwice", With(&Parts::vocab, R"({"a":0,"b":1,"ab":2,"<u>":3,"a":4})"),
       "DIR/tokenizer.json: the key 'a' appears twice"},
      {"ModelMissing", Text("{}"), "DIR/tokenizer.json: model: expected an object"},
      {"ModelUnknown", With(&Parts::type, "Unigram"),
       "DIR/tokenizer.json: model: type 'Unigram' is not supported (SentencePiece's, as in T5 and XLM-RoBERTa): BPE is. Token "
       "ids need no tokenizer"},
      {"VocabularyAnArray", With(&Parts::vocab, "[]"), "DIR/tokenizer.json: model.vocab: expected an object"},
      {"VocabularyEmpty", With(&Parts::vocab, "{}"), "DIR/tokenizer.json: model.vocab: has no token"},
      {"IdNegative", With(&Parts::vocab, R"({"a":-1})"),
       "DIR/tokenizer.json: model.vocab['a']: expected a token id from 0 to 2097151"},
      {"IdAFraction", With(&Parts::vocab, R"({"a":0.5})"),
       "DIR/tokenizer.json: model.vocab['a']: expected a token id from 0 to 2097151"},
      {"IdBeyond64Bits", With(&Parts::vocab, R"({"a":99999999999999999999})"),
       "DIR/tokenizer.json: model.vocab['a']: expected a token id from 0 to 2097151"},
      {"IdFarBeyondTheOthers", With(&Parts::vocab, R"({"a":0,"b":1,"<u>":2000000})"),
       "DIR/tokenizer.json: model.vocab['<u>']: 2000000 in a file that names 3 tokens"},
      {"IdTwice", With(&Parts::vocab, R"({"a":0,"b":0})"), "DIR/tokenizer.json: model.vocab: id 0 is given to 'a' and to 'b'"},
      {"MergeOfAnUnknownToken", With(&Parts::merges, R"(["a b","a z"])"),
       "DIR/tokenizer.json: model.merges: merge 1 ('a' 'z') needs the token 'z', which is not in the vocabulary"},
      {"MergeIntoAnUnknownToken", With(&Parts::merges, R"(["a c"])"),
       "DIR/tokenizer.json: model.merges: merge 0 ('a' 'c') needs the token 'ac', which is not in the vocabulary"},
      {"MergeOfOne", With(&Parts::merges, R"(["a b",["a"]])"), "DIR/tokenizer.json: model.merges[1]: expected two tokens"},
      {"MergesANumber", With(&Parts::merges, "3"), "DIR/tokenizer.json: model.merges: expected a list"},
      {"UnknownTokenNotInTheVocabulary", With(&Parts::model, R"("unk_token":"<none>")"),
       "DIR/tokenizer.json: model.unk_token: '<none>' is not in the vocabulary"},
      {"AddedTokenOfAnothersId", With(&Parts::added, R"([{"id":0,"content":"x"}])"),
       "DIR/tokenizer.json: added_tokens[0]: id 0 belongs to 'a'"},
      {"AddedTokenTwice", With(&Parts::added, R"([{"id":5,"content":"x"},{"id":6,"content":"x"}])"),
       "DIR/tokenizer.json: added_tokens[1]: 'x' has id 5 already"},
      {"AddedTokenWithoutId", With(&Parts::added, R"([{"content":"x"}])"),
       "DIR/tokenizer.json: added_tokens[0].id: expected a token id from 0 to 2097151"},
      {"AddedTokenTooLong", With(&Parts::added, R"([{"id":5,"content":")" + std::string(5000, 's') + "\"}]"),
       "DIR/tokenizer.json: added_tokens[0].content: 5000 bytes, at most 1024 expected"},
      {"NormalizerUnknown", With(&Parts::normalizer, R"({"type":"StripAccents"})"),
       "DIR/tokenizer.json: normalizer: type 'StripAccents' is not supported"},
      {"NormalizerDeep",
       With(&Parts::normalizer, Repeated(R"({"type":"Sequence","normalizers":[)", 20) + R"({"type":"NFC"})" + Repeated("]}", 20)),
       "DIR/tokenizer.json: "
       "normalizer.normalizers[0].normalizers[0].normalizers[0].normalizers[0].normalizers[0].normalizers[0].normalizers[0]."
       "normalizers[0].normalizers[0]: nested too deep"},
      {"PatternBroken", With(&Parts::pre, R"({"type":"Split","pattern":{"Regex":"["},"behavior":"Isolated"})"),
       "DIR/tokenizer.json: pre_tokenizer.pattern: regular expression with '[' at byte 0 is not supported: ["},
      {"PatternOfAnotherDialect",
       With(&Parts::pre, R"({"type":"Split","pattern":{"Regex":"\\s+|(?<=a)b"},"behavior":"Isolated"})"),
       "DIR/tokenizer.json: pre_tokenizer.pattern: regular expression with '(?<=a)b' at byte 4 is not supported: \\s+|(?<=a)b"},
      {"PatternTooLong",
       With(&Parts::pre, R"({"type":"Split","pattern":{"Regex":")" + std::string(70000, 'x') + R"("},"behavior":"Isolated"})"),
       "DIR/tokenizer.json: pre_tokenizer.pattern: regular expression of 70000 bytes, at most 8192 expected"},
      {"DecoderMissing", With(&Parts::decoder, "null"),
       "DIR/tokenizer.json: decoder: null (tokens joined by spaces) is not supported"},
      {"TemplateTokenBeyondTheVocabulary",
       With(&Parts::post, R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],)"
                          R"("special_tokens":{"<s>":{"ids":[99]}}})"),
       "DIR/tokenizer.json: post_processor.special_tokens['<s>'].ids: no token has id 99"},
      {"ConfigBroken", Text(Parts().Text(), "{"),
       "DIR/tokenizer_config.json: not valid JSON: parse error at line 1, column 2: syntax error while parsing object key - "
       "unexpected end of input; expected string literal"},
      {"ConfigTokenNotInTheVocabulary", Text(Parts().Text(), R"({"bos_token":"<none>"})"),
       "DIR/tokenizer_config.json: bos_token: '<none>' is not in DIR/tokenizer.json"},
      {"ADirectory",
       [](const TempFolder& folder) {
         const std::string path = Text(Parts().Text())(folder);
         std::filesystem::remove(folder / "tokenizer.json");
         std::filesystem::create_directory(folder / "tokenizer.json");
         return path;
       },
       "DIR/tokenizer.json: expected a regular file, found a directory"},
  };
}

namespace {

auto RanksFile(std::string text) {
  return [text = std::move(text)](const TempFolder& folder) { return folder.Write("m.tiktoken", text); };
}

// "a" in base64 is "YQ==", and so on: the 256 bytes, each its own rank, and `more`.
std::string AllBytes(const std::string& more = "") {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (unsigned byte = 0; byte < 256; ++byte) {
    text += std::string(1, kDigits[byte >> 2]) + kDigits[(byte & 3) << 4] + "== " + std::to_string(byte) + "\n";
  }
  return text + more;
}

}  // namespace

std::vector<Case> RanksCases() {
  const std::string expected = ": expected a token in base64, a space and its rank";
  const auto line = [&](const std::string& text) { return RanksFile(AllBytes(text + "\n")); };
  return {
      {"Empty", RanksFile(""), "DIR/m.tiktoken: the file is empty"},
      {"LinesOfNothing", RanksFile("\n\r\n\n"),
       "DIR/m.tiktoken: has no ranks, expected lines of a token in base64, a space and its rank"},
      {"OneOfZeros", RanksFile(std::string(1 << 20, '\0')), "DIR/m.tiktoken: line 1" + expected},
      {"ALongLine", RanksFile(std::string(1 << 20, 'A')), "DIR/m.tiktoken: line 1" + expected},
      {"RankMissing", line("YWI="), "DIR/m.tiktoken: line 257" + expected},
      {"TokenMissing", line(" 256"), "DIR/m.tiktoken: line 257" + expected},
      {"NotBase64", line("Y!I= 256"), "DIR/m.tiktoken: line 257" + expected},
      {"Cut", RanksFile(AllBytes("YWI")), "DIR/m.tiktoken: line 257" + expected},
      {"RankNegative", line("YWI= -1"), "DIR/m.tiktoken: line 257: rank '-1', expected 0 to 273 in a file of so many lines"},
      {"RankOverflows", line("YWI= 4294967552"),
       "DIR/m.tiktoken: line 257: rank '4294967552', expected 0 to 273 in a file of so many lines"},
      {"RankFarBeyondTheOthers", line("YWI= 2000000"),
       "DIR/m.tiktoken: line 257: rank '2000000', expected 0 to 273 in a file of so many lines"},
      {"RankOfControlCharacters", line("YWI= 1\x1b[31m"),
       "DIR/m.tiktoken: line 257: rank '1\\x1b[31m', expected 0 to 273 in a file of so many lines"},
      {"RankTwice", line("YWI= 97"), "DIR/m.tiktoken: line 257: rank 97 for the second time"},
      {"RankLeftOut", line("YWI= 257"), "DIR/m.tiktoken: no line has rank 256, expected all of 0 to 257"},
      {"TokenTwice", line("YQ== 256"), "DIR/m.tiktoken: ranks 97 and 256 have the same token 'a'"},
      {"ByteMissing", RanksFile("YQ== 0\n"), "DIR/m.tiktoken: no token for the byte 0, expected one for each of the 256"},
      {"TokenTooLong", line(std::string(4 * 400, 'Y') + " 256"),
       "DIR/m.tiktoken: line 257: a token of 1200 bytes, at most 1024 expected"},
      {"ADirectory",
       [](const TempFolder& folder) {
         std::filesystem::create_directory(folder / "m.tiktoken");
         return folder / "m.tiktoken";
       },
       "DIR/m.tiktoken: expected a regular file, found a directory"},
      {"TooLarge",
       [](const TempFolder& folder) {  // sparse
         std::filesystem::resize_file(folder.Write("m.tiktoken", AllBytes()), (64 << 20) + 1);
         return folder / "m.tiktoken";
       },
       "DIR/m.tiktoken: 67108865 bytes; the limit for this file is 67108864"},
  };
}

}  // namespace tally::siege
