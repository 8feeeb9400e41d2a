// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "engine/chat/jinja/filters.h"
#include "engine/chat/jinja/format.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/str_operations.h"
#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

template <Case to>
Result<Value> CaseFilter(Runtime& run, const Value& self, const CallArguments&) {
  TALLY_ASSIGN_OR_RETURN(const Text text, Str(&run.budget, self));
  TALLY_ASSIGN_OR_RETURN(Text changed, ChangeCase(&run.budget, text, to));
  return Value(std::move(changed));
}

// Words begin after white space, a hyphen or an opening bracket; unlike in str.title.
Result<Value> TitleFilter(Runtime& run, const Value& self, const CallArguments&) {
  TALLY_ASSIGN_OR_RETURN(const Text text, Str(&run.budget, self));
  Text out;
  const std::string& bytes = text.bytes();
  for (size_t at = 0; at < bytes.size();) {
    const auto separates = [](int32_t c) {
      return IsPythonSpace(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
    };
    size_t end = at;
    for (Utf8Char c = ReadUtf8(bytes, end); c.bytes > 0 && separates(c.code); c = ReadUtf8(bytes, end)) end += c.bytes;
    out.AppendPart(text, at, end);
    at = end;
    for (Utf8Char c = ReadUtf8(bytes, end); c.bytes > 0 && !separates(c.code); c = ReadUtf8(bytes, end)) end += c.bytes;
    TALLY_RETURN_IF_ERROR(run.budget.Step());
    TALLY_ASSIGN_OR_RETURN(const Text word, ChangeCase(&run.budget, text.Part(at, end), Case::kCapitalize));
    out.Append(word);
    at = end;
  }
  return Value(std::move(out));
}

Result<Value> StringFilter(Runtime& run, const Value& self, const CallArguments&) {
  TALLY_ASSIGN_OR_RETURN(Text text, Str(&run.budget, self));
  return Value(std::move(text));
}

Result<Value> SafeFilter(Runtime& run, const Value& self, const CallArguments&) {
  TALLY_ASSIGN_OR_RETURN(Text text, Str(&run.budget, self));
  text.set_markup(true);
  return Value(std::move(text));
}

Result<Value> EscapeFilter(Runtime& run, const Value& self, const CallArguments&) {
  TALLY_ASSIGN_OR_RETURN(Text text, Str(&run.budget, self));
  if (text.markup()) return Value(std::move(text));
  TALLY_ASSIGN_OR_RETURN(Text escaped, Escaped(&run.budget, text));
  return Value(std::move(escaped));
}

Result<Value> TrimFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(Text text, Str(&run.budget, self));
  return CallMethod(run, {Value(std::move(text)), "strip"}, arguments);
}

Result<Value> ReplaceFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("replace", {"old", "new", "count"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* old_value, p.Required(0));
  TALLY_ASSIGN_OR_RETURN(const Value* new_value, p.Required(1));
  TALLY_ASSIGN_OR_RETURN(const int64_t count, p[2] != nullptr && p[2]->IsNone() ? Result<int64_t>(-1) : p.Integer(2, -1));
  TALLY_ASSIGN_OR_RETURN(const Text text, Str(&run.budget, self));
  TALLY_ASSIGN_OR_RETURN(const Text old, Str(&run.budget, *old_value));
  TALLY_ASSIGN_OR_RETURN(const Text with, Str(&run.budget, *new_value));
  TALLY_ASSIGN_OR_RETURN(Text replaced, Replace(&run.budget, text, old, with, count));
  return Value(std::move(replaced));
}

Result<Value> FormatFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Text text, Str(&run.budget, self));
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return BadInput("can't handle positional and keyword arguments at the same time");
  }
  if (arguments.named.empty()) {
    TALLY_ASSIGN_OR_RETURN(const Value values, MakeSequence(&run.budget, Sequence::Kind::kTuple, arguments.positional));
    return PercentFormat(&run.budget, text, values);
  }
  Dict named;
  for (const auto& [name, value] : arguments.named) named.Set("s" + name, Text(name, false), value);
  TALLY_ASSIGN_OR_RETURN(const Value values, MakeDict(&run.budget, std::move(named)));
  return PercentFormat(&run.budget, text, values);
}

Result<Value> IndentFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("indent", {"width", "first", "blank"}, arguments));
  if (self.IsUndefined()) return BadInput(self.reason());
  if (!self.IsString()) return BadInput("indent needs a str, not " + self.TypeName());
  Text indention("    ", true);
  if (p[0] != nullptr && p[0]->IsString()) {
    TALLY_RETURN_IF_ERROR(run.budget.Make(p[0]->text().size()));
    indention = p[0]->text();
  } else {
    TALLY_ASSIGN_OR_RETURN(const int64_t width, p.Integer(0, 4));
    if (width > 10000) return BadInput("an indent beyond 10000");
    indention = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), true);
  }
  const Text& text = self.text();
  TALLY_ASSIGN_OR_RETURN(const std::vector<Line> lines, SplitLines(&run.budget, text.bytes()));
  TALLY_RETURN_IF_ERROR(run.budget.Make(text.size() + lines.size() * (indention.size() + 1)));
  Text out;
  if (p.Flag(1)) out.Append(indention);
  // jinja2 adds a newline before it splits: a text that ends with one has an empty last line.
  const bool empty_end = lines.empty() || lines.back().next > lines.back().end;
  for (size_t i = 0; i < lines.size() + (empty_end ? 1 : 0); ++i) {
    const Stretch line = i < lines.size() ? Stretch{lines[i].begin, lines[i].end} : Stretch{};
    if (i > 0) out.Append("\n", true);
    if (i > 0 && (p.Flag(2) || line.begin < line.end)) out.Append(indention);
    out.AppendPart(text, line.begin, line.end);
  }
  return Value(std::move(out));
}

// transformers' own: json.dumps.
Result<Value> ToJson(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p,
                         Parameters::Bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, arguments));
  DumpOptions options;
  options.ensure_ascii = p.Flag(0);
  options.sort_keys = p.Flag(3);
  if (p[1] != nullptr && p[1]->IsString()) {
    options.indent = p[1]->text().Part(0, std::min<size_t>(p[1]->text().size(), 300));
  } else if (p[1] != nullptr && !p[1]->IsNone()) {
    TALLY_ASSIGN_OR_RETURN(const int64_t width, p.Integer(1, 0));
    options.indent = Text(std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, 1000)), ' '), true);
  }
  if (options.indent && options.indent->size() > 256) return BadInput("an indent beyond 256");
  if (options.indent) options.item_separator = Text(",", true);
  if (p[2] != nullptr && !p[2]->IsNone()) {
    TALLY_ASSIGN_OR_RETURN(const Values separators, Iterate(&run.budget, *p[2]));
    if (separators.size() != 2 || !separators[0].IsString() || !separators[1].IsString()) {
      return BadInput("tojson: separators are two strings");
    }
    if (separators[0].text().size() + separators[1].text().size() > 256) return BadInput("separators of more than 256 bytes");
    options.item_separator = separators[0].text();
    options.key_separator = separators[1].text();
  }
  TALLY_ASSIGN_OR_RETURN(Text text, DumpJson(&run.budget, self, options));
  return Value(std::move(text));
}

// ---- numbers

// A text as int() reads it: white space around it, a sign, digits with single underscores between.
std::optional<std::string> PlainNumber(std::string_view text) {
  const Stretch kept = Stripped(text, true, true);
  text = text.substr(kept.begin, kept.end - kept.begin);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
      continue;
    }
    const auto alnum = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    if (i == 0 || i + 1 == text.size() || !alnum(text[i - 1]) || !alnum(text[i + 1])) return std::nullopt;
  }
  if (plain.starts_with('+')) plain.erase(0, 1);
  return plain.starts_with('+') ? std::nullopt : std::optional(plain);
}

std::optional<int64_t> ReadInteger(std::string_view text, int64_t base) {
  std::optional<std::string> plain = PlainNumber(text);
  if (!plain) return std::nullopt;
  const size_t sign = plain->starts_with('-') ? 1 : 0;
  const char kind = plain->size() > sign + 2 && (*plain)[sign] == '0' ? static_cast<char>((*plain)[sign + 1] | 0x20) : '0';
  if ((base == 16 && kind == 'x') || (base == 8 && kind == 'o') || (base == 2 && kind == 'b')) plain->erase(sign, 2);
  int64_t number = 0;
  const char* const end = plain->data() + plain->size();
  const auto read = std::from_chars(plain->data(), end, number, static_cast<int>(base));
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

std::optional<double> ReadFloat(std::string_view text) {
  const std::optional<std::string> plain = PlainNumber(text);
  if (!plain || plain->empty() || plain->find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(plain->c_str(), &end);
  if (end != plain->c_str() + plain->size()) return std::nullopt;
  return number;
}

std::optional<int64_t> Truncated(double number) {
  if (!(std::abs(number) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(number);
}

Result<Value> IntFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("int", {"default", "base"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const int64_t base, p.Integer(1, 10));
  if (base < 2 || base > 36) return BadInput("int: base must be between 2 and 36");
  if (self.IsUndefined()) return BadInput(self.reason());
  std::optional<int64_t> number;
  if (self.IsInteger()) {
    number = self.integer();
  } else if (self.IsFloat()) {
    number = Truncated(self.number());
    if (!number && !std::isnan(self.number())) return BadInput("int: an integer beyond 64 bits");
  } else if (self.IsString()) {
    TALLY_RETURN_IF_ERROR(run.budget.Make(self.text().size()));
    TALLY_RETURN_IF_ERROR(run.budget.Step(self.text().size() / 8));
    number = ReadInteger(self.text().bytes(), base);
    const std::optional<double> real = ReadFloat(self.text().bytes());
    if (!number && real) {
      number = Truncated(*real);
      if (!number && std::isfinite(*real)) return BadInput("int: an integer beyond 64 bits");
    }
  }
  if (number) return Value(*number);
  return p[0] != nullptr ? *p[0] : Value(int64_t{0});
}

Result<Value> FloatFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("float", {"default"}, arguments));
  if (self.IsUndefined()) return BadInput(self.reason());
  if (self.IsNumber()) return Value(self.number());
  if (self.IsString()) {
    TALLY_RETURN_IF_ERROR(run.budget.Make(self.text().size()));
    TALLY_RETURN_IF_ERROR(run.budget.Step(self.text().size() / 8));
    const std::optional<double> number = ReadFloat(self.text().bytes());
    if (number) return Value(*number);
  }
  return p[0] != nullptr ? *p[0] : Value(0.0);
}

Result<Value> AbsFilter(Runtime&, const Value& self, const CallArguments&) {
  if (self.IsUndefined()) return BadInput(self.reason());
  if (!self.IsNumber()) return BadInput("bad operand type for abs(): '" + self.TypeName() + "'");
  if (self.IsFloat()) return Value(std::abs(self.number()));
  return self.integer() < 0 ? Negated(self) : Value(self.integer());
}

Result<Value> RoundFilter(Runtime&, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("round", {"precision", "method"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const int64_t precision, p.Integer(0, 0));
  TALLY_ASSIGN_OR_RETURN(const std::string_view method, p.String(1, "common"));
  if (self.IsUndefined()) return BadInput(self.reason());
  if (!self.IsNumber()) return BadInput("round needs a number, not " + self.TypeName());
  if (precision > 300 || precision < -300) return BadInput("round: a precision out of range");
  const double number = self.number();
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(number * scale) / scale);
  if (method == "floor") return Value(std::floor(number * scale) / scale);
  if (method != "common") return BadInput("method must be common, ceil or floor");
  if (self.IsInteger() && precision >= 0) return Value(self.integer());
  if (precision < 0) {
    const double rounded = std::nearbyint(number * scale) / scale;
    const std::optional<int64_t> whole = Truncated(rounded);
    return self.IsInteger() && whole ? Value(*whole) : Value(rounded);
  }
  if (!std::isfinite(number)) return Value(number);
  char digits[700];  // printf rounds the exact value half to even, as Python does
  std::snprintf(digits, sizeof digits, "%.*f", static_cast<int>(precision), number);
  return Value(std::strtod(digits, nullptr));
}

}  // namespace

const Operations& TextFilters() {
  static const Operations filters = {
      {"lower", CaseFilter<Case::kLower>},
      {"upper", CaseFilter<Case::kUpper>},
      {"capitalize", CaseFilter<Case::kCapitalize>},
      {"title", TitleFilter},
      {"string", StringFilter},
      {"safe", SafeFilter},
      {"e", EscapeFilter},
      {"escape", EscapeFilter},
      {"trim", TrimFilter},
      {"replace", ReplaceFilter},
      {"format", FormatFilter},
      {"indent", IndentFilter},
      {"tojson", ToJson},
      {"int", IntFilter},
      {"float", FloatFilter},
      {"abs", AbsFilter},
      {"round", RoundFilter},
  };
  return filters;
}

}  // namespace tally::jinja
