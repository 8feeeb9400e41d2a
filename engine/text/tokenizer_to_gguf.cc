// SPDX-License-Identifier: Apache-2.0
// tokenizer.json -> tokenizer.ggml.*, as llama.cpp's convert_hf_to_gguf.py writes them.
#include <algorithm>
#include <filesystem>

#include "engine/text/json_steps.h"
#include "engine/text/text_tokenizer.h"
#include "loaders/inventory/file_reader.h"

namespace tally {
namespace {

using Keys = std::vector<std::pair<std::string, MetaValue>>;

// Letters with and without case, digits, marks, runs of white space, scripts without spaces, an emoji.
constexpr std::string_view kSample =
    "Hello, World! It's 3.14159 and 1234567890; we'll see: don't, I'M, THEY'LL.\n\n  \tint main() { return x_1 << 2; }\r\n"
    "Gr\xC3\xB6\xC3\x9F"
    "e na\xC3\xAFve \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C "
    "\xE3\x81\x93\xE3\x82\x93 \xF0\x9F\x98\x80 https://example.org/a?b=c#d   trailing  ";

class Converter {
 public:
  Converter(const Inventory& directory, int32_t vocab)
      : directory_(directory), path_(directory.tokenizer_json), vocab_(static_cast<size_t>(vocab)) {}

  Result<Keys> Convert() {
    TALLY_ASSIGN_OR_RETURN(tokenizer_, TokenizerFor(directory_));
    TALLY_ASSIGN_OR_RETURN(json_, ParseJsonFile(path_));
    TALLY_RETURN_IF_ERROR(CheckSteps());
    TALLY_RETURN_IF_ERROR(AddTokens());
    TALLY_RETURN_IF_ERROR(AddSpecialIds());
    AddMerges();
    AddTemplate();
    return ChoosePre();
  }

 private:
  Status Cannot(const std::string& what) const { return BadInput(path_ + ": GGUF cannot say " + what); }
  void Set(const char* key, MetaValue value) { keys_.emplace_back("tokenizer.ggml." + std::string(key), std::move(value)); }

  Status CheckSteps() {
    const Json& node = Member(json_, "normalizer");
    const bool plain = node.is_null() || Type(node) == "NFC" || (Type(node) == "Sequence" && Member(node, "normalizers").empty());
    if (!plain) return Cannot("its normalizer");
    bool byte_level = false;
    TALLY_RETURN_IF_ERROR(ReadPreTokenizer(Member(json_, "pre_tokenizer"), path_, 0, &pre_, &byte_level));
    if (!byte_level) return Cannot("a BPE that is not of bytes without the scores of its tokens");
    TALLY_ASSIGN_OR_RETURN(ignore_merges_, Flag(Member(json_, "model"), "ignore_merges", false, path_));
    names_ = PreTokenizerNames(pre_, ignore_merges_);
    return names_.empty() ? Cannot("its pre-tokenizer") : Status();
  }

  Status AddTokens() {
    const size_t size = static_cast<size_t>(tokenizer_->vocab_size());
    if (size > vocab_) {
      return BadInput(path_ + ": has " + std::to_string(size) + " tokens, and the model room for " + std::to_string(vocab_));
    }
    std::vector<std::string> tokens(vocab_);
    std::vector<int64_t> types(vocab_, kUnused);
    for (const auto& [text, id] : Member(Member(json_, "model"), "vocab").items()) {
      tokens[id.get<size_t>()] = text;
      types[id.get<size_t>()] = kNormal;
    }
    for (const Json& added : Member(json_, "added_tokens")) {
      const size_t id = added["id"].get<size_t>();
      tokens[id] = added["content"].get<std::string>();
      TALLY_ASSIGN_OR_RETURN(const bool special, Flag(added, "special", false, path_));
      types[id] = special ? kControl : kUserDefined;
      for (const char* key : {"lstrip", "rstrip"}) {
        TALLY_ASSIGN_OR_RETURN(const bool strips, Flag(added, key, false, path_));
        if (strips && !special) return Cannot("that token '" + tokens[id] + "' takes the white space beside it");
      }
    }
    for (size_t id = 0; id < vocab_; ++id) {
      if (types[id] == kUnused) tokens[id] = "[PAD" + std::to_string(id) + "]";
    }
    Set("model", std::string("gpt2"));
    Set("tokens", std::move(tokens));
    Set("token_type", std::move(types));
    return {};
  }

  Status AddSpecialIds() {
    const int32_t bos = tokenizer_->bos();
    const std::vector<int32_t> eos = tokenizer_->eos();
    TALLY_ASSIGN_OR_RETURN(const std::vector<int32_t> around, tokenizer_->Encode(""));
    const bool begins = !around.empty() && around.front() == bos;
    const bool ends = around.size() > (begins ? 1u : 0u) && !eos.empty() && around.back() == eos.front();
    if (around.size() != (begins ? 1u : 0u) + (ends ? 1u : 0u)) return Cannot("which tokens it puts around a text");
    if (bos >= 0) Set("bos_token_id", int64_t{bos});
    constexpr const char* kEnds[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
    for (size_t i = 0; i < std::min(eos.size(), std::size(kEnds)); ++i) Set(kEnds[i], int64_t{eos[i]});
    Set("add_bos_token", begins);
    if (ends) Set("add_eos_token", true);
    const Json& model = Member(json_, "model");
    const Json& unknown = Member(model, "unk_token");
    if (unknown.is_string()) {
      const Json& id = Member(Member(model, "vocab"), unknown.get_ref<const std::string&>());
      if (id.is_number_integer()) Set("unknown_token_id", id.get<int64_t>());
    }
    return {};
  }

  // Of two equal ones the later counts here, in GGUF the earlier: that is left out.
  void AddMerges() {
    std::vector<std::string> merges;
    StringSet seen;
    const Json& list = Member(Member(json_, "model"), "merges");
    for (size_t i = list.size(); i-- > 0;) {
      const Json& m = list[i];
      std::string text = m.is_string() ? m.get<std::string>() : m[0].get<std::string>() + " " + m[1].get<std::string>();
      if (seen.insert(text).second) merges.push_back(std::move(text));
    }
    std::reverse(merges.begin(), merges.end());
    Set("merges", std::move(merges));
  }

  // Copied where it can be had: nothing here depends on it.
  void AddTemplate() {
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    std::error_code error;
    if (const auto file = folder / "chat_template.jinja"; std::filesystem::exists(file, error)) {
      constexpr uint64_t kLongest = 1 << 20;
      Result<std::string> text = ReadTextFile(file.string(), kLongest);
      if (text.ok()) keys_.emplace_back("tokenizer.chat_template", std::move(text).value());
      return;
    }
    const auto file = folder / "tokenizer_config.json";
    if (!std::filesystem::exists(file, error)) return;
    const Result<Json> config = ParseJsonFile(file.string());
    if (!config.ok()) return;
    const Json& text = Member(*config, "chat_template");
    if (text.is_string()) keys_.emplace_back("tokenizer.chat_template", text.get<std::string>());
  }

  Result<Keys> ChoosePre() {
    Status why;
    for (const std::string_view name : names_) {
      Keys keys = keys_;
      keys.emplace_back("tokenizer.ggml.pre", std::string(name));
      why = CheckSame(keys);
      if (why.ok()) return keys;
    }
    return why;
  }

  Status CheckSame(const Keys& keys) const {
    Metadata metadata;
    metadata.source = path_;
    for (const auto& [key, value] : keys) metadata.Set(key, value);
    TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> read, TokenizerFromGguf(metadata));
    for (int32_t id = -1; id < tokenizer_->vocab_size(); ++id) {
      const std::string text = id < 0 ? std::string(kSample) : tokenizer_->TokenBytes(id);
      TALLY_ASSIGN_OR_RETURN(const std::vector<int32_t> before, tokenizer_->Encode(text));
      const Result<std::vector<int32_t>> after = read->Encode(text);
      if (after.ok() && *after == before && (id < 0 || read->TokenBytes(id) == text)) continue;
      // Text that normalisation changes is left aside.
      if (id >= 0 && tokenizer_->Decode(before) != text) continue;
      return Cannot(id < 0 ? "how it cuts text" : "what makes its token " + std::to_string(id));
    }
    return {};
  }

  const Inventory& directory_;
  const std::string path_;
  const size_t vocab_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Json json_;
  PreTokenizer pre_;
  bool ignore_merges_ = false;
  std::vector<std::string_view> names_;
  Keys keys_;
};

}  // namespace

Result<std::vector<std::pair<std::string, MetaValue>>> GgufTokenizerKeys(const Inventory& directory, int32_t vocab) {
  Result<Keys> keys = Converter(directory, vocab).Convert();
  if (!keys.ok()) return OneLine(keys.status());
  return keys;
}

}  // namespace tally
