// SPDX-License-Identifier: Apache-2.0
// How values are written: as JSON, or as the arguments of a call in their notation. Internal to the schema's compiler.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/call_notation.h"
#include "engine/grammar/code_points.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema_document.h"

namespace tally {

// A value as JSON: numbers without exponents, strings in their shortest spelling, members in their order.
std::string WrittenJson(const SchemaJson& value, JsonSpace space);

enum class StringStyle : uint8_t {
  kQuoted,
  kBare,  // kTagged: an argument's text
};

struct ObjectMarks {
  Expr open = Expressions::kEmpty, comma = Expressions::kEmpty, close = Expressions::kEmpty;
};

class JsonWriter {
 public:
  // `notation`: of arguments; null: JSON. Must outlive the writer.
  JsonWriter(Expressions& e, JsonSpace space, const CallNotation* notation);

  ArgumentNotation notation() const { return notation_ == nullptr ? ArgumentNotation::kJson : notation_->arguments; }
  Expr Comma() const { return e_.Literal(comma_); }
  Expr Colon() const { return e_.Literal(colon_); }
  Expr Null(StringStyle style) const;
  Expr Boolean(bool value, StringStyle style) const;
  ObjectMarks Object() const { return {e_.Literal("{"), Comma(), e_.Literal("}")}; }
  ObjectMarks Arguments() const;
  // A name and what stands around the value; none: it cannot be written.
  std::optional<Expr> Member(const std::string& name, Expr value, bool argument) const;
  // A member of some other name, where names have no quotes.
  Expr OtherMember(const std::vector<std::string>& listed, Expr value, bool argument) const;

  // Characters within a string: in any spelling, and in the shortest.
  Expr AnyCharacter(StringStyle style);
  Expr PlainCharacter(StringStyle style);
  Spelling Plain(StringStyle style) const;
  std::string Inside(const std::string& text, StringStyle style) const;
  Expr Whole(Expr inside, StringStyle style);  // the string
  Expr FreeString() { return Whole(e_.Star(AnyCharacter(StringStyle::kQuoted)), StringStyle::kQuoted); }
  // kNone: it cannot be written.
  Expr Value(const SchemaJson& value, StringStyle style);
  bool SaysType() const { return notation_->text_begin != notation_->json_begin; }  // kTagged
  // kTagged: what stands before text, and before other values.
  Expr AsText(Expr text) const { return e_.Concat(e_.Literal(notation_->text_begin), text); }
  Expr AsValue(Expr value) const { return e_.Concat(e_.Literal(notation_->json_begin), value); }

 private:
  bool HasEscapes(StringStyle style) const;
  CodePoints NameCharacters(bool argument) const;
  bool IsQuoted(bool argument) const;  // names of members

  Expressions& e_;
  const CallNotation* const notation_;
  const std::string comma_, colon_;
  Expr any_[2] = {}, plain_[2] = {};
};

}  // namespace tally
