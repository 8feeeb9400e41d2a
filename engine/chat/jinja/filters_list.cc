// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <unordered_set>

#include "engine/base/format.h"
#include "engine/chat/jinja/filters.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/str_operations.h"

namespace tally::jinja {
namespace {

// ---- what filters look at: an item, or an attribute of it ("user.names.0")

class Path {
 public:
  Path() = default;
  static Result<Path> Parse(Budget* budget, const Value* attribute) {
    Path path;
    if (attribute == nullptr || attribute->IsNone()) return path;
    if (!attribute->IsString()) {
      path.parts_.push_back(*attribute);
      return path;
    }
    const Text dot(".", true);
    TALLY_ASSIGN_OR_RETURN(path.parts_, Split(budget, attribute->text(), &dot, -1, false));
    for (Value& part : path.parts_) {
      const std::string& name = part.text().bytes();
      if (!name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos) part = int64_t{std::stol(name)};
    }
    return path;
  }

  // `otherwise`, unless null, stands for what is undefined.
  Result<Value> Of(Budget* budget, Value item, const Value* otherwise = nullptr) const {
    for (const Value& part : parts_) {
      TALLY_RETURN_IF_ERROR(budget->Step());
      TALLY_ASSIGN_OR_RETURN(item, GetItem(budget, item, part));
      if (otherwise != nullptr && item.IsUndefined()) item = *otherwise;
    }
    return item;
  }

 private:
  Values parts_;
};

// What a value is compared by.
Result<Value> ComparedBy(Budget* budget, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.IsString()) return value;
  TALLY_ASSIGN_OR_RETURN(Text lower, ChangeCase(budget, value.text(), Case::kLower));
  return Value(std::move(lower));
}

// Items and what they are compared by.
struct Keyed {
  Value item, key;
};
Result<std::vector<Keyed>> KeyedItems(Runtime& run, const Value& self, const Path& path, bool case_sensitive) {
  TALLY_ASSIGN_OR_RETURN(Values items, Iterate(&run.budget, self));
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    TALLY_ASSIGN_OR_RETURN(Value key, path.Of(&run.budget, item));
    TALLY_ASSIGN_OR_RETURN(key, ComparedBy(&run.budget, key, case_sensitive));
    keyed.push_back({std::move(item), std::move(key)});
  }
  return keyed;
}

Status SortKeyed(Budget* budget, bool reverse, std::vector<Keyed>* items) {
  Status failed;
  std::stable_sort(items->begin(), items->end(), [&](const Keyed& a, const Keyed& b) {
    if (!failed.ok()) return false;
    const Result<int> order = reverse ? Order(budget, b.key, a.key) : Order(budget, a.key, b.key);
    if (!order.ok()) failed = order.status();
    return order.ok() && *order < 0;
  });
  return failed;
}

Result<Value> MakeIterator(Runtime& run, Values items) {
  return MakeSequence(&run.budget, Sequence::Kind::kIterator, std::move(items));
}

Result<Value> ItemsOf(Runtime& run, const std::vector<Keyed>& keyed) {
  Values items;
  for (const Keyed& one : keyed) items.push_back(one.item);
  return MakeList(&run.budget, std::move(items));
}

// ---- whole lists

Result<Value> LengthFilter(Runtime& run, const Value& self, const CallArguments&) {
  TALLY_ASSIGN_OR_RETURN(const int64_t length, Length(&run.budget, self));
  return Value(length);
}

Result<Value> ListFilter(Runtime& run, const Value& self, const CallArguments&) {
  TALLY_ASSIGN_OR_RETURN(Values items, Iterate(&run.budget, self));
  return MakeList(&run.budget, std::move(items));
}

Result<Value> FirstFilter(Runtime& run, const Value& self, const CallArguments&) {
  const Sequence* sequence = self.sequence();
  if (sequence != nullptr && sequence->taken < sequence->items.size()) {
    return sequence->items[sequence->HasLength() ? 0 : sequence->taken++];
  }
  TALLY_ASSIGN_OR_RETURN(const Values items, Iterate(&run.budget, self));
  return items.empty() ? Value::MakeUndefined("No first item, sequence was empty.") : items.front();
}

Result<Value> LastFilter(Runtime& run, const Value& self, const CallArguments&) {
  if (self.sequence() != nullptr && !self.sequence()->HasLength()) {
    return BadInput("'" + self.TypeName() + "' object is not reversible");
  }
  if (self.sequence() != nullptr && !self.sequence()->items.empty()) return self.sequence()->items.back();
  TALLY_ASSIGN_OR_RETURN(const Values items, Iterate(&run.budget, self));
  return items.empty() ? Value::MakeUndefined("No last item, sequence was empty.") : items.back();
}

Result<Value> ReverseFilter(Runtime& run, const Value& self, const CallArguments&) {
  if (self.IsString()) return GetSlice(&run.budget, self, Value(), Value(), Value(int64_t{-1}));
  if (!IsIterable(self)) return BadInput("argument must be iterable");
  TALLY_ASSIGN_OR_RETURN(Values items, Iterate(&run.budget, self));
  std::reverse(items.begin(), items.end());
  return MakeIterator(run, std::move(items));
}

Result<Value> JoinFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("join", {"d", "attribute"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Path path, Path::Parse(&run.budget, p[1]));
  TALLY_ASSIGN_OR_RETURN(const Text separator, p[0] != nullptr ? Str(&run.budget, *p[0]) : Result<Text>(Text()));
  TALLY_ASSIGN_OR_RETURN(const Values items, Iterate(&run.budget, self));
  std::vector<Text> parts;
  uint64_t size = 0;
  for (const Value& item : items) {
    TALLY_ASSIGN_OR_RETURN(const Value part, path.Of(&run.budget, item));
    TALLY_ASSIGN_OR_RETURN(Text text, Str(&run.budget, part));
    TALLY_RETURN_IF_ERROR(run.budget.Fits(size += text.size()));
    parts.push_back(std::move(text));
  }
  TALLY_ASSIGN_OR_RETURN(Text joined, Join(&run.budget, separator, parts));
  return Value(std::move(joined));
}

Result<Value> SortFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("sort", {"reverse", "case_sensitive", "attribute"}, arguments));
  std::vector<Path> paths(1);
  if (p[2] != nullptr && p[2]->IsString()) {
    const Text comma(",", true);
    TALLY_ASSIGN_OR_RETURN(const Values names, Split(&run.budget, p[2]->text(), &comma, -1, false));
    paths.resize(names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      TALLY_ASSIGN_OR_RETURN(paths[i], Path::Parse(&run.budget, &names[i]));
    }
  } else {
    TALLY_ASSIGN_OR_RETURN(paths[0], Path::Parse(&run.budget, p[2]));
  }
  std::vector<Keyed> keyed;
  TALLY_ASSIGN_OR_RETURN(Values items, Iterate(&run.budget, self));
  for (Value& item : items) {
    Values keys;
    for (const Path& path : paths) {
      TALLY_ASSIGN_OR_RETURN(const Value key, path.Of(&run.budget, item));
      TALLY_ASSIGN_OR_RETURN(Value compared, ComparedBy(&run.budget, key, p.Flag(1)));
      keys.push_back(std::move(compared));
    }
    TALLY_ASSIGN_OR_RETURN(Value key, MakeList(&run.budget, std::move(keys)));
    keyed.push_back({std::move(item), std::move(key)});
  }
  TALLY_RETURN_IF_ERROR(SortKeyed(&run.budget, p.Flag(0), &keyed));
  return ItemsOf(run, keyed);
}

Result<Value> UniqueFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("unique", {"case_sensitive", "attribute"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Path path, Path::Parse(&run.budget, p[1]));
  TALLY_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed, KeyedItems(run, self, path, p.Flag(0)));
  std::unordered_set<std::string> seen;
  Values items;
  for (const auto& [item, key] : keyed) {
    TALLY_ASSIGN_OR_RETURN(std::string hash, HashKey(&run.budget, key));
    if (seen.insert(std::move(hash)).second) items.push_back(item);
  }
  return MakeIterator(run, std::move(items));
}

// The first of the least, or of the greatest.
template <bool greatest>
Result<Value> ExtremeFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p,
                         Parameters::Bind(greatest ? "max" : "min", {"case_sensitive", "attribute"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Path path, Path::Parse(&run.budget, p[1]));
  TALLY_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed, KeyedItems(run, self, path, p.Flag(0)));
  if (keyed.empty()) return Value::MakeUndefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    TALLY_ASSIGN_OR_RETURN(const int order, Order(&run.budget, keyed[i].key, keyed[best].key));
    if (greatest ? order > 0 : order < 0) best = i;
  }
  return keyed[best].item;
}

Result<Value> SumFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("sum", {"attribute", "start"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Path path, Path::Parse(&run.budget, p[0]));
  TALLY_ASSIGN_OR_RETURN(const Values items, Iterate(&run.budget, self));
  Value sum = p[1] != nullptr ? *p[1] : Value(int64_t{0});
  if (sum.IsString()) return BadInput("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items) {
    TALLY_ASSIGN_OR_RETURN(const Value part, path.Of(&run.budget, item));
    TALLY_ASSIGN_OR_RETURN(sum, Arithmetic(&run.budget, BinaryOp::kAdd, sum, part));
  }
  return sum;
}

// ---- dicts and values

Result<Value> ItemsFilter(Runtime& run, const Value& self, const CallArguments&) {
  if (self.IsUndefined()) return MakeIterator(run, {});
  if (self.dict() == nullptr) return BadInput("Can only get item pairs from a mapping.");
  TALLY_ASSIGN_OR_RETURN(const Value view, CallMethod(run, {self, "items"}, {}));
  return MakeIterator(run, view.sequence()->items);
}

Result<Value> DictSortFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("dictsort", {"case_sensitive", "by", "reverse"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const std::string_view by, p.String(1, "key"));
  if (by != "key" && by != "value") return BadInput("You can only sort by either \"key\" or \"value\"");
  if (self.IsUndefined()) return BadInput(self.reason());
  if (self.dict() == nullptr) return BadInput("dictsort needs a mapping, not " + self.TypeName());
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.dict()->items()) {
    TALLY_ASSIGN_OR_RETURN(Value pair, MakeSequence(&run.budget, Sequence::Kind::kTuple, {key, value}));
    TALLY_ASSIGN_OR_RETURN(Value compared, ComparedBy(&run.budget, by == "key" ? key : value, p.Flag(0)));
    keyed.push_back({std::move(pair), std::move(compared)});
  }
  TALLY_RETURN_IF_ERROR(SortKeyed(&run.budget, p.Flag(2), &keyed));
  return ItemsOf(run, keyed);
}

Result<Value> DefaultFilter(Runtime&, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("default", {"default_value", "boolean"}, arguments));
  if (!self.IsUndefined() && !(p.Flag(1) && !IsTrue(self))) return self;
  return p[0] != nullptr ? *p[0] : Value::Literal("");
}

Result<Value> AttrFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("attr", {"name"}, arguments));
  TALLY_RETURN_IF_ERROR(p.Required(0).status());
  TALLY_ASSIGN_OR_RETURN(const std::string_view name, p.String(0, ""));
  return GetOwnAttribute(&run.budget, self, name);
}

// ---- filters that apply others

constexpr int kMaxFilters = 64;  // map('map', 'map', ...)

const Value* NamedArgument(const CallArguments& arguments, std::string_view name) {
  const auto found = std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& n) { return n.first == name; });
  return found == arguments.named.end() ? nullptr : &found->second;
}

// The arguments behind the first `n` positional ones.
Result<CallArguments> Rest(Budget* budget, const CallArguments& arguments, size_t n) {
  TALLY_RETURN_IF_ERROR(budget->MakeItems(arguments.positional.size() + arguments.named.size()));
  CallArguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(std::min(n, rest.positional.size())));
  return rest;
}

Status FindNamed(const Value& name, const char* kind, Operation (*find)(std::string_view), Operation* found) {
  if (!name.IsString()) return BadInput(std::string("the name of a ") + kind + " is to be a str, not " + name.TypeName());
  *found = find(name.text().bytes());
  if (*found == nullptr) return BadInput(std::string("No ") + kind + " named " + Quote(name.text().bytes()) + ".");
  return {};
}

Result<Value> MapFilter(Runtime& run, const Value& self, const CallArguments& arguments) {
  if (!IsTrue(self)) return MakeIterator(run, {});
  Values mapped;
  const Value* attribute = NamedArgument(arguments, "attribute");
  if (arguments.positional.empty() && attribute != nullptr) {
    const Value* otherwise = NamedArgument(arguments, "default");
    if (otherwise != nullptr && otherwise->IsNone()) otherwise = nullptr;
    TALLY_ASSIGN_OR_RETURN(const Path path, Path::Parse(&run.budget, attribute));
    TALLY_ASSIGN_OR_RETURN(Values items, Iterate(&run.budget, self));
    for (Value& item : items) {
      TALLY_ASSIGN_OR_RETURN(Value value, path.Of(&run.budget, std::move(item), otherwise));
      mapped.push_back(std::move(value));
    }
    return MakeIterator(run, std::move(mapped));
  }
  if (arguments.positional.empty()) return BadInput("map requires a filter argument");
  Operation filter = nullptr;
  TALLY_RETURN_IF_ERROR(FindNamed(arguments.positional[0], "filter", FindFilter, &filter));
  TALLY_ASSIGN_OR_RETURN(const CallArguments rest, Rest(&run.budget, arguments, 1));
  TALLY_ASSIGN_OR_RETURN(const Values items, Iterate(&run.budget, self));
  if (run.filters == kMaxFilters) return BadInput("filters that apply filters nested deeper than " + std::to_string(kMaxFilters));
  ++run.filters;
  Status failed;
  for (const Value& item : items) {
    Result<Value> value = filter(run, item, rest);
    failed = value.status();
    if (!failed.ok()) break;
    mapped.push_back(*std::move(value));
  }
  --run.filters;
  TALLY_RETURN_IF_ERROR(failed);
  return MakeIterator(run, std::move(mapped));
}

template <bool keep, bool by_attribute>
Result<Value> Selecting(Runtime& run, const Value& self, const CallArguments& arguments) {
  if (!IsTrue(self)) return MakeIterator(run, {});
  Path path;
  size_t used = 0;
  if (by_attribute) {
    if (arguments.positional.empty()) return BadInput("Missing parameter for attribute name");
    TALLY_ASSIGN_OR_RETURN(path, Path::Parse(&run.budget, &arguments.positional[used++]));
  }
  Operation test = nullptr;
  if (used < arguments.positional.size()) {
    TALLY_RETURN_IF_ERROR(FindNamed(arguments.positional[used++], "test", FindTest, &test));
  }
  TALLY_ASSIGN_OR_RETURN(const CallArguments rest, Rest(&run.budget, arguments, used));
  TALLY_ASSIGN_OR_RETURN(const Values items, Iterate(&run.budget, self));
  Values selected;
  for (const Value& item : items) {
    TALLY_ASSIGN_OR_RETURN(Value tested, path.Of(&run.budget, item));
    if (test != nullptr) {
      TALLY_ASSIGN_OR_RETURN(tested, test(run, tested, rest));
    }
    if (IsTrue(tested) == keep) selected.push_back(item);
  }
  return MakeIterator(run, std::move(selected));
}

}  // namespace

const Operations& ListFilters() {
  static const Operations filters = {
      {"length", LengthFilter},
      {"count", LengthFilter},
      {"list", ListFilter},
      {"first", FirstFilter},
      {"last", LastFilter},
      {"reverse", ReverseFilter},
      {"join", JoinFilter},
      {"sort", SortFilter},
      {"unique", UniqueFilter},
      {"min", ExtremeFilter<false>},
      {"max", ExtremeFilter<true>},
      {"sum", SumFilter},
      {"items", ItemsFilter},
      {"dictsort", DictSortFilter},
      {"default", DefaultFilter},
      {"d", DefaultFilter},
      {"attr", AttrFilter},
      {"map", MapFilter},
      {"select", Selecting<true, false>},
      {"reject", Selecting<false, false>},
      {"selectattr", Selecting<true, true>},
      {"rejectattr", Selecting<false, true>},
  };
  return filters;
}

Operation FindFilter(std::string_view name) {
  for (const Operations* table : {&TextFilters(), &ListFilters()}) {
    const auto found = table->find(name);
    if (found != table->end()) return found->second;
  }
  return nullptr;
}

}  // namespace tally::jinja
