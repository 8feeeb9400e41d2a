// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding by ranked merges (Sennrich et al. 2016; over bytes: Radford et al. 2019).
#pragma once

#include <array>
#include <memory>
#include <span>

#include "engine/text/model.h"

namespace tally {

struct BpeOptions {
  bool byte_level = true;       // symbols are bytes written in GPT-2's alphabet; else characters
  bool byte_fallback = false;   // a character without a token becomes its bytes' tokens <0xNN>
  bool ignore_merges = false;   // a piece that is a token is that token
  bool fuse_unknown = false;    // neighbouring unknown characters are one unknown token
  bool last_duplicate = false;  // of two equal merges the later counts (Hugging Face; llama.cpp: the earlier)
  int32_t unknown = -1;         // -1: a character without a token is an error
  // By id: tokens that ignore_merges must not find in text, whatever their spelling. Null for none; read by
  // MakeBpe only.
  const std::vector<bool>* control = nullptr;
};

// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 onwards in order. The bytes that `token` is written
// for; false if a character is outside the alphabet.
bool BytesOfAlphabet(std::string_view token, std::string* bytes);
std::string AlphabetOfBytes(std::string_view bytes);
// The value of a token spelled <0xNN>, -1 for others. any_case: <0xnn> too, as decoders read it.
int ByteOfToken(std::string_view token, bool any_case = false);

// `vocab`: spelling -> id, as in the file. `merges`: left and right spellings, best first.
// Errors name the merge; `where` begins their line.
Result<std::unique_ptr<TokenModel>> MakeBpe(const BpeOptions& options, const StringMap<int32_t>& vocab,
                                            std::span<const std::pair<std::string_view, std::string_view>> merges,
                                            const std::string& where);

// SentencePiece's BPE: whichever neighbours make the token of the highest score are merged; characters
// without a token become bytes. `tokens`: spelling and score by id; only those with `mergeable` take part.
struct ScoredToken {
  std::string_view text;
  float score = 0;
  bool mergeable = true;
};
// `bytes`: the id of each byte's token, -1 if there is none.
Result<std::unique_ptr<TokenModel>> MakeScoredBpe(std::span<const ScoredToken> tokens, const std::array<int32_t, 256>& bytes,
                                                  int32_t unknown);

// tiktoken's BPE: of all neighbours that together are a token, those of the lowest id are merged first; a piece that is a token
// is that token. `tokens`: bytes by id, empty for none; each of the 256 bytes must be one, and no two may be equal.
std::unique_ptr<TokenModel> MakeRankedBpe(std::span<const std::string> tokens);

}  // namespace tally
