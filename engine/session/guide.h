// SPDX-License-Identifier: Apache-2.0
// An answer that follows a grammar: which tokens may be drawn, and which are decided without a step of the model. Internal to the session.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/chat_format.h"
#include "engine/grammar/grammar.h"
#include "engine/session/answer_calls.h"
#include "engine/session/model.h"

namespace tally {

// The tokens that end an answer of the model.
std::vector<int32_t> EndTokens(const Model& model);

// Where in an answer the grammar begins, and how it is followed.
struct GuideOptions {
  std::shared_ptr<Grammar> grammar = {};  // of the content; null: it is free
  AnswerStart start = {};
  bool may_call = false;                          // the answer may be calls instead
  std::shared_ptr<const AnswerCalls> calls = {};  // what calls are held to; null: they are free
};

class Guide {
 public:
  // kBadInput: calls may be made beside content of a grammar, and it cannot be seen where they begin.
  static Status Check(const Model& model, const GuideOptions& options);
  // The model has a tokenizer and outlives the guide. There is a grammar, or calls are held to one.
  Guide(const Model& model, GuideOptions options);

  // Which tokens may come next; empty: all. Valid until the next call.
  std::span<const uint64_t> Mask();
  // The only token that may; -1: there are several, or none.
  int32_t Only();
  // False: it may not come, and nothing has changed.
  bool Take(int32_t token);
  bool IsComplete() const;  // nothing may follow
  bool is_full() const;     // Grammar::is_full: no token is left
  // Of tokens that may follow in this order, how many the grammar allows. An end token is not among them.
  size_t Allowed(std::span<const int32_t> tokens) const;
  // Tokens that follow, whatever the model says, cut as the tokenizer cuts the whole text. What the text after them may change is left out.
  std::vector<int32_t> Forced() const;

 private:
  enum class Place : uint8_t {
    kStart,     // content may begin, and what may precede it
    kThinking,  // up to the mark that ends it
    kChannels,  // harmony, free content: up to a function's header
    kHeader,    // harmony, content of a grammar: a header, which follows a grammar of its own
    kMessage,   // harmony, content of a grammar: a message of thinking
    kContent,   // the grammar: of the content, or of calls
    kFree,      // content without a grammar, or calls
  };
  struct Headers {
    GrammarCursor begin;                 // before the end of a message
    GrammarCursor content;               // where it begins
    std::map<std::string, Place> after;  // the end of a message and a header, spelled; kChannels: a call that is held
    std::string end;                     // of a message, and what precedes the next header
  };
  bool IsEnd(int32_t token) const;
  void HoldHeaders(const Model& model);
  bool TakeContent(int32_t token);
  bool TakeHeldHeader(int32_t token);
  bool TakeBefore(int32_t token);
  bool TakeFree(int32_t token);
  void TakeThinking();
  void TakeHeader();
  bool BeginCalls(std::string_view bytes);
  const std::vector<int32_t>& WrongBehind(const CallSign& sign, size_t n);
  void MaskFree();
  std::string_view BytesBehind(const CallSign& sign, size_t n, int32_t token) const;
  std::vector<std::pair<const CallSign*, size_t>> Begun() const;
  std::vector<int32_t> CutOf(std::span<const int32_t> known, const std::string& text, const GrammarCursor* after) const;
  std::vector<int32_t> CutBehind(std::span<const int32_t> known, const std::string& text) const;

  const Tokenizer& tokenizer_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  const GuideOptions options_;
  std::optional<GrammarCursor> calls_begin_;  // of calls that may be made
  std::shared_ptr<const Headers> headers_;    // of kHeader and kMessage
  GrammarCursor cursor_;
  Place place_ = Place::kContent;
  std::string before_;               // the text of the place, tokens that are no text spelled
  bool is_whole_ = true;             // before_ is all of it
  bool is_free_ = false;             // the content is
  bool may_be_calls_ = false;        // kFree: signs of calls count
  int32_t thinking_ = -1;            // the token that begins thinking; -1: it is not one token, or there is none
  std::vector<int32_t> call_marks_;  // tokens that begin calls
  std::vector<int32_t> gap_;         // tokens of line feeds, which may come before the content; none: no longer
  std::map<std::pair<const CallSign*, size_t>, std::vector<int32_t>> wrong_;  // of WrongBehind
  TokenMask mask_;
  std::vector<uint64_t> more_;   // a mask that is more than the grammar's
  std::vector<int32_t> recent_;  // the last tokens of the answer
};

}  // namespace tally
