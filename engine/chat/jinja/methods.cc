// SPDX-License-Identifier: Apache-2.0
// The methods of Python's str, dict, list and tuple, and of the engine's own objects
// (https://docs.python.org/3/library/stdtypes.html).
#include <algorithm>
#include <map>
#include <set>

#include "engine/base/format.h"
#include "engine/chat/jinja/format.h"
#include "engine/chat/jinja/objects.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/runtime.h"
#include "engine/chat/jinja/str_operations.h"
#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

using Methods = std::map<std::string_view, Operation>;

// ---- str

template <Case to>
Result<Value> Cased(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_RETURN_IF_ERROR(Parameters::Bind("the method", {}, arguments).status());
  TALLY_ASSIGN_OR_RETURN(Text changed, ChangeCase(&run.budget, self.text(), to));
  return Value(std::move(changed));
}

template <bool left, bool right>
Result<Value> Strip(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("strip", {"chars"}, arguments));
  const Text& text = self.text();
  TALLY_RETURN_IF_ERROR(run.budget.Make(text.size()));
  const bool given = p[0] != nullptr && !p[0]->IsNone();
  if (given && !p[0]->IsString()) return BadInput("strip arg must be None or str");
  if (given) TALLY_RETURN_IF_ERROR(run.budget.Read(text.size() * std::min<size_t>(p[0]->text().size(), 4096)));
  const Stretch kept = Stripped(text.bytes(), left, right, given ? &p[0]->text().bytes() : nullptr);
  return Value(text.Part(kept.begin, kept.end));
}

template <bool from_right>
Result<Value> SplitMethod(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("split", {"sep", "maxsplit"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const int64_t most, p.Integer(1, -1));
  const bool spaces = p[0] == nullptr || p[0]->IsNone();
  if (!spaces && !p[0]->IsString()) return BadInput("must be str or None, not " + p[0]->TypeName());
  TALLY_ASSIGN_OR_RETURN(Values parts, Split(&run.budget, self.text(), spaces ? nullptr : &p[0]->text(), most, from_right));
  return MakeList(&run.budget, std::move(parts));
}

Result<Value> SplitLinesMethod(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("splitlines", {"keepends"}, arguments));
  const Text& text = self.text();
  TALLY_RETURN_IF_ERROR(run.budget.Make(text.size()));
  TALLY_ASSIGN_OR_RETURN(const std::vector<Line> lines, SplitLines(&run.budget, text.bytes()));
  TALLY_RETURN_IF_ERROR(run.budget.MakeItems(2 * lines.size()));
  Values parts;
  for (const Line& line : lines) parts.emplace_back(text.Part(line.begin, p.Flag(0) ? line.next : line.end));
  return MakeList(&run.budget, std::move(parts));
}

// startswith and endswith, of one string or a tuple of them.
template <bool ends>
Result<Value> Borders(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p,
                         Parameters::Bind(ends ? "endswith" : "startswith", {"prefix", "start", "end"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* borders, p.Required(0));
  Value part = self;
  if (p[1] != nullptr) {
    TALLY_ASSIGN_OR_RETURN(part, GetSlice(&run.budget, self, *p[1], p[2] != nullptr ? *p[2] : Value(), Value()));
  }
  const std::string& text = part.text().bytes();
  const Values alone = {*borders};
  for (const Value& border : borders->IsTuple() ? borders->sequence()->items : alone) {
    if (!border.IsString()) {
      return BadInput(std::string(ends ? "endswith" : "startswith") + " first arg must be str or a tuple of str, not " +
                      border.TypeName());
    }
    TALLY_RETURN_IF_ERROR(run.budget.Read(64 + border.text().size()));
    if (ends ? text.ends_with(border.text().bytes()) : text.starts_with(border.text().bytes())) return Value(true);
  }
  return Value(false);
}

template <bool suffix>
Result<Value> RemoveBorder(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind(suffix ? "removesuffix" : "removeprefix", {"text"}, arguments));
  TALLY_RETURN_IF_ERROR(p.Required(0).status());
  TALLY_ASSIGN_OR_RETURN(const std::string_view border, p.String(0, ""));
  const Text& text = self.text();
  TALLY_RETURN_IF_ERROR(run.budget.Make(text.size()));
  if (suffix) return Value(text.Part(0, text.bytes().ends_with(border) ? text.size() - border.size() : text.size()));
  return Value(text.Part(text.bytes().starts_with(border) ? border.size() : 0, text.size()));
}

Result<Value> ReplaceMethod(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("replace", {"old", "new", "count"}, arguments));
  TALLY_RETURN_IF_ERROR(p.Required(0).status());
  TALLY_RETURN_IF_ERROR(p.Required(1).status());
  TALLY_RETURN_IF_ERROR(p.String(0, "").status());
  TALLY_RETURN_IF_ERROR(p.String(1, "").status());
  TALLY_ASSIGN_OR_RETURN(const int64_t count, p.Integer(2, -1));
  TALLY_ASSIGN_OR_RETURN(Text text, Replace(&run.budget, self.text(), p[0]->text(), p[1]->text(), count));
  return Value(std::move(text));
}

Result<Value> JoinMethod(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("join", {"iterable"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* items, p.Required(0));
  if (!IsIterable(*items)) return BadInput("can only join an iterable");
  TALLY_ASSIGN_OR_RETURN(const Values values, Iterate(&run.budget, *items));
  std::vector<Text> parts;
  uint64_t size = 0;
  for (const Value& value : values) {
    if (!value.IsString()) {
      return BadInput("sequence item " + std::to_string(parts.size()) + ": expected str instance, " + value.TypeName() +
                      " found");
    }
    TALLY_RETURN_IF_ERROR(run.budget.Fits(size += value.text().size()));
    parts.push_back(value.text());
  }
  TALLY_ASSIGN_OR_RETURN(Text text, Join(&run.budget, self.text(), parts));
  return Value(std::move(text));
}

enum class Search : uint8_t { kFind, kRightFind, kIndex, kRightIndex, kCount };

template <Search search>
Result<Value> SearchMethod(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("find", {"sub", "start", "end"}, arguments));
  TALLY_RETURN_IF_ERROR(p.Required(0).status());
  TALLY_ASSIGN_OR_RETURN(const std::string_view what, p.String(0, ""));
  Value part = self;
  int64_t skipped = 0;
  if (p[1] != nullptr || p[2] != nullptr) {
    const Value start = p[1] != nullptr ? *p[1] : Value();
    TALLY_ASSIGN_OR_RETURN(part, GetSlice(&run.budget, self, start, p[2] != nullptr ? *p[2] : Value(), Value()));
    TALLY_ASSIGN_OR_RETURN(const Value before,
                           GetSlice(&run.budget, self, Value(), start.IsNone() ? Value(int64_t{0}) : start, Value()));
    skipped = static_cast<int64_t>(CountCharacters(before.text().bytes()));
  }
  const std::string& text = part.text().bytes();
  constexpr bool from_right = search == Search::kRightFind || search == Search::kRightIndex;
  TALLY_RETURN_IF_ERROR(run.budget.Read(64 + text.size() * (from_right ? std::min<size_t>(64, what.size() + 1) : 1)));
  if (search == Search::kCount) {
    int64_t count = what.empty() ? static_cast<int64_t>(CountCharacters(text)) + 1 : 0;
    for (size_t at = 0; !what.empty() && (at = FindText(text, what, at)) != text.npos; at += what.size()) ++count;
    return Value(count);
  }
  const size_t at = from_right ? text.rfind(what) : FindText(text, what, 0);
  if (at != text.npos) return Value(skipped + static_cast<int64_t>(CountCharacters(std::string_view(text).substr(0, at))));
  if (search == Search::kIndex || search == Search::kRightIndex) return BadInput("substring not found");
  return Value(int64_t{-1});
}

template <bool from_right>
Result<Value> Partition(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("partition", {"sep"}, arguments));
  TALLY_RETURN_IF_ERROR(p.Required(0).status());
  TALLY_RETURN_IF_ERROR(p.String(0, "").status());
  const Text& text = self.text();
  TALLY_RETURN_IF_ERROR(run.budget.Make(text.size()));
  TALLY_ASSIGN_OR_RETURN(Values parts, Split(&run.budget, text, &p[0]->text(), 1, from_right));
  if (parts.size() == 2) {
    parts.insert(parts.begin() + 1, *p[0]);
  } else {
    parts.insert(from_right ? parts.begin() : parts.end(), 2, Value::Literal(""));
  }
  return MakeSequence(&run.budget, Sequence::Kind::kTuple, std::move(parts));
}

bool IsAsciiCharacter(int32_t c) { return c < 0x80; }
bool IsAlphanumeric(int32_t c) { return IsLetter(c) || IsUnicodeNumber(c); }

// Every character is one of these, and, unless `of_empty`, there is one.
template <bool (*is)(int32_t), bool of_empty = false>
Result<Value> All(Runtime& run, const Value& self, const CallArguments&) {
  const std::string& text = self.text().bytes();
  TALLY_RETURN_IF_ERROR(run.budget.Read(text.size()));
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text, at);
    if (!is(c.code)) return Value(false);
    at += c.bytes;
  }
  return Value(of_empty || !text.empty());
}

template <bool upper>
Result<Value> IsCaseMethod(Runtime& run, const Value& self, const CallArguments&) {
  TALLY_RETURN_IF_ERROR(run.budget.Read(self.text().size()));
  return Value(HasCase(self.text().bytes(), upper));
}

Result<Value> FormatMethod(Runtime& run, const Value& self, const CallArguments& arguments) {
  return StrFormat(&run.budget, self.text(), arguments);
}

const Methods& StrMethods() {
  static const Methods methods = {
      {"lower", Cased<Case::kLower>},
      {"casefold", Cased<Case::kLower>},
      {"upper", Cased<Case::kUpper>},
      {"title", Cased<Case::kTitle>},
      {"capitalize", Cased<Case::kCapitalize>},
      {"strip", Strip<true, true>},
      {"lstrip", Strip<true, false>},
      {"rstrip", Strip<false, true>},
      {"split", SplitMethod<false>},
      {"rsplit", SplitMethod<true>},
      {"splitlines", SplitLinesMethod},
      {"startswith", Borders<false>},
      {"endswith", Borders<true>},
      {"removeprefix", RemoveBorder<false>},
      {"removesuffix", RemoveBorder<true>},
      {"replace", ReplaceMethod},
      {"join", JoinMethod},
      {"find", SearchMethod<Search::kFind>},
      {"rfind", SearchMethod<Search::kRightFind>},
      {"index", SearchMethod<Search::kIndex>},
      {"rindex", SearchMethod<Search::kRightIndex>},
      {"count", SearchMethod<Search::kCount>},
      {"partition", Partition<false>},
      {"rpartition", Partition<true>},
      {"isalpha", All<IsLetter>},
      {"isalnum", All<IsAlphanumeric>},
      {"isdigit", All<IsUnicodeDigit>},
      {"isdecimal", All<IsUnicodeDigit>},
      {"isnumeric", All<IsUnicodeNumber>},
      {"isspace", All<IsPythonSpace>},
      {"isascii", All<IsAsciiCharacter, true>},
      {"islower", IsCaseMethod<false>},
      {"isupper", IsCaseMethod<true>},
      {"format", FormatMethod},
  };
  return methods;
}

// ---- dict

template <Sequence::Kind kind>
Result<Value> View(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_RETURN_IF_ERROR(Parameters::Bind("the method", {}, arguments).status());
  Values items;
  TALLY_RETURN_IF_ERROR(run.budget.Step(self.dict()->items().size()));
  for (const auto& [key, value] : self.dict()->items()) {
    if (kind == Sequence::Kind::kKeys) {
      items.push_back(key);
    } else if (kind == Sequence::Kind::kValues) {
      items.push_back(value);
    } else {
      TALLY_ASSIGN_OR_RETURN(Value pair, MakeSequence(&run.budget, Sequence::Kind::kTuple, {key, value}));
      items.push_back(std::move(pair));
    }
  }
  return MakeSequence(&run.budget, kind, std::move(items));
}

Result<Value> Get(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("get", {"key", "default"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* key, p.Required(0));
  TALLY_ASSIGN_OR_RETURN(const std::string hash, HashKey(&run.budget, *key));
  const Value* found = self.dict()->Find(hash);
  if (found != nullptr) return *found;
  return p[1] != nullptr ? *p[1] : Value();
}

Result<Value> Copy(Runtime&, const Value& self, const CallArguments&) { return self; }

const Methods& DictMethods() {
  static const Methods methods = {
      {"items", View<Sequence::Kind::kItems>},
      {"keys", View<Sequence::Kind::kKeys>},
      {"values", View<Sequence::Kind::kValues>},
      {"get", Get},
      {"copy", Copy},
  };
  return methods;
}

// ---- list and tuple

Result<Value> IndexMethod(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("index", {"value"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* wanted, p.Required(0));
  const Values& items = self.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    TALLY_ASSIGN_OR_RETURN(const bool equal, Equal(&run.budget, items[i], *wanted));
    if (equal) return Value(static_cast<int64_t>(i));
  }
  return BadInput("the value is not in the " + self.TypeName());
}

Result<Value> CountMethod(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("count", {"value"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* wanted, p.Required(0));
  int64_t count = 0;
  for (const Value& item : self.sequence()->items) {
    TALLY_ASSIGN_OR_RETURN(const bool equal, Equal(&run.budget, item, *wanted));
    count += equal ? 1 : 0;
  }
  return Value(count);
}

const Methods& ListMethods() {
  static const Methods methods = {{"index", IndexMethod}, {"count", CountMethod}, {"copy", Copy}};
  return methods;
}

const Methods& TupleMethods() {
  static const Methods methods = {{"index", IndexMethod}, {"count", CountMethod}};
  return methods;
}

// ---- objects

Result<Value> LoopCycle(Runtime&, const Value& self, const CallArguments& arguments) {
  return dynamic_cast<Loop&>(*self.object()).Cycle(arguments);
}

Result<Value> LoopChanged(Runtime& run, const Value& self, const CallArguments& arguments) {
  return dynamic_cast<Loop&>(*self.object()).Changed(&run.budget, arguments);
}

const Methods& LoopMethods() {
  static const Methods methods = {{"cycle", LoopCycle}, {"changed", LoopChanged}};
  return methods;
}

// What Python's types have and this engine does not: present as an attribute, an error when it is called.
using Names = std::set<std::string_view>;
const Names& MoreNames(const Value& self) {
  static const Names none = {},
                     str = {"center", "encode",    "expandtabs", "format_map", "isidentifier", "isprintable", "istitle",
                            "ljust",  "maketrans", "rjust",      "swapcase",   "translate",    "zfill"},
                     dict = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"},
                     list = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  if (self.IsString()) return str;
  if (self.dict() != nullptr) return dict;
  return self.IsList() ? list : none;
}

const Methods& MethodsOf(const Value& self) {
  static const Methods none;
  if (self.IsString()) return StrMethods();
  if (self.dict() != nullptr) return DictMethods();
  if (self.IsList()) return ListMethods();
  if (self.IsTuple()) return TupleMethods();
  if (dynamic_cast<Loop*>(self.object()) != nullptr) return LoopMethods();
  return none;
}

}  // namespace

bool HasMethod(const Value& self, std::string_view name) {
  return MethodsOf(self).count(name) > 0 || MoreNames(self).count(name) > 0;
}

Result<Value> CallMethod(Runtime& run, const Method& method, const CallArguments& arguments) {
  const Methods& methods = MethodsOf(method.self);
  const auto found = methods.find(method.name);
  if (found != methods.end()) return found->second(run, method.self, arguments);
  return BadInput("the method " + Quote(method.name) + " of " + method.self.TypeName() + " is not supported");
}

}  // namespace tally::jinja
