// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/schema_compiler.h"

#include <algorithm>
#include <functional>
#include <initializer_list>

#include "engine/grammar/code_points.h"
#include "engine/grammar/regex.h"

namespace tally {
namespace {

using Json = SchemaJson;

constexpr uint16_t kMarks = SchemaItem::kArguments | SchemaItem::kBare;
constexpr size_t kMostPatterns = 4;  // of names that are not listed: each may hold or not
constexpr size_t kMostCounted = 100'000;

bool IsEvaluatedElsewhere(const Json& schema) {
  return std::ranges::any_of(std::initializer_list<const char*>{"allOf", "anyOf", "oneOf", "if", "$ref", "dependentSchemas"},
                             [&](const char* keyword) { return schema.contains(keyword); });
}

}  // namespace

Result<bool> SchemaCompiler::Matches(const Json& schema, const std::string& pattern, const std::string& name) {
  auto& matcher = matchers_[pattern];
  if (matcher.first == nullptr) {
    matcher.first = std::make_unique<Expressions>();
    Result<Expr> expr = ParseRegex(*matcher.first, pattern, {.search = true});
    if (!expr.ok()) return Error(schema, "pattern " + pattern + ": " + expr.status().message());
    TALLY_RETURN_IF_ERROR(matcher.first->Finish());
    matcher.second = *expr;
  }
  return matcher.first->MayEnd(matcher.first->Read(matcher.second, name));
}

// What a schema says of members that it does not list.
Result<const SchemaJson*> SchemaCompiler::Additional(const Json& schema, bool combined) const {
  if (const Json* const additional = FindKeyword(schema, "additionalProperties"); additional != nullptr) return additional;
  const Json* const unevaluated = FindKeyword(schema, "unevaluatedProperties");
  if (unevaluated != nullptr && *unevaluated != Json(true) && (combined || IsEvaluatedElsewhere(schema))) {
    return Error(schema, "unevaluatedProperties beside allOf, anyOf, oneOf, if, $ref or dependentSchemas is not supported");
  }
  return unevaluated;
}

Result<Expr> SchemaCompiler::Objects(const Items& items, int depth) {
  std::vector<std::string> names;
  std::set<std::string> listed, required;
  uint64_t least = 0, most = Expressions::kUnbounded;
  std::vector<std::string> patterns;
  Items of_names;
  const auto list = [&](const std::string& name) {
    if (listed.insert(name).second) names.push_back(name);
  };
  for (const auto& [schema, done] : items) {
    if (const Json* const members = FindKeyword(*schema, "properties"); members != nullptr) {
      for (auto it = members->begin(); it != members->end(); ++it) list(it.key());
    }
    if (const Json* const members = FindKeyword(*schema, "patternProperties"); members != nullptr) {
      for (auto it = members->begin(); it != members->end(); ++it) {
        if (std::ranges::find(patterns, it.key()) == patterns.end()) patterns.push_back(it.key());
      }
    }
    if (const Json* const count = FindKeyword(*schema, "minProperties"); count != nullptr)
      least = std::max(least, CountOf(*count));
    if (const Json* const count = FindKeyword(*schema, "maxProperties"); count != nullptr) most = std::min(most, CountOf(*count));
    if (const Json* const part = FindKeyword(*schema, "propertyNames"); part != nullptr) of_names.push_back({part});
  }
  bool closed = false;  // all names are listed
  for (const auto& [schema, done] : items) {
    if (const Json* const members = FindKeyword(*schema, "required"); members != nullptr) {
      for (const Json& name : *members) required.insert(name.get<std::string>()), list(name.get<std::string>());
    }
    const Json* const of = FindKeyword(*schema, "propertyNames");
    const Json* const some = of == nullptr || !of->is_object() ? nullptr : FindKeyword(*of, "enum");
    if (some != nullptr && some->is_array()) {
      closed = true;
      for (const Json& name : *some) {
        if (name.is_string()) list(name.get<std::string>());
      }
    }
  }
  if (least > most) return Expressions::kNone;
  Expr names_expr = Expressions::kNone;
  if (!of_names.empty()) {
    Items of = of_names;
    of.insert(of.begin(), SchemaItem{&StringSchema()});
    TALLY_ASSIGN_OR_RETURN(names_expr, All(of, depth));
  }

  // What is said of a member of this name, or of those of which these patterns hold.
  const auto value_of = [&](const std::string* name, const std::vector<bool>& holds, bool as_text) -> Result<Expr> {
    Items of;
    const bool combined = std::ranges::count_if(items, [](const SchemaItem& item) { return (item.done & kMarks) == 0; }) > 1;
    for (const auto& [schema, done] : items) {
      bool found = (done & kMarks) != 0;
      if (const Json* const members = FindKeyword(*schema, "properties"); members != nullptr && name != nullptr) {
        const auto member = members->find(*name);
        if (member != members->end()) of.push_back({&*member}), found = true;
      }
      if (const Json* const members = FindKeyword(*schema, "patternProperties"); members != nullptr) {
        for (auto it = members->begin(); it != members->end(); ++it) {
          const size_t index = static_cast<size_t>(std::ranges::find(patterns, it.key()) - patterns.begin());
          if (holds[index]) of.push_back({&*it}), found = true;
        }
      }
      if (found) continue;
      TALLY_ASSIGN_OR_RETURN(const Json* additional, Additional(*schema, combined));
      if (additional != nullptr) of.push_back({additional});
    }
    static const Json kNothing = Json::object();
    const bool is_text = name != nullptr && texts_.contains(*name);
    const uint16_t text = is_text ? SchemaItem::kBare | SchemaItem::kText : SchemaItem::kBare;
    if (as_text) of.push_back({&kNothing, static_cast<uint16_t>(SchemaItem::kExpanded | text)});
    return All(of, depth);
  };

  // In JSON, names are strings; in other notations they are what the writer can write.
  const bool arguments =
      std::ranges::any_of(items, [](const SchemaItem& item) { return (item.done & SchemaItem::kArguments) != 0; });
  const ArgumentNotation notation =
      arguments || writer_.notation() == ArgumentNotation::kBraced ? writer_.notation() : ArgumentNotation::kJson;
  const bool bare = notation != ArgumentNotation::kJson;
  if (bare && (!patterns.empty() || !of_names.empty()))
    return Error(*items.front().schema, "patterns of names cannot be held in this notation of arguments");
  const ObjectMarks marks = bare ? writer_.Arguments() : writer_.Object();
  const auto value_in = [&](const std::string* name, const std::vector<bool>& holds) -> Result<Expr> {
    return value_of(name, holds, notation == ArgumentNotation::kTagged);
  };

  std::vector<Listed> members;
  const Expr colon = writer_.Colon();
  for (const std::string& name : names) {
    std::vector<bool> holds;
    for (const std::string& pattern : patterns) {
      TALLY_ASSIGN_OR_RETURN(const bool matches, Matches(*items.front().schema, pattern, name));
      holds.push_back(matches);
    }
    TALLY_ASSIGN_OR_RETURN(const Expr value, value_in(&name, holds));
    std::optional<Expr> member = writer_.Member(name, value, arguments);
    if (!of_names.empty()) member = e_.Concat({e_.And({e_.Literal(Json(name).dump()), names_expr}), colon, value});
    if (!member) return Error(*items.front().schema, "a name that this notation of arguments cannot write");
    members.push_back({.expr = *member, .required = required.contains(name)});
    if (members.back().expr == Expressions::kNone) {
      if (members.back().required) return Expressions::kNone;
      members.pop_back();
    }
  }

  Expr others = Expressions::kNone;
  if (!closed) {
    if (patterns.size() > kMostPatterns)
      return Error(*items.front().schema, "more than " + std::to_string(kMostPatterns) + " patterns of names are not supported");
    std::vector<Expr> spelled;
    for (const std::string& pattern : patterns) {
      Result<Expr> expr = ParseRegex(e_, pattern, {.search = true, .spelling = JsonPlain});
      if (!expr.ok()) return Error(*items.front().schema, "pattern " + pattern + ": " + expr.status().message());
      spelled.push_back(*expr);
    }
    std::vector<Expr> parts;
    for (size_t set = 0; set < size_t{1} << patterns.size(); ++set) {
      std::vector<bool> holds;
      for (size_t i = 0; i < patterns.size(); ++i) holds.push_back((set >> i & 1) != 0);
      TALLY_ASSIGN_OR_RETURN(const Expr value, value_in(nullptr, holds));
      if (value == Expressions::kNone) continue;
      if (bare) {
        parts.push_back(writer_.OtherMember(names, value, arguments));
        continue;
      }
      Expr key = Expressions::kNone;
      if (patterns.empty() && names.empty()) {
        key = of_names.empty() ? writer_.FreeString() : names_expr;
      } else {
        std::vector<Expr> all = {e_.Star(writer_.PlainCharacter(StringStyle::kQuoted))};
        for (size_t i = 0; i < patterns.size(); ++i) all.push_back(holds[i] ? spelled[i] : e_.Not(spelled[i]));
        std::vector<Expr> known;
        for (const std::string& name : names) {
          const std::string written = Json(name).dump();
          known.push_back(e_.Literal(std::string_view(written).substr(1, written.size() - 2)));
        }
        if (!known.empty()) all.push_back(e_.Not(e_.Or(known)));
        key = writer_.Whole(e_.And(all), StringStyle::kQuoted);
        if (!of_names.empty()) key = e_.And({key, names_expr});
      }
      parts.push_back(e_.Concat({key, colon, value}));
    }
    others = e_.Or(parts);
  }
  return Assembled(*items.front().schema, members, others, least, most, marks);
}

const SchemaJson& SchemaCompiler::StringSchema() {
  if (string_schema_ == nullptr) string_schema_ = &document_.Make(document_.root(), Json{{"type", "string"}});
  return *string_schema_;
}

// Members in their order, each at most once, and then others.
Result<Expr> SchemaCompiler::Assembled(const Json& schema, const std::vector<Listed>& members, Expr others, uint64_t least,
                                       uint64_t most, const ObjectMarks& marks) {
  const Expr comma = marks.comma;
  const size_t n = members.size();
  const uint64_t required = static_cast<uint64_t>(std::ranges::count_if(members, &Listed::required));
  if (required > most) return Expressions::kNone;
  const bool bounded = least > required || (most != Expressions::kUnbounded && (most < n || others != Expressions::kNone));
  if (!bounded) {
    std::vector<Expr> tails(n + 1);
    tails[n] = others == Expressions::kNone ? Expressions::kEmpty : e_.Star(e_.Concat(comma, others));
    for (size_t i = n; i-- > 0;) {
      const Expr one = e_.Concat(comma, members[i].expr);
      tails[i] = e_.Concat(members[i].required ? one : e_.Optional(one), tails[i + 1]);
    }
    std::vector<Expr> firsts;
    size_t i = 0;
    for (; i < n; ++i) {
      firsts.push_back(e_.Concat(members[i].expr, tails[i + 1]));
      if (members[i].required) break;
    }
    if (i == n) {
      firsts.push_back(Expressions::kEmpty);
      if (others != Expressions::kNone) firsts.push_back(e_.Concat(others, tails[n]));
    }
    return e_.Concat({marks.open, e_.Or(firsts), marks.close});
  }
  // By how many there are so far; beyond the bounds it no longer matters, but for the first comma.
  const uint64_t top = std::max<uint64_t>(most != Expressions::kUnbounded ? std::min<uint64_t>(most, n + 1) : least, 1);
  if (top * (n + 1) > kMostCounted) return Error(schema, "minProperties or maxProperties of so many members is not supported");
  std::map<std::pair<size_t, uint64_t>, Expr> known;
  bool refused = false;
  const std::function<Expr(size_t, uint64_t)> rest = [&](size_t i, uint64_t count) -> Expr {
    if (e_.is_full()) return Expressions::kNone;
    if (const auto place = known.find({i, count}); place != known.end()) return place->second;
    Expr expr = Expressions::kNone;
    const Expr separator = count == 0 ? Expressions::kEmpty : comma;
    if (i < n) {
      std::vector<Expr> parts;
      const uint64_t next = most == Expressions::kUnbounded ? std::min(count + 1, top) : count + 1;
      if (count < most) parts.push_back(e_.Concat({separator, members[i].expr, rest(i + 1, next)}));
      if (!members[i].required) parts.push_back(rest(i + 1, count));
      expr = e_.Or(parts);
    } else {
      const uint64_t missing = count < least ? least - count : 0;
      if (others == Expressions::kNone || count >= most) {
        expr = missing == 0 ? Expressions::kEmpty : Expressions::kNone;
      } else {
        refused |= missing > 1;  // two of them may have one name, and are one member
        const uint32_t more = most == Expressions::kUnbounded ? Expressions::kUnbounded : static_cast<uint32_t>(most - count);
        if (count == 0) {
          const Expr some =
              e_.Concat(others, e_.Repeat(e_.Concat(comma, others), 0, more == Expressions::kUnbounded ? more : more - 1));
          expr = missing == 0 ? e_.Optional(some) : some;
        } else {
          expr = e_.Repeat(e_.Concat(comma, others), static_cast<uint32_t>(missing), more);
        }
      }
    }
    return known[{i, count}] = expr;
  };
  const Expr inside = rest(0, 0);
  if (refused)
    return Error(schema,
                 "minProperties above the listed members and one more is not supported: names that are not listed may repeat");
  return e_.Concat({marks.open, inside, marks.close});
}

}  // namespace tally
