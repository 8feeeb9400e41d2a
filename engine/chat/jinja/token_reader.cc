// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/token_reader.h"

namespace tally::jinja {
namespace {

using Kind = Token::Kind;

}  // namespace

std::string TokenReader::Describe(const Token& token) {
  switch (token.kind) {
    case Kind::kData: return "template data / text";
    case Kind::kPrintBegin: return "begin of print statement";
    case Kind::kPrintEnd: return "end of print statement";
    case Kind::kBlockBegin: return "begin of statement block";
    case Kind::kBlockEnd: return "end of statement block";
    case Kind::kString: return "string";
    case Kind::kInteger: return "integer";
    case Kind::kFloat: return "float";
    case Kind::kEnd: return "end of template";
    case Kind::kName:
    case Kind::kOperator: break;
  }
  return token.text;
}

Status TokenReader::Unexpected(std::string_view expected) const {
  if (Is(Kind::kEnd)) return Fail("unexpected end of template, expected '" + std::string(expected) + "'");
  return Fail("expected token '" + std::string(expected) + "', got '" + Describe(Now()) + "'");
}

Status TokenReader::Expect(Kind kind) {
  if (!Is(kind)) return Unexpected(Describe({kind, 1, kind == Kind::kName ? "name" : ""}));
  Take();
  return {};
}

Status TokenReader::ExpectOperator(std::string_view op) { return TakeOperator(op) ? Status() : Unexpected(op); }
Status TokenReader::ExpectName(std::string_view name) { return TakeName(name) ? Status() : Unexpected(name); }

Result<std::string> TokenReader::AnyName() {
  if (!Is(Kind::kName)) return Unexpected("name");
  return Take().text;
}

Status TokenReader::CheckNesting() const {
  return depth_ > kMaxNesting ? Fail("nested deeper than " + std::to_string(kMaxNesting)) : Status();
}

}  // namespace tally::jinja
