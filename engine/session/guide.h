// SPDX-License-Identifier: Apache-2.0
// An answer that follows a grammar: which tokens may be drawn, and which are decided without a step of the model. Internal to the session.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/chat/chat_format.h"
#include "engine/grammar/grammar.h"
#include "engine/session/model.h"
#include "engine/session/request.h"

namespace tally {

// The tokens that end an answer of the model.
std::vector<int32_t> EndTokens(const Model& model);

// Where in an answer the grammar begins, and how it is followed.
struct GuideOptions {
  std::shared_ptr<Grammar> grammar = {};
  AnswerStart start = {};
  bool may_call = false;                        // the answer may be calls instead: those are free
  std::shared_ptr<const ForcedCall> call = {};  // in place of a grammar
};

class Guide {
 public:
  // kBadInput: calls may be made, and it cannot be seen where they begin.
  static Status Check(const Model& model, const GuideOptions& options);
  // The model has a tokenizer and outlives the guide.
  Guide(const Model& model, GuideOptions options);

  // Which tokens may come next. Valid until the next call.
  std::span<const uint64_t> Mask();
  // The only token that may; -1: there are several, or none.
  int32_t Only();
  // False: it may not come, and nothing has changed.
  bool Take(int32_t token);
  bool IsComplete() const;  // nothing may follow
  // Of tokens that may follow in this order, how many the grammar allows. An end token is not among them.
  size_t Allowed(std::span<const int32_t> tokens) const;
  // Tokens that follow, whatever the model says, cut as the tokenizer cuts the whole text. What the text after them may change is left out.
  std::vector<int32_t> Forced() const;

 private:
  enum class Place : uint8_t {
    kStart,     // content may begin, and what may precede it
    kThinking,  // up to the mark that ends it
    kChannels,  // harmony, up to the message of the final channel
    kContent,   // the grammar; of a forced call: queue_, then it
    kFree,      // calls
  };
  bool IsEnd(int32_t token) const;
  std::vector<int32_t> TokensOf(const std::string& text) const;
  void BeginContent();
  bool NextPart();
  bool MayThink() const;
  std::vector<int32_t> CutBehind(std::span<const int32_t> known, const std::string& text) const;
  bool TakeContent(int32_t token);
  bool TakeBefore(int32_t token);

  const Tokenizer& tokenizer_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  GrammarCursor cursor_;
  const GuideOptions options_;
  Place place_ = Place::kContent;
  std::string before_;          // text of the place before content, control tokens spelled
  int32_t thinking_ = -1;       // the token that begins thinking; -1: it is not one token, or there is none
  std::vector<int32_t> calls_;  // that begin calls
  // A forced call. Tokens that come next, and which part follows the grammar of now.
  std::vector<int32_t> queue_;
  enum class Part : uint8_t { kNone, kName, kArguments, kEnd } part_ = Part::kNone;
  std::string name_;       // read so far
  int32_t analysis_ = -1;  // harmony: the token by which thinking begins in place of the call; -1: none, or no longer
  std::string thinking_end_;
  TokenMask mask_;
  std::vector<uint64_t> more_;   // a mask that is more than the grammar's
  std::vector<int32_t> recent_;  // the last tokens of the answer
};

}  // namespace tally
