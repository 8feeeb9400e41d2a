// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizers that GGUF files name by tokenizer.ggml.pre: the models' published expressions (their
// tokenizer.json, or tiktoken's openai_public.py for cl100k and o200k), the names as llama.cpp writes them.
#include <algorithm>
#include <array>
#include <charconv>

#include "engine/text/pretokenizer.h"
#include "engine/text/utf8.h"

namespace tally {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr const char* kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek's ranges of East Asian scripts.
constexpr const char* kDeepseekCjk = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
// Letters with case, as deepseek-llm's tokenizer.json spells them out.
constexpr const char* kDeepseekLetters =
    R"(\s?[)"
    R"(A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1})"
    R"(\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5})"
    R"(\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77})"
    R"(\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d})"
    R"(\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc})"
    R"(\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec})"
    R"(\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d})"
    R"(\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f})"
    R"(\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee})"
    R"(\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787})"
    R"(\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a})"
    R"(\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2})"
    R"(\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943})"
    R"(]+)";
// Bloom's, of which Poro and Viking are made: all but white space and some punctuation, with a space before.
constexpr const char* kBloom = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";
constexpr const char* kKimi =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                                R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kMiniCpm5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kBailing = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
                                 R"(\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kExaoneMoe =  // letters of several words, too
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)";
// Numbers in threes from the right. This and the next four as llama.cpp has them (src/llama-vocab.cpp): the models' tokenizer.json was not
// at hand.
constexpr const char* kThrees = R"(^\p{N}{1,2}(?=(?:\p{N}{3})*$)|\p{N}{3})";
// Scripts without spaces, and Hangul.
constexpr const char* kAfmoeScripts =
    R"([\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{8c48}-\x{faff}\x{3040}-\x{30ff}\x{ff65}-\x{ff9f}\x{2f00}-\x{2fdf}\x{0e40}-\x{0eff}\x{1780}-\x{17ff})"
    R"(\x{1000}-\x{109f}\x{aa60}-\x{aa7f}\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}]+)";
constexpr const char* kYoutuScripts =
    R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|)"
    R"([\x{3105}-\x{312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr const char* kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekPunctuation =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";

// Hugging Face's Punctuation in one piece: ASCII's punctuation and symbols, and the categories P.
constexpr const char* kFalconPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";

struct Row {
  std::array<std::string_view, 12> names;
  std::array<const char*, 6> expressions;
  bool ignore_merges = false;
  bool add_bos = false;
};

constexpr std::string_view kCl100kName = "cl100k", kO200kName = "o200k";

const Row kRows[] = {
    {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "trillion", "granite-docling", "gigachat", "a.x-4.0", "mellum"},
     {kGpt2Pattern}},
    {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"}, {kCl100k}, true, true},
    {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {kCl100k}},
    {{"qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "grok-2", "solar-open", "f2llmv2"}, {kQwen2}},
    {{"qwen35"}, {kQwen35}},
    {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kO200k}},  // gpt-oss too
    {{kCl100kName}, {kCl100k}, true},  // not in GGUF files: as tiktoken has them, which looks a piece up first
    {{kO200kName}, {kO200k}, true},
    {{"tekken"}, {kTekken}, true, true},
    {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCjk, R"(\p{N})"}},
    {{"deepseek-llm"}, {R"([\r\n])", kDeepseekLetters, kDeepseekPunctuation, R"(\s+$)", kDeepseekCjk, R"(\p{N}+)"}},
    {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
     {R"(\p{N}{1,3})", R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)", kDeepseekV3}},
    {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"}, {R"(\p{N})", kGpt2Pattern}},
    {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
    {{"viking"}, {kBloom, R"(\p{N})"}},
    {{"kimi-k2"}, {kKimi}},
    {{"seed-coder"}, {kSeedCoder}},
    {{"superbpe"}, {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},  // groups of three digits from the right
    {{"tiny_aya", "cohere2moe"}, {R"(\d{1,3}(?=(?:\d{3})*\b))", kO200k}},
    {{"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailing}},
    {{"exaone-moe"}, {kExaoneMoe}},
    {{"laguna"}, {R"([^\n]+|[\n]+)", kQwen2}},
    {{"afmoe"}, {R"(\p{N}+)", kThrees, kAfmoeScripts, kDeepseekV3}},
    {{"youtu"}, {kYoutuScripts, kYoutu}, true},
    {{"minicpm5"}, {R"(\p{N}{1,3})", kMiniCpm5}, true},
    {{"falcon"}, {kFalconPunctuation, kGpt2Pattern, "[0-9][0-9][0-9]"}},
    {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
};

// An expression with the characters that \x{...} stands for.
std::string Spelled(std::string_view expression) {
  std::string out;
  for (size_t at = 0; at < expression.size();) {
    const size_t end = expression.substr(at).starts_with("\\x{") ? expression.find('}', at) : expression.npos;
    uint32_t code = 0;
    if (end == expression.npos ||
        std::from_chars(expression.data() + at + 3, expression.data() + end, code, 16).ptr != expression.data() + end) {
      out.push_back(expression[at++]);
      continue;
    }
    AppendUtf8(code, &out);
    at = end + 1;
  }
  return out;
}

// True if the step isolates the matches of the expression.
bool Isolates(const PreStep& step, std::string_view expression) {
  if (step.kind == PreStep::Kind::kPunctuation && step.behavior == SplitBehavior::kContiguous) {
    return expression == kFalconPunctuation;
  }
  if (step.behavior != SplitBehavior::kIsolated || step.invert) return false;
  if (step.kind == PreStep::Kind::kDigits) return expression == R"(\p{N})";
  return step.kind == PreStep::Kind::kRegex && Spelled(step.regex.source()) == Spelled(expression);
}

// Falcon's file also cuts its byte alphabet at digits, which the names do not say. If no merge crosses such a cut, the tokens are the same.
// So GgufTokenizerKeys compares texts.
std::vector<PreStep> WithoutAlphabet(const PreTokenizer& pre) {
  std::vector<PreStep> steps;
  bool alphabet = false;
  for (const PreStep& step : pre.steps()) {
    const bool changes = step.kind == PreStep::Kind::kToAlphabet || step.kind == PreStep::Kind::kFromAlphabet;
    if (changes) alphabet = step.kind == PreStep::Kind::kToAlphabet;
    const bool digits = step.kind == PreStep::Kind::kDigits && step.behavior == SplitBehavior::kContiguous;
    if (!changes && !(alphabet && digits)) steps.push_back(step);
  }
  return steps;
}

bool CutsAs(const std::vector<PreStep>& steps, const Row& row) {
  const auto end = std::find(row.expressions.begin(), row.expressions.end(), nullptr);
  return static_cast<ptrdiff_t>(steps.size()) == end - row.expressions.begin() &&
         std::equal(steps.begin(), steps.end(), row.expressions.begin(), Isolates);
}

}  // namespace

std::vector<std::string_view> PreTokenizerNames(const PreTokenizer& pre, bool ignore_merges) {
  std::vector<std::string_view> names;
  const std::vector<PreStep> steps = WithoutAlphabet(pre);
  for (const Row& row : kRows) {
    const std::string_view name = row.names[0];
    if (name == kCl100kName || name == kO200kName || !CutsAs(steps, row)) continue;
    names.insert(row.ignore_merges == ignore_merges ? names.begin() : names.end(), name);
  }
  return names;
}

Result<NamedPreTokenizer> PreTokenizerByName(std::string_view name, const std::string& where) {
  std::string known;
  for (const Row& row : kRows) {
    known += (known.empty() ? "" : ", ") + std::string(row.names[0]);
    if (std::find(row.names.begin(), row.names.end(), name) == row.names.end() || name.empty()) continue;
    NamedPreTokenizer found;
    for (const char* expression : row.expressions) {
      if (expression != nullptr) TALLY_RETURN_IF_ERROR(found.pre.AddRegex(expression, where));
    }
    found.ignore_merges = row.ignore_merges;
    found.add_bos = row.add_bos;
    return found;
  }
  return BadInput(where + ": pre-tokenizer '" + std::string(name) + "' is not supported (known: " + known +
                  ", and others that cut as one of these)");
}

}  // namespace tally
