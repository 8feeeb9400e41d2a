// SPDX-License-Identifier: Apache-2.0
// What an answer may be: a JSON Schema, a regular expression, a grammar. A grammar is compiled once and shared; a GrammarCursor follows one
// answer through it, and says which tokens may come next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/grammar/call_notation.h"
#include "engine/grammar/vocabulary.h"

namespace tally {

struct SchemaOptions {
  JsonSpace space = JsonSpace::kNone;
};

// What is done with a keyword of JSON Schema.
struct SchemaKeyword {
  std::string_view name = {};
  std::string_view held = {};  // "exactly", "refused", or what of it is held
};
TALLY_API std::vector<SchemaKeyword> SchemaKeywords();
TALLY_API std::vector<std::string_view> SchemaFormats();  // that are held

// A mask of tokens: bit i % 64 of word i / 64 allows token i.
using TokenMask = std::shared_ptr<const std::vector<uint64_t>>;

// Any number of threads may use one at once. What makes one gives kBadInput: what is wrong and where, in one line; that no answer is in it;
// kNoRoom: it needs more states than there may be.
class TALLY_API Grammar {
 public:
  // Documents that a JSON Schema allows, drafts 2020-12 and 7 (https://json-schema.org/specification), as they are written: members in the
  // order of `properties`, then others; integers without a fraction; strings in any spelling of JSON, or in their shortest where a pattern,
  // a format or names hold them. A keyword that cannot be held exactly is kBadInput.
  static Result<std::shared_ptr<Grammar>> FromSchema(std::string_view schema, const SchemaOptions& options = {});
  // Any document; `object`: that is an object.
  static Result<std::shared_ptr<Grammar>> Json(bool object, const SchemaOptions& options = {});
  static Result<std::shared_ptr<Grammar>> FromRegex(std::string_view pattern);  // the whole answer matches (ECMA-262, flag u)
  static Result<std::shared_ptr<Grammar>> FromGbnf(std::string_view text);      // as llama.cpp has them; the rule root
  static Result<std::shared_ptr<Grammar>> FromChoices(std::span<const std::string> choices);
  // Calls of the tools in one of the notations. kBadInput, "NAME: PLACE: ...": arguments that cannot be held, or written in a notation.
  static Result<std::shared_ptr<Grammar>> FromCalls(std::span<const CallNotation> notations, std::span<const CallTool> tools,
                                                    const CallGrammarOptions& options = {});
  ~Grammar();

  // Whether the text is in it, byte by byte.
  bool Accepts(std::string_view text);
  // Of a schema: whether the document is in it, with its members in some order, its numbers and strings as they are written here.
  // kBadInput: it is no JSON; too many orders would have to be tried.
  Result<bool> AcceptsDocument(std::string_view document);
  // What a schema has that says nothing here, by its place: "/properties/a/format: color".
  const std::vector<std::string>& ignored() const;
  size_t states() const;  // that texts have reached so far
  // A text needed more states than there may be, or more work: no token follows any longer, for no answer. Another must be made.
  bool is_full() const;
  uint64_t bytes() const;  // of memory, about

 private:
  friend class GrammarCursor;
  struct Machine;
  explicit Grammar(std::unique_ptr<Machine> machine);
  std::unique_ptr<Machine> machine_;
};

// One answer. A copy goes its own way.
class TALLY_API GrammarCursor {
 public:
  GrammarCursor(std::shared_ptr<Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);

  // The tokens that may come next; tokens that end an answer are among them where the grammar may end. No token: nothing that the
  // vocabulary has can follow.
  TokenMask Mask();
  // The token comes next. False: it may not, and the cursor is as before. A token that ends an answer ends it.
  bool Take(int32_t token);
  bool TakeBytes(std::string_view bytes);
  bool ended() const { return ended_; }
  bool MayEnd() const;
  bool IsComplete() const;  // nothing but an end may follow
  // Finds the masks of the states that answers reach first, for some milliseconds, unless that was done before: the first answers then wait
  // less.
  void Prepare();
  // The bytes that must come next: as long as one byte is the only one, and the answer cannot end. At most `most` bytes.
  std::string Forced(size_t most = 4096) const;
  // The bytes that may come next, a bit each.
  std::array<uint64_t, 4> FirstBytes() const;

 private:
  std::shared_ptr<Grammar> grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  uint32_t state_ = 0;
  bool ended_ = false;
};

}  // namespace tally
