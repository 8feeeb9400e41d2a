// SPDX-License-Identifier: Apache-2.0
// tokenizer.json -> tokenizer.ggml.*, as llama.cpp's convert_hf_to_gguf.py writes them, and tally.tokenizer.* (tokenizer_gguf.cc) for
// what those cannot say.
#include <algorithm>
#include <bit>

#include "engine/base/format.h"
#include "engine/text/bpe.h"
#include "engine/text/json_steps.h"
#include "engine/text/text_tokenizer.h"

namespace tally {
namespace {

using Keys = std::vector<std::pair<std::string, MetaValue>>;

// Letters with and without case, digits, marks, runs of white space at all places, scripts without spaces, emoji, code, what NFC and
// NFKC change, no text at all.
constexpr std::string_view kSamples[] = {
    "Hello, World! It's 3.14159 and 1234567890; we'll see: don't, I'M, THEY'LL.\n\n  \tint main() { return x_1 << 2; }\r\n"
    "Gr\xC3\xB6\xC3\x9F"
    "e na\xC3\xAFve \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C "
    "\xE3\x81\x93\xE3\x82\x93 \xF0\x9F\x98\x80 https://example.org/a?b=c#d   trailing  ",
    "",
    "hello",
    " hello",
    "  hello  ",
    "\n\nhello\n world\n",
    "\t",
    "   ",
    "\xE2\x96\x81hello",
    "def f(x):\n    if x:\n        return [x ** 2 for y in range(10)]  # done\n\n\n\nclass A(B): pass",
    "1 12 123 1234 12345 123456 a1b22c333 3,141.59 \xD9\xA3\xD9\xA4 \xC2\xBD \xE2\x85\xA7",
    "e\xCC\x81 \xC3\xA9 Cafe\xCC\x81 A\xCC\x8A \xE2\x84\xAB \xE1\x84\x80\xE1\x85\xA1 \xEF\xAC\x81 \xEF\xBC\xA1",
    "\xD0\xB9\xD0\xB8\xD1\x86\xD1\x83\xD0\xBA\xD0\xB5\xD0\xBD "
    "\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6\xE0\xA5\x80 "
    "\xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D \xE0\xB8\xAA\xE0\xB8\xA7\xE0\xB8\xB1",
    "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x80\x82\xEC\x95\x88\xEB\x85\x95\xED\x95\x98\xEC\x84\xB8\xEC\x9A\x94\xEF\xBC\x81 "
    "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 \xE2\x80\x94 \xE2\x80\xA6",
    "HelloWorld HTTPServer aB Ab I'll I'LL you've O'Neil \xC7\x85 $+<=>^~|` !!!??? ... --- a_b \xC2\xA0x\xE3\x80\x80y",
};

// Properties that may need a key of Tally's own.
enum LossBit : unsigned { kStrip = 1, kNormalized = 2, kNormalizer = 4, kSpaceBefore = 8, kEnds = 16, kAllLosses = 32 };
struct LossName {
  LossBit bit;
  std::string_view name, what;
};
constexpr LossName kLossNames[] = {
    {kStrip, "strip", "that special tokens take the white space beside them along"},
    {kNormalized, "normalized", "that tokens are looked for in normalised text"},
    {kNormalizer, "normalizer", "its normalizer"},
    {kSpaceBefore, "space", "where it puts a space before text"},
    {kEnds, "ends", "all tokens that end a text"},
};

class Converter {
 public:
  Converter(const Inventory& directory, int32_t vocab, const std::string& name)
      : directory_(directory), path_(directory.tokenizer_json), name_(name), vocab_(static_cast<size_t>(vocab)) {}

  Result<GgufTokenizer> Convert() {
    TALLY_ASSIGN_OR_RETURN(tokenizer_, TokenizerFor(directory_));
    TALLY_ASSIGN_OR_RETURN(json_, ParseJsonFile(SideFiles(directory_), "tokenizer.json"));
    TALLY_RETURN_IF_ERROR(ReadSteps());
    TALLY_RETURN_IF_ERROR(AddTokens());
    TALLY_RETURN_IF_ERROR(AddSpecialIds());
    return Choose();
  }

 private:
  Status Cannot(const std::string& what) const { return BadInput(path_ + ": GGUF cannot say " + what); }
  void Set(const char* key, MetaValue value) { keys_.emplace_back("tokenizer.ggml." + std::string(key), std::move(value)); }
  void SetOwn(LossBit bit, const std::string& key, MetaValue value) {
    own_.emplace_back(bit, std::pair("tally.tokenizer." + key, std::move(value)));
  }

  static void Flatten(const Json& node, std::vector<Json>* steps) {
    if (Type(node) != "Sequence") {
      if (!node.is_null()) steps->push_back(node);
      return;
    }
    for (const Json& each : Member(node, "normalizers")) Flatten(each, steps);  // as deep as ReadNormalizer lets it be
  }

  Status ReadSteps() {
    std::vector<Json> normal;
    Flatten(Member(json_, "normalizer"), &normal);
    TALLY_RETURN_IF_ERROR(ReadPreTokenizer(Member(json_, "pre_tokenizer"), path_, 0, &pre_, &byte_level_));
    TALLY_ASSIGN_OR_RETURN(ignore_merges_, Flag(Member(json_, "model"), "ignore_merges", false, path_));
    if (byte_level_) {
      names_ = PreTokenizerNames(pre_, ignore_merges_);
      if (names_.empty()) return Cannot("its pre-tokenizer");
    } else {
      TALLY_RETURN_IF_ERROR(ReadSpaces(&normal));
    }
    if (!normal.empty()) {
      SetOwn(kNormalizer, "normalizer", Json{{"type", "Sequence"}, {"normalizers", normal}}.dump());
    }
    return {};
  }

  // Reads SentencePiece's treatment of spaces: they become U+2581, and one may be put before the text. Either the last steps of the
  // normalizer do that, which are then removed, or a Metaspace does.
  Status ReadSpaces(std::vector<Json>* normal) {
    bool replaces = false;
    while (!normal->empty()) {
      const Json& step = normal->back();
      const std::string type = Type(step);
      if (type == "Replace" && !replaces && Member(Member(step, "pattern"), "String") == " " &&
          Member(step, "content") == kSpaceMark) {
        replaces = true;
      } else if (type == "Prepend" && !space_before_ && Member(step, "prepend") == kSpaceMark) {
        space_before_ = true;
      } else {
        break;
      }
      normal->pop_back();
    }
    for (const PreStep& step : pre_.steps()) {
      if (step.kind == PreStep::Kind::kLiteral && step.literal == " " && replaces) continue;  // Gemma's: there are no spaces left
      if (step.kind != PreStep::Kind::kMetaspace || step.literal != kSpaceMark || replaces) return Cannot("its pre-tokenizer");
      replaces = true;
      space_before_ = step.prepend != PreStep::Prepend::kNever;
      const bool first = step.prepend == PreStep::Prepend::kFirst;
      if (space_before_ && !step.split) SetOwn(kSpaceBefore, "space", std::string(first ? "first" : "always"));
    }
    return replaces ? Status() : Cannot("a BPE that is neither of bytes nor has U+2581 for spaces");
  }

  Status AddTokens() {
    const size_t size = static_cast<size_t>(tokenizer_->vocab_size());
    if (size > vocab_) {
      return BadInput(path_ + ": has " + std::to_string(size) + " tokens, and the model room for " + std::to_string(vocab_));
    }
    const Json& model = Member(json_, "model");
    std::vector<std::string> tokens(vocab_);
    std::vector<int64_t> types(vocab_, kUnused), strips[2], normalized;
    StringMap<size_t> ids;
    for (const auto& [text, id] : Member(model, "vocab").items()) {
      tokens[id.get<size_t>()] = text;
      types[id.get<size_t>()] = !byte_level_ && ByteOfToken(text) >= 0 ? kByte : kNormal;
      ids.emplace(text, id.get<size_t>());
    }
    for (const Json& added : Member(json_, "added_tokens")) {
      const size_t id = added["id"].get<size_t>();
      tokens[id] = added["content"].get<std::string>();
      TALLY_ASSIGN_OR_RETURN(const bool special, Flag(added, "special", false, path_));
      TALLY_ASSIGN_OR_RETURN(const bool of_normalized, Flag(added, "normalized", !special, path_));
      // A token with U+2581 that is not special stays a plain one: merging makes it, and it decodes to spaces.
      const bool spaces = !byte_level_ && !special && types[id] == kNormal && tokens[id].find(kSpaceMark) != std::string::npos;
      if (!spaces) types[id] = special ? kControl : kUserDefined;
      ids.emplace(tokens[id], id);
      for (const int side : {0, 1}) {
        TALLY_ASSIGN_OR_RETURN(const bool strip, Flag(added, side == 0 ? "lstrip" : "rstrip", false, path_));
        if (strip) strips[side].push_back(static_cast<int64_t>(id));
      }
      if (of_normalized && !spaces) normalized.push_back(static_cast<int64_t>(id));
      added_.push_back(static_cast<int32_t>(id));
    }
    if (const Json& unknown = Member(model, "unk_token"); unknown.is_string()) {
      const auto id = ids.find(unknown.get<std::string>());
      if (id != ids.end()) Set("unknown_token_id", static_cast<int64_t>(id->second));
      if (id != ids.end() && !byte_level_ && types[id->second] == kControl) types[id->second] = kUnknown;
    }
    for (size_t id = 0; id < vocab_; ++id) {
      if (types[id] != kUnused) continue;
      tokens[id] = "[PAD" + std::to_string(id) + "]";
      while (!ids.emplace(tokens[id], id).second) tokens[id] += "_";  // each token may be there once
    }
    for (const int side : {0, 1}) {
      if (!strips[side].empty()) SetOwn(kStrip, side == 0 ? "lstrip" : "rstrip", strips[side]);
    }
    if (!normalized.empty() && !Member(json_, "normalizer").is_null()) SetOwn(kNormalized, "normalized", normalized);
    AddModel(ids, types);
    const auto bytes = std::count(types.begin(), types.end(), kByte);
    if (!byte_level_ && bytes != 256) return Cannot("a BPE of characters that has no token for each byte");
    Set("model", std::string(byte_level_ ? "gpt2" : "llama"));
    Set("tokens", std::move(tokens));
    Set("token_type", std::move(types));
    return {};
  }

  // Merges, best first. Of two equal ones the later counts here, in GGUF the earlier: that is left out.
  std::vector<std::pair<std::string, std::string>> Merges() const {
    std::vector<std::pair<std::string, std::string>> merges;
    StringSet seen;
    const Json& list = Member(Member(json_, "model"), "merges");
    for (size_t i = list.size(); i-- > 0;) {
      const Json& m = list[i];
      std::string left, right;
      if (m.is_string()) {
        const std::string text = m.get<std::string>();
        const size_t space = text.find(' ');
        left = text.substr(0, space), right = text.substr(space + 1);
      } else {
        left = m[0].get<std::string>(), right = m[1].get<std::string>();
      }
      if (seen.insert(left + " " + right).second) merges.emplace_back(std::move(left), std::move(right));
    }
    std::reverse(merges.begin(), merges.end());
    return merges;
  }

  // Merges as such, or as SentencePiece has them: a token's score is the place of its first merge, from 0 down.
  void AddModel(const StringMap<size_t>& ids, const std::vector<int64_t>& types) {
    if (byte_level_) {
      std::vector<std::string> merges;
      for (const auto& [left, right] : Merges()) merges.push_back(left + " " + right);
      return Set("merges", std::move(merges));
    }
    std::vector<double> scores(vocab_, 1);
    double next = 0;
    for (const auto& [left, right] : Merges()) {
      const auto id = ids.find(left + right);
      if (id != ids.end() && scores[id->second] > 0) scores[id->second] = next--;
    }
    for (size_t id = 0; id < vocab_; ++id) {
      if (scores[id] > 0) scores[id] = types[id] == kNormal ? next : 0;
    }
    Set("scores", std::move(scores));
    Set("add_space_prefix", space_before_);
  }

  Status AddSpecialIds() {
    const int32_t bos = tokenizer_->bos();
    std::vector<int32_t> eos = tokenizer_->eos();
    TALLY_ASSIGN_OR_RETURN(const std::vector<int32_t> around, tokenizer_->Encode(""));
    const bool begins = !around.empty() && around.front() == bos;
    const bool ends = around.size() > (begins ? 1u : 0u) && !eos.empty() && around.back() == eos.front();
    if (around.size() != (begins ? 1u : 0u) + (ends ? 1u : 0u)) return Cannot("which tokens it puts around a text");
    constexpr int64_t kNone = 0xFFFFFFFF;  // without the key SentencePiece's default counts
    if (bos >= 0 || !byte_level_) Set("bos_token_id", bos >= 0 ? int64_t{bos} : kNone);
    if (eos.empty() && !byte_level_) Set("eos_token_id", kNone);
    // After the first end token come those that readers do not know by name: there are two more keys.
    const auto nameless = [&](int32_t id) {
      return !EndsGeneration(tokenizer_->IsControl(id) ? tokenizer_->ControlText(id) : tokenizer_->TokenBytes(id), false);
    };
    const auto named = eos.empty() ? eos.end() : std::stable_partition(eos.begin() + 1, eos.end(), nameless);
    constexpr const char* kKeys[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
    for (size_t i = 0; i < std::min(eos.size(), std::size(kKeys)); ++i) Set(kKeys[i], int64_t{eos[i]});
    if (named - eos.begin() > std::ssize(kKeys)) {
      SetOwn(kEnds, "ends", std::vector<int64_t>(eos.begin() + std::ssize(kKeys), named));
    }
    Set("add_bos_token", begins);
    if (ends) Set("add_eos_token", true);
    return {};
  }

  // Chooses the keys: as few of Tally's own as make the file's tokenizer equal to the directory's.
  Result<GgufTokenizer> Choose() {
    AddTexts();
    unsigned present = 0;
    for (const auto& [bit, key] : own_) present |= bit;
    std::vector<unsigned> choices;
    for (unsigned bits = 0; bits < kAllLosses; ++bits) {
      if ((bits & ~present) == 0) choices.push_back(bits);
    }
    std::stable_sort(choices.begin(), choices.end(), [](unsigned a, unsigned b) { return std::popcount(a) < std::popcount(b); });
    if (!byte_level_) names_ = {"default"};
    Status why;
    for (const unsigned bits : choices) {
      for (const std::string_view pre : names_) {
        GgufTokenizer made{keys_, {}};
        made.keys.emplace_back("tokenizer.ggml.pre", std::string(pre));
        for (const auto& [bit, key] : own_) {
          if ((bits & bit) != 0) made.keys.push_back(key);
        }
        why = CheckSame(made.keys);
        if (!why.ok()) continue;
        for (const LossName& loss : kLossNames) {
          if ((bits & loss.bit) != 0) made.losses.push_back({std::string(loss.name), std::string(loss.what)});
        }
        return made;
      }
    }
    return why;
  }

  // The samples; each added token with letters, white space and itself beside it; the tokens one after another, in their order and
  // mixed.
  void AddTexts() {
    for (const std::string_view text : kSamples) texts_.push_back({std::string(text), true});
    for (const int32_t id : added_) {
      const bool control = tokenizer_->IsControl(id);
      const std::string t = control ? tokenizer_->ControlText(id) : tokenizer_->TokenBytes(id);
      std::string text = "a" + t + "b " + t + " c  " + t + "  \n" + t + "\nd\n\n" + t + t + "\t" + t + "hello" + t + " ";
      // Ends of text are special in GGUF, whatever their type.
      if (!control && !EndsGeneration(t, false)) texts_.push_back({text, false});
      texts_.push_back({t + std::move(text) + t, true});
    }
    constexpr size_t kTogether = 32, kStride = 7919;  // a prime number
    const auto size = static_cast<size_t>(tokenizer_->vocab_size());
    for (const size_t stride : {size_t{1}, size % kStride == 0 ? size_t{1} : kStride}) {
      std::string text;
      for (size_t i = 0; i < size; ++i) {
        text += tokenizer_->TokenBytes(static_cast<int32_t>(i * stride % size));
        if (i % kTogether + 1 < kTogether && i + 1 < size) continue;
        texts_.push_back({std::move(text), false});
        text.clear();
      }
    }
  }

  Status CheckSame(const Keys& keys) const {
    Metadata metadata;
    metadata.source = path_;
    metadata.Set("general.name", name_);
    for (const auto& [key, value] : keys) metadata.Set(key, value);
    TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> read, TokenizerFromGguf(metadata));
    for (const auto& [text, special] : texts_) {
      const EncodeOptions options{.add_special = true, .parse_special = special};
      TALLY_ASSIGN_OR_RETURN(const std::vector<int32_t> before, tokenizer_->Encode(text, options));
      const Result<std::vector<int32_t>> after = read->Encode(text, options);
      if (!after.ok() || *after != before) return Cannot("how it cuts text: '" + Printable(text, 60) + "'");
    }
    const std::vector<int32_t> ends = read->eos();
    const auto is_end = [&](int32_t id) { return std::ranges::find(ends, id) != ends.end(); };
    if (!std::ranges::all_of(tokenizer_->eos(), is_end)) return Cannot("all tokens that end a text");
    if (read->DropsLeadingSpace() != tokenizer_->DropsLeadingSpace()) return Cannot("which spaces its decoder drops");
    for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      const std::string text = tokenizer_->TokenBytes(id);
      if (read->TokenBytes(id) != text) return Cannot("what its token " + std::to_string(id) + " stands for");
      TALLY_ASSIGN_OR_RETURN(const std::vector<int32_t> before, tokenizer_->Encode(text));
      const Result<std::vector<int32_t>> after = read->Encode(text);
      if (!after.ok() || *after != before) return Cannot("what makes its token " + std::to_string(id));
    }
    return {};
  }

  struct SampleText {
    std::string text;
    bool special;
  };

  const Inventory& directory_;
  const std::string path_, name_;
  const size_t vocab_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Json json_;
  PreTokenizer pre_;
  bool byte_level_ = false, ignore_merges_ = false, space_before_ = false;
  std::vector<std::string_view> names_;
  Keys keys_;
  std::vector<std::pair<LossBit, Keys::value_type>> own_;
  std::vector<int32_t> added_;
  std::vector<SampleText> texts_;
};

}  // namespace

std::vector<std::string_view> TokenizerLossNames() {
  std::vector<std::string_view> names;
  for (const LossName& loss : kLossNames) names.push_back(loss.name);
  names.emplace_back("all");
  return names;
}

Result<GgufTokenizer> GgufTokenizerKeys(const Inventory& directory, int32_t vocab, const std::string& name) {
  Result<GgufTokenizer> made = Converter(directory, vocab, name).Convert();
  if (!made.ok()) return OneLine(made.status());
  return made;
}

}  // namespace tally
