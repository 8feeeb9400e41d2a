// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/schema_compiler.h"

#include <algorithm>
#include <functional>

#include "engine/grammar/code_points.h"
#include "engine/grammar/formats.h"
#include "engine/grammar/regex.h"

namespace tally {
namespace {

using Json = SchemaJson;

constexpr size_t kMostUnique = 8;  // values of a list without repetition

}  // namespace

Expr SchemaCompiler::Any() {
  if (any_ == Expressions::kNone) {
    any_ = e_.NewRule("any JSON");
    const Expr comma = writer_.Comma();
    const Expr member = writer_.notation() == ArgumentNotation::kBraced
                            ? writer_.OtherMember({}, any_, /*argument=*/false)
                            : e_.Concat({writer_.FreeString(), writer_.Colon(), any_});
    any_object_ =
        e_.Concat({e_.Literal("{"), e_.Optional(e_.Concat(member, e_.Star(e_.Concat(comma, member)))), e_.Literal("}")});
    any_array_ = e_.Concat({e_.Literal("["), e_.Optional(e_.Concat(any_, e_.Star(e_.Concat(comma, any_)))), e_.Literal("]")});
    const StringStyle style = StringStyle::kQuoted;
    e_.Define(any_, e_.Or({writer_.Null(style), writer_.Boolean(true, style), writer_.Boolean(false, style),
                           *NumbersOf(e_, NumberBounds()), writer_.FreeString(), any_array_, any_object_}));
  }
  return any_;
}

Result<Expr> SchemaCompiler::Values(const Items& items, int depth) {
  uint8_t types = kAllTypes;
  std::optional<std::vector<const Json*>> values;
  for (const auto& [schema, done] : items) {
    if (const Json* const type = FindKeyword(*schema, "type"); type != nullptr) {
      uint8_t named = 0;
      for (const Json& name : type->is_array() ? *type : Json::array({*type})) named |= TypeNamed(name.get<std::string>());
      types &= named;
    }
    for (const char* keyword : {"enum", "const"}) {
      const Json* const given = FindKeyword(*schema, keyword);
      if (given == nullptr) continue;
      std::vector<const Json*> left;
      const auto allow = [&](const Json& value) {
        if (!values || std::ranges::any_of(*values, [&](const Json* other) { return AreEqual(*other, value); }))
          left.push_back(&value);
      };
      if (std::string_view(keyword) == "const") {
        allow(*given);
      } else {
        for (const Json& value : *given) allow(value);
      }
      values = std::move(left);
    }
  }
  std::vector<const Json*> except;
  for (const auto& [schema, done] : items) {
    if (const Json* const opposite = FindKeyword(*schema, kNotEnum); opposite != nullptr) {
      for (const Json& value : *opposite) except.push_back(&value);
    }
  }
  const auto is_marked = [&](SchemaItem::Done mark) {
    return std::ranges::any_of(items, [&](const SchemaItem& item) { return (item.done & mark) != 0; });
  };
  const bool arguments = is_marked(SchemaItem::kArguments), bare = is_marked(SchemaItem::kBare),
             is_text = is_marked(SchemaItem::kText);
  const StringStyle style = bare ? StringStyle::kBare : StringStyle::kQuoted;
  const auto json = [&](Expr value) { return bare ? writer_.AsValue(value) : value; };
  const auto has = [&](std::initializer_list<const char*> keywords) {
    return std::ranges::any_of(items, [&](const SchemaItem& item) {
      return std::ranges::any_of(keywords, [&](const char* keyword) { return item.schema->contains(keyword); });
    });
  };
  const bool of_numbers = has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
  const bool of_strings = has({"minLength", "maxLength", "pattern", "format", kNotPattern});
  const bool of_objects = has({"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "required",
                               "propertyNames", "minProperties", "maxProperties"});
  const bool of_arrays = has({"items", "prefixItems", "additionalItems", "contains", "minItems", "maxItems", "uniqueItems"});
  if (arguments) {
    if (values || !except.empty())
      return Error(*items.front().schema, "arguments that are one of some constants are not supported");
    return (types & kObjectType) != 0 ? Objects(items, depth) : Result<Expr>(Expressions::kNone);
  }
  if (values) {
    std::vector<Expr> parts;
    for (const Json* value : *values) {
      const uint8_t type = TypeOf(*value);
      if ((types & type) == 0) continue;
      if (std::ranges::any_of(except, [&](const Json* other) { return AreEqual(*value, *other); })) continue;
      if ((type == kObjectType && of_objects) || (type == kArrayType && of_arrays)) {
        return Error(*items.front().schema,
                     "enum or const of objects or lists beside keywords about their parts is not supported");
      }
      Expr written = writer_.Value(*value, style);
      if (e_.is_full()) return NoRoom("enum has too many values");
      if (written == Expressions::kNone) return Error(*items.front().schema, "a constant that cannot be written as an argument");
      if ((type & (kIntegerType | kFractionType)) != 0 && of_numbers) {
        TALLY_ASSIGN_OR_RETURN(const Expr numbers, Numbers(items, type == kIntegerType ? uint8_t{kIntegerType} : types, {}));
        written = e_.And({written, numbers});
      }
      if (type == kStringType && of_strings) {
        TALLY_ASSIGN_OR_RETURN(const Expr strings, Strings(items, {}, style));
        written = e_.And({written, strings});
      }
      if (bare && type == kStringType) {
        written = BareText(written, is_text);
      } else {
        written = json(written);
      }
      parts.push_back(written);
    }
    return e_.Or(parts);
  }
  if (!bare && types == kAllTypes && except.empty() && !of_numbers && !of_strings && !of_objects && !of_arrays) return Any();
  std::vector<Expr> parts;
  const auto is_out = [&](const Json& value) {
    return std::ranges::any_of(except, [&](const Json* other) { return AreEqual(*other, value); });
  };
  if ((types & kNullType) != 0 && !is_out(nullptr)) parts.push_back(json(writer_.Null(style)));
  for (const bool value : {false, true}) {
    if ((types & kBooleanType) != 0 && !is_out(value)) parts.push_back(json(writer_.Boolean(value, style)));
  }
  if ((types & (kIntegerType | kFractionType)) != 0) {
    TALLY_ASSIGN_OR_RETURN(const Expr numbers, Numbers(items, types, except));
    parts.push_back(json(numbers));
  }
  if ((types & kStringType) != 0) {
    TALLY_ASSIGN_OR_RETURN(const Expr strings, Strings(items, except, style));
    parts.push_back(bare ? BareText(strings, is_text) : strings);
  }
  for (const uint8_t type : {uint8_t{kArrayType}, uint8_t{kObjectType}}) {
    if ((types & type) != 0 && std::ranges::any_of(except, [&](const Json* value) { return TypeOf(*value) == type; })) {
      return Error(*items.front().schema, std::string("not of an enum or const with ") +
                                              (type == kArrayType ? "lists" : "objects") + " is not supported");
    }
  }
  if ((types & kArrayType) != 0) {
    TALLY_ASSIGN_OR_RETURN(const Expr arrays, of_arrays ? Arrays(items, depth) : Result<Expr>(AnyArray()));
    parts.push_back(json(arrays));
  }
  if ((types & kObjectType) != 0) {
    TALLY_ASSIGN_OR_RETURN(const Expr objects, of_objects ? Objects(items, depth) : Result<Expr>(AnyObject()));
    parts.push_back(json(objects));
  }
  return e_.Or(parts);
}

Result<Expr> SchemaCompiler::Numbers(const Items& items, uint8_t types, const std::vector<const Json*>& except) {
  NumberBounds bounds;
  bounds.integers = (types & kFractionType) == 0;
  bounds.fractions = (types & kIntegerType) == 0;
  for (const SchemaItem& item : items) {
    const Json* const schema = item.schema;
    const auto number = [&](const char* keyword) -> Result<std::optional<Decimal>> {
      const Json* const value = FindKeyword(*schema, keyword);
      if (value == nullptr) return std::optional<Decimal>();
      const std::optional<Decimal> parsed = Decimal::Parse(value->dump());
      if (!parsed) return Error(*schema, std::string(keyword) + " has too many digits");
      return parsed;
    };
    for (const bool out : {false, true}) {
      TALLY_ASSIGN_OR_RETURN(const std::optional<Decimal> least, number(out ? "exclusiveMinimum" : "minimum"));
      TALLY_ASSIGN_OR_RETURN(const std::optional<Decimal> most, number(out ? "exclusiveMaximum" : "maximum"));
      if (least) {
        const int order = bounds.least ? Compare(*least, *bounds.least) : 1;
        if (order > 0) bounds.above = out;
        if (order == 0) bounds.above |= out;
        if (order > 0) bounds.least = least;
      }
      if (most) {
        const int order = bounds.most ? Compare(*most, *bounds.most) : -1;
        if (order < 0) bounds.below = out;
        if (order == 0) bounds.below |= out;
        if (order < 0) bounds.most = most;
      }
    }
    TALLY_ASSIGN_OR_RETURN(const std::optional<Decimal> multiple, number("multipleOf"));
    if (multiple) bounds.multiples.push_back(*multiple);
  }
  for (const Json* value : except) {
    if (value->is_number()) {
      const std::optional<Decimal> parsed = Decimal::Parse(value->dump());
      if (!parsed) return Error(*items.front().schema, "a number with too many digits");
      if (!bounds.integers || parsed->is_integer()) bounds.except.push_back(*parsed);
    }
  }
  const std::optional<Expr> numbers = NumbersOf(e_, bounds);
  if (!numbers) return Error(*items.front().schema, "multipleOf has too many remainders to be held");
  return *numbers;
}

// Text of an argument. Where it may also be of another type, not what spells a value: its reader takes that for one (BareTextToJson
// in chat/).
Expr SchemaCompiler::BareText(Expr text, bool is_text) {
  if (is_text || writer_.SaysType()) return writer_.AsText(text);
  // Whether the rest of a list, an object or a string is JSON would need a stack: any text that begins so.
  const Expr begins = e_.Or({e_.Literal("["), e_.Literal("{"), e_.Literal("\"")});
  const StringStyle style = StringStyle::kBare;
  const Expr values = e_.Or({writer_.Null(style), writer_.Boolean(true, style), writer_.Boolean(false, style),
                             *NumbersOf(e_, NumberBounds()), e_.Concat(begins, e_.Star(e_.Bytes(ByteSet::All())))});
  ByteSet spaces;
  for (const char c : {' ', '\t', '\n', '\r'}) spaces.Add(static_cast<uint8_t>(c));
  const Expr space = e_.Star(e_.Bytes(spaces));
  return writer_.AsText(e_.And({text, e_.Not(e_.Concat({space, values, space}))}));
}

// Whether a string has the schema's pattern and this of its format. zod's times have none: they are without the zone that RFC 3339 wants.
bool SchemaCompiler::Fits(const Json& schema, std::string_view format) {
  const Json* const pattern = FindKeyword(schema, "pattern");
  if (pattern == nullptr) return true;
  const auto [known, is_new] = fits_.try_emplace(&schema, true);
  if (!is_new) return known->second;
  Expressions e;
  const Result<Expr> x = ParseRegex(e, pattern->get<std::string>(), {.search = true}), y = ParseRegex(e, format, {});
  if (!x.ok() || !y.ok()) return true;
  const Expr both = e.And({*x, *y});
  return known->second = !e.Finish().ok() || !e.IsNone(both) || e.is_full();
}

Result<Expr> SchemaCompiler::Strings(const Items& items, const std::vector<const Json*>& except, StringStyle style) {
  uint64_t least = 0, most = Expressions::kUnbounded;
  std::vector<Expr> also;
  const auto hold = [&](const Json& schema, const std::string& pattern, bool search) -> Result<Expr> {
    Result<Expr> expr = ParseRegex(e_, pattern, {.search = search, .spelling = writer_.Plain(style)});
    if (!expr.ok()) return Error(schema, "pattern " + pattern + ": " + expr.status().message());
    return expr;
  };
  for (const auto& [schema, done] : items) {
    if (const Json* const length = FindKeyword(*schema, "minLength"); length != nullptr)
      least = std::max(least, CountOf(*length));
    if (const Json* const length = FindKeyword(*schema, "maxLength"); length != nullptr) most = std::min(most, CountOf(*length));
    if (const Json* const pattern = FindKeyword(*schema, "pattern"); pattern != nullptr) {
      TALLY_ASSIGN_OR_RETURN(const Expr expr, hold(*schema, pattern->get<std::string>(), true));
      also.push_back(expr);
    }
    if (const Json* const pattern = FindKeyword(*schema, kNotPattern); pattern != nullptr) {
      TALLY_ASSIGN_OR_RETURN(const Expr expr, hold(*schema, pattern->get<std::string>(), true));
      also.push_back(e_.Not(expr));
    }
    if (const Json* const format = FindKeyword(*schema, "format"); format != nullptr) {
      const std::string_view pattern = FormatPattern(format->get<std::string>());
      if (pattern.empty() || !Fits(*schema, pattern)) {
        Ignore(*schema, "format: " + format->get<std::string>());
      } else {
        TALLY_ASSIGN_OR_RETURN(const Expr expr, hold(*schema, std::string(pattern), false));
        also.push_back(expr);
      }
    }
  }
  for (const Json* value : except) {
    if (!value->is_string()) continue;
    also.push_back(e_.Not(e_.Literal(writer_.Inside(value->get<std::string>(), style))));
  }
  if (least > most) return Expressions::kNone;
  const uint32_t max = static_cast<uint32_t>(most);
  if (also.empty()) return writer_.Whole(e_.Repeat(writer_.AnyCharacter(style), static_cast<uint32_t>(least), max), style);
  const bool positive = std::ranges::any_of(also, [&](Expr part) { return e_.kind(part) != ExprKind::kNot; });
  if (!positive || least > 0 || max != Expressions::kUnbounded)
    also.push_back(e_.Repeat(writer_.PlainCharacter(style), static_cast<uint32_t>(least), max));
  return writer_.Whole(also.size() == 1 ? also[0] : e_.And(also), style);
}

Result<Expr> SchemaCompiler::Arrays(const Items& items, int depth) {
  uint64_t least = 0, most = Expressions::kUnbounded;
  size_t listed = 0;
  bool unique = false;
  const Json* contains = nullptr;
  uint64_t contained = 1;
  for (const auto& [schema, done] : items) {
    if (const Json* const count = FindKeyword(*schema, "minItems"); count != nullptr) least = std::max(least, CountOf(*count));
    if (const Json* const count = FindKeyword(*schema, "maxItems"); count != nullptr) most = std::min(most, CountOf(*count));
    if (const Json* const flag = FindKeyword(*schema, "uniqueItems"); flag != nullptr) unique |= flag->get<bool>();
    if (const Json* const prefix = Prefix(*schema); prefix != nullptr) listed = std::max(listed, prefix->size());
    if (const Json* const part = FindKeyword(*schema, "contains"); part != nullptr) {
      const Json* const min = FindKeyword(*schema, "minContains");
      if (min != nullptr && CountOf(*min) == 0) continue;
      if (contains != nullptr) return Error(*schema, "contains twice is not supported");
      contains = part;
      contained = min == nullptr ? 1 : CountOf(*min);
    }
  }
  if (least > most) return Expressions::kNone;
  std::vector<Expr> parts;  // of positions; the last: of all that follow
  for (size_t i = 0; i <= listed; ++i) {
    Items of;
    for (const auto& [schema, done] : items) {
      const Json* const prefix = Prefix(*schema);
      const Json* const rest = Rest(*schema);
      if (prefix != nullptr && i < prefix->size()) {
        of.push_back({&(*prefix)[i]});
      } else if (rest != nullptr) {
        of.push_back({rest});
      }
    }
    if (i >= most) {
      parts.push_back(Expressions::kNone);
      continue;
    }
    TALLY_ASSIGN_OR_RETURN(const Expr part, All(of, depth));
    parts.push_back(part);
  }
  const Json& place = *items.front().schema;
  if (unique && most > 1) {
    if (listed > 0 || contains != nullptr) return Error(place, "uniqueItems beside prefixItems or contains is not supported");
    return Unique(items, least, most);
  }
  const Expr comma = writer_.Comma();
  const auto counted = [&](uint64_t n) { return static_cast<uint32_t>(n); };
  if (contains != nullptr) {
    if (listed > 0 || most != Expressions::kUnbounded || least > contained)
      return Error(place, "contains beside prefixItems, maxItems or minItems above it is not supported");
    Items both = {{contains}};
    for (const auto& [schema, done] : items) {
      if (const Json* const rest = Rest(*schema); rest != nullptr) both.push_back({rest});
    }
    TALLY_ASSIGN_OR_RETURN(const Expr one, All(both, depth));
    // Others, one; so many times, and others.
    const Expr other = e_.Concat(parts[0], comma);
    const Expr first = e_.Concat(e_.Star(other), one);
    const Expr more = e_.Repeat(e_.Concat({comma, e_.Star(other), one}), counted(contained - 1), counted(contained - 1));
    return e_.Concat({e_.Literal("["), first, more, e_.Star(e_.Concat(comma, parts[0])), e_.Literal("]")});
  }
  const uint64_t after = listed;  // positions before the rest
  Expr tail = Expressions::kEmpty;
  if (parts[listed] != Expressions::kNone || least > after) {
    const uint64_t min = least > after ? least - after : 0;
    const uint64_t max = most == Expressions::kUnbounded ? Expressions::kUnbounded : most > after ? most - after : 0;
    if (listed == 0) {
      if (max == 0) return e_.Literal("[]");
      const Expr more = e_.Repeat(e_.Concat(comma, parts[0]), counted(min > 0 ? min - 1 : 0),
                                  max == Expressions::kUnbounded ? Expressions::kUnbounded : counted(max - 1));
      const Expr some = e_.Concat(parts[0], more);
      return e_.Concat({e_.Literal("["), min == 0 ? e_.Optional(some) : some, e_.Literal("]")});
    }
    tail = e_.Repeat(e_.Concat(comma, parts[listed]), counted(min), counted(max));
  }
  for (size_t i = listed; i-- > 0;) {
    const Expr one = e_.Concat({i == 0 ? Expressions::kEmpty : comma, parts[i], tail});
    tail = i < least ? one : e_.Optional(one);
  }
  return e_.Concat({e_.Literal("["), tail, e_.Literal("]")});
}

const SchemaJson* SchemaCompiler::Prefix(const Json& schema) const {
  const Json* const prefix = FindKeyword(schema, document_.is_old() ? "items" : "prefixItems");
  return prefix != nullptr && prefix->is_array() ? prefix : nullptr;
}
const SchemaJson* SchemaCompiler::Rest(const Json& schema) const {
  const Json* const items = FindKeyword(schema, "items");
  if (items == nullptr || !items->is_array()) return items;
  return document_.is_old() ? FindKeyword(schema, "additionalItems") : nullptr;
}

Result<Expr> SchemaCompiler::Unique(const Items& items, uint64_t least, uint64_t most) {
  const Json& place = *items.front().schema;
  std::optional<std::vector<const Json*>> values;
  for (const auto& [schema, done] : items) {
    const Json* rest = Rest(*schema);
    for (int i = 0; i < 8 && rest != nullptr && rest->is_object() && rest->contains("$ref"); ++i) {
      TALLY_ASSIGN_OR_RETURN(rest, document_.Resolve(*rest));
    }
    if (rest == nullptr || !rest->is_object()) continue;
    const Json* const listed = FindKeyword(*rest, "enum");
    if (listed == nullptr || !listed->is_array() || values) continue;
    values.emplace();
    for (const Json& value : *listed) {
      if (std::ranges::none_of(*values, [&](const Json* other) { return AreEqual(*other, value); })) values->push_back(&value);
    }
  }
  if (!values || values->size() > kMostUnique) {
    return Error(
        place, "uniqueItems of other items than an enum of at most " + std::to_string(kMostUnique) + " values is not supported");
  }
  // Of the values, those that all schemas of the items allow.
  std::vector<Expr> exprs;
  for (const Json* value : *values) {
    Items of = {{&document_.Make(place, Json{{"const", *value}})}};
    for (const auto& [schema, done] : items) {
      if (const Json* const rest = Rest(*schema); rest != nullptr) of.push_back({rest});
    }
    TALLY_ASSIGN_OR_RETURN(const Expr expr, All(of, 0));
    if (expr != Expressions::kNone) exprs.push_back(expr);
  }
  std::map<uint32_t, Expr> known;  // by the values that were used
  const std::function<Expr(uint32_t, uint64_t)> rest = [&](uint32_t used, uint64_t count) -> Expr {
    if (const auto found = known.find(used); found != known.end()) return found->second;
    std::vector<Expr> parts;
    if (count >= least) parts.push_back(Expressions::kEmpty);
    for (size_t i = 0; i < exprs.size() && count < most; ++i) {
      if ((used >> i & 1) != 0) continue;
      parts.push_back(e_.Concat({count == 0 ? Expressions::kEmpty : writer_.Comma(), exprs[i], rest(used | 1u << i, count + 1)}));
    }
    return known[used] = e_.Or(parts);
  };
  return e_.Concat({e_.Literal("["), rest(0, 0), e_.Literal("]")});
}

}  // namespace tally
