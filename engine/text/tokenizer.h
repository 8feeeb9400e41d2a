// SPDX-License-Identifier: Apache-2.0
// Tokenizers: byte-level BPE and SentencePiece-style BPE with byte fallback, from GGUF metadata or
// tokenizer.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"
#include "loaders/inventory/inventory.h"

namespace tally {

struct EncodeOptions {
  bool add_special = true;     // BOS (and EOS) if the model's tokenizer adds them
  bool parse_special = false;  // special tokens spelled out in the text become tokens
  size_t most_ids = SIZE_MAX;  // kNoRoom: there are more; the rest of the text is not encoded
};

// A stretch of a text that is encoded as one.
struct TextSegment {
  std::string_view text;
  bool parse_special = false;  // special tokens spelled out in it become tokens
};

// Does not change: any number of threads may use one at once.
class TALLY_API Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // UTF-8 (invalid bytes become U+FFFD) -> ids. NUL bytes are text like any other. kBadInput: a character without a token in a
  // vocabulary without an unknown token; a text that is too costly for an expression of the tokenizer.
  virtual Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const = 0;
  // The ids of the joined text, with nothing added before or after it. Special tokens are those that lie in segments that parse them
  // (neighbouring ones count as one). Errors as Encode.
  virtual Result<std::vector<int32_t>> EncodeSegments(std::span<const TextSegment> segments,
                                                      size_t most_ids = SIZE_MAX) const = 0;
  // The bytes of one token; empty for control tokens. May be part of a character. Ids out of range: empty.
  virtual std::string TokenBytes(int32_t id) const = 0;
  // All of them, as published decoders have it: a leading space that encoding added is dropped
  // (SentencePiece), and invalid bytes become U+FFFD.
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
  virtual bool DropsLeadingSpace() const = 0;  // whether Decode drops the first token's leading space
  // The decoded text of a token that begins a text: TokenBytes without that space (Metaspace: without all spaces).
  virtual std::string FirstTokenBytes(int32_t id) const;
  virtual bool IsControl(int32_t id) const = 0;
  virtual bool IsAdded(int32_t) const { return false; }   // found in a text before it is cut, control tokens or not
  virtual std::string ControlText(int32_t id) const = 0;  // the spelling of a control token, "<|im_end|>"; empty for others
  virtual int32_t vocab_size() const = 0;
  virtual int32_t bos() const = 0;               // -1: none
  virtual std::vector<int32_t> eos() const = 0;  // end of text, turn or message
  virtual std::string Description() const = 0;   // "byte-level BPE (gpt-2), 50257 tokens"
  // Clauses for the user, without the file's name: what the file leaves open, and what in it was not followed.
  virtual std::vector<std::string> Notes() const { return {}; }
};

// From the tokenizer.ggml.* keys of a GGUF. Error kBadInput names the key; a model of an unsupported kind is
// named.
TALLY_API Result<std::unique_ptr<Tokenizer>> TokenizerFromGguf(const Metadata& metadata);
// From a tokenizer.json (Hugging Face tokenizers); tokenizer_config.json beside it is read for BOS/EOS if present.
TALLY_API Result<std::unique_ptr<Tokenizer>> TokenizerFromJson(const std::string& path);
// From a file of ranks as tiktoken publishes them: on each line a token's bytes in base64, a space and its rank, which is its id.
// The file holds neither the expression that cuts text nor the special tokens: both come with the encoding, "r50k_base",
// "p50k_base", "cl100k_base", "o200k_base" or "o200k_harmony" ("_base" may be left out). Empty: the one that the file is named
// for, whose number of ranks it must then have. A file of another number of ranks has no special tokens. Error kBadInput names
// the file and the line.
TALLY_API Result<std::unique_ptr<Tokenizer>> TokenizerFromRanks(const std::string& path, const std::string& encoding = "");
// kBadInput, naming them: the file, or files of the directory, hold a tokenizer of another kind than tokenizer.json (SentencePiece's
// .model, vocab.json and merges.txt, tekken.json, ...).
TALLY_API Status UnreadTokenizer(const std::string& path);
// The tokenizer of the checkpoint, of whichever kind; null if it has none (token ids in, token ids out).
TALLY_API Result<std::unique_ptr<Tokenizer>> TokenizerFor(const Inventory& inventory);

// The tokenizer of a Hugging Face directory as keys of its GGUF file.
struct GgufTokenizer {
  std::vector<std::pair<std::string, MetaValue>> keys;
  // A property that tokenizer.* has no key for. It is written under Tally's own keys, tally.tokenizer.*, which other engines do not know.
  struct Loss {
    std::string name;  // one of TokenizerLossNames
    std::string what;  // "its normalizer"
  };
  std::vector<Loss> losses;
};
// "strip", "normalized", "normalizer", "space", "ends"; and "all", for a tokenizer that cannot be written.
TALLY_API std::vector<std::string_view> TokenizerLossNames();

// Unused tokens are added up to `vocab`. `name`: general.name of the file, by which engines recognise Phi-3's tokens. kBadInput: a
// tokenizer that the keys cannot express, or of more tokens. The result is read back, and texts of all kinds, with special tokens and white
// space beside them, must have the same tokens as before.
TALLY_API Result<GgufTokenizer> GgufTokenizerKeys(const Inventory& directory, int32_t vocab, const std::string& name);

// Turns a stream of tokens into text, holding back bytes until they form whole UTF-8 characters.
class StreamingDecoder {
 public:
  // `at_start`: the first token begins a text, so that the space its encoding added is dropped (as Decode does); false for tokens that
  // follow others, such as generated ones after a prompt. `tokenizer` must outlive it.
  explicit StreamingDecoder(const Tokenizer& tokenizer, bool at_start = true) : tokenizer_(&tokenizer), first_(at_start) {}
  TALLY_API std::string Push(int32_t id);  // the text that became complete
  TALLY_API std::string Finish();          // what is left, invalid bytes as U+FFFD

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
  bool first_;
};

}  // namespace tally
