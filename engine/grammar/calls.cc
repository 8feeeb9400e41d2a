// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/calls.h"

#include <nlohmann/json.hpp>

#include "engine/grammar/schema.h"

namespace tally {
namespace {

// All texts but `text_stop` as the vocabulary spells them.
CallNotation Spelled(const CallNotation& notation, const CallGrammarOptions& options) {
  CallNotation spelled = notation;
  if (!options.spell) return spelled;
  for (std::string* text :
       {&spelled.begin, &spelled.end, &spelled.call_begin, &spelled.id_begin, &spelled.after_name, &spelled.call_end,
        &spelled.between, &spelled.thinking_begin, &spelled.thinking_end, &spelled.key_begin, &spelled.key_end,
        &spelled.text_begin, &spelled.json_begin, &spelled.value_end, &spelled.quote}) {
    if (!text->empty()) *text = options.spell(*text);
  }
  return spelled;
}

Result<Expr> CallsInOne(Expressions& e, const CallNotation& notation, std::span<const CallTool> tools, uint32_t most,
                        std::vector<Expr>& made) {
  Expr id = Expressions::kEmpty;
  if (notation.id != CallId::kNone) {
    ByteSet characters = ByteSet::Range('0', '9');
    const bool letters = notation.id == CallId::kNineLetters;
    if (letters) characters |= ByteSet::Range('A', 'Z');
    if (letters) characters |= ByteSet::Range('a', 'z');
    id = e.Concat(e.Literal(notation.id_begin), e.Repeat(e.Bytes(characters), letters ? 9 : 1, letters ? 9 : 4));
  }
  std::vector<Expr> calls;
  for (const CallTool& tool : tools) {
    const Result<Expr> arguments = ParseArguments(e, tool, notation);
    if (!arguments.ok()) return Status(arguments.status().code(), tool.name + ": " + std::string(arguments.status().message()));
    made.push_back(*arguments);
    std::string name = tool.name;
    if (notation.name_in_string) {
      name = nlohmann::json(name).dump();
      name = name.substr(1, name.size() - 2);
    }
    calls.push_back(e.Concat(
        {e.Literal(notation.call_begin + name), id, e.Literal(notation.after_name), *arguments, e.Literal(notation.call_end)}));
  }
  const Expr call = e.Or(calls);
  Expr thinking = Expressions::kEmpty;
  if (!notation.thinking_begin.empty()) {
    ByteSet text = ByteSet::Range(0, kFirstOfToken - 1);
    thinking = e.Star(e.Concat({e.Literal(notation.thinking_begin), e.Star(e.Bytes(text)), e.Literal(notation.thinking_end)}));
  }
  const uint32_t more = most == Expressions::kUnbounded ? most : most - 1;
  return e.Concat({thinking, e.Literal(notation.begin), call, e.Repeat(e.Concat(e.Literal(notation.between), call), 0, more),
                   e.Literal(notation.end)});
}

}  // namespace

Result<Expr> CallsIn(Expressions& e, std::span<const CallNotation> notations, std::span<const CallTool> tools,
                     const CallGrammarOptions& options, std::vector<Expr>& arguments) {
  std::vector<Expr> parts;
  for (const CallNotation& notation : notations) {
    const CallNotation spelled = Spelled(notation, options);
    TALLY_ASSIGN_OR_RETURN(const Expr part, CallsInOne(e, spelled, tools, options.most, arguments));
    parts.push_back(part);
  }
  return e.Or(parts);
}

}  // namespace tally
