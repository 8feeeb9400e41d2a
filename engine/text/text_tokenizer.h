// SPDX-License-Identifier: Apache-2.0
// The tokenizer that both formats build: added tokens, normalization, pre-tokenization, model, decoding
// table.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/added_tokens.h"
#include "engine/text/model.h"
#include "engine/text/normalizer.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/tokenizer.h"
#include "loaders/inventory/side_files.h"

namespace tally {

// The largest number of token ids a file may name; published vocabularies end near 300,000.
inline constexpr int64_t kMaxTokens = 1 << 21;
// The most bytes of an added token or of one that merges make. Published ones have some hundred.
inline constexpr size_t kMaxTokenBytes = 1024;

// U+2581, by which SentencePiece writes a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// tokenizer.ggml.token_type
enum TokenType : int64_t { kUndefined = 0, kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

class TextTokenizer final : public Tokenizer {
 public:
  struct Parts {
    AddedTokens raw_tokens;         // found in the text as it came
    AddedTokens normalized_tokens;  // found after normalization
    Normalizer normalizer;
    PreTokenizer pre;
    std::unique_ptr<TokenModel> model;
    std::vector<std::string> bytes;                                     // by id: the decoded token
    std::vector<bool> control;                                          // by id
    std::unordered_map<int32_t, std::string, NumberHash> control_text;  // of those with a spelling
    std::vector<int32_t> prefix, suffix;                                // the ids that add_special puts around a text
    bool drops_leading_space = false;
    // By id: the decoded token at the beginning of a text, if that is not `bytes` less one leading space.
    std::unordered_map<int32_t, std::string, NumberHash> first_bytes;
    int32_t bos = -1;
    std::vector<int32_t> eos;
    std::string description;
    std::vector<std::string> notes;
  };
  explicit TextTokenizer(Parts parts) : p_(std::move(parts)) {
    p_.raw_tokens.Build();
    p_.normalized_tokens.Build();
    added_.resize(p_.bytes.size());
    for (const AddedTokens* tokens : {&p_.raw_tokens, &p_.normalized_tokens}) {
      for (const AddedToken& token : tokens->tokens()) {
        if (InRange(token.id)) added_[static_cast<size_t>(token.id)] = true;
      }
    }
  }

  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options) const override;
  Result<std::vector<int32_t>> EncodeSegments(std::span<const TextSegment> segments, size_t most_ids) const override;
  std::string TokenBytes(int32_t id) const override { return InRange(id) ? p_.bytes[static_cast<size_t>(id)] : ""; }
  std::string FirstTokenBytes(int32_t id) const override;
  std::string Decode(std::span<const int32_t> ids) const override;
  bool DropsLeadingSpace() const override { return p_.drops_leading_space; }
  bool IsControl(int32_t id) const override { return InRange(id) && p_.control[static_cast<size_t>(id)]; }
  bool IsAdded(int32_t id) const override { return InRange(id) && added_[static_cast<size_t>(id)]; }
  std::string ControlText(int32_t id) const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(p_.bytes.size()); }
  int32_t bos() const override { return p_.bos; }
  std::vector<int32_t> eos() const override { return p_.eos; }
  std::string Description() const override { return p_.description; }
  std::vector<std::string> Notes() const override { return p_.notes; }

  // Further ids that end a text; those out of range or already there are ignored.
  void AddEos(std::span<const int64_t> ids);

 private:
  struct Scratch;
  bool InRange(int64_t id) const { return id >= 0 && id < static_cast<int64_t>(p_.bytes.size()); }
  // Appends the ids of `text`; `special`: where special tokens are parsed.
  Status EncodeText(std::string_view text, std::span<const ByteRange> special, Scratch& scratch) const;
  Status EncodeRaw(std::string_view text, std::span<const ByteRange> special, bool at_start, Scratch& scratch) const;
  Status EncodeNormalized(std::string_view text, std::span<const ByteRange> special, bool at_start, Scratch& scratch) const;

  Parts p_;
  std::vector<bool> added_;  // by id
};

// Whether published runtimes end generation at a special token spelled so (end of text, turn or message).
// `harmony`: the vocabulary has <|return|> and <|call|>, or <|flush|> and <|calls|> (Solar Open), where <|end|> only ends one of several
// messages.
bool EndsGeneration(std::string_view special_token, bool harmony);

// The status with a message of one printable line of limited length, whatever the message quotes of a file.
Status OneLine(const Status& status);

// As TokenizerFromGguf and TokenizerFromJson. `name`: of the tokenizer.json among the files, which also have tokenizer_config.json or not.
Result<std::unique_ptr<TextTokenizer>> TextTokenizerFromGguf(const Metadata& metadata);
Result<std::unique_ptr<TextTokenizer>> TextTokenizerFromJson(const SideFiles& files, const std::string& name);

}  // namespace tally
