// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

constexpr size_t kMaxReasonBytes = 300;

Status TooDeep() { return BadInput("values nested deeper than " + std::to_string(kMaxNesting)); }

}  // namespace

Value Value::MakeUndefined(std::string reason) {
  if (reason.size() > kMaxReasonBytes) {
    reason.resize(kMaxReasonBytes);
    reason.shrink_to_fit();
  }
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(reason))};
  return value;
}

Object* Value::object() const {
  Object* const* held = std::get_if<Object*>(&data_);
  return held == nullptr ? nullptr : *held;
}

bool Value::IsList() const { return sequence() != nullptr && sequence()->kind == Sequence::Kind::kList; }

bool Value::IsTuple() const { return sequence() != nullptr && sequence()->kind == Sequence::Kind::kTuple; }

std::string Value::TypeName() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "NoneType";
  if (IsBool()) return "bool";
  if (IsInteger()) return "int";
  if (IsFloat()) return "float";
  if (IsString()) return "str";
  if (dict() != nullptr) return "dict";
  if (method() != nullptr) return "builtin_function_or_method";
  if (object() != nullptr) return object()->TypeName();
  switch (sequence()->kind) {
    case Sequence::Kind::kList: return "list";
    case Sequence::Kind::kTuple: return "tuple";
    case Sequence::Kind::kItems: return "dict_items";
    case Sequence::Kind::kKeys: return "dict_keys";
    case Sequence::Kind::kValues: return "dict_values";
    case Sequence::Kind::kRange: return "range";
    case Sequence::Kind::kIterator: return "generator";
  }
  return "object";
}

int Value::Depth() const {
  if (sequence() != nullptr) return sequence()->depth;
  if (dict() != nullptr) return dict()->depth();
  if (method() != nullptr) return 1 + method()->self.Depth();
  return 0;
}

bool Value::IsSame(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (IsBool() || IsInteger()) return integer() == other.integer();
  if (IsFloat()) return number() == other.number();
  if (IsString()) return &text() == &other.text() || text().bytes() == other.text().bytes();
  if (sequence() != nullptr) return sequence() == other.sequence();
  if (dict() != nullptr) return dict() == other.dict();
  if (method() != nullptr) return method() == other.method();
  if (object() != nullptr) return object() == other.object();
  return IsNone();
}

Result<Value> MakeSequence(Budget* budget, Sequence::Kind kind, Values items) {
  TALLY_RETURN_IF_ERROR(budget->MakeItems(items.size()));
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.Depth());
  if (depth >= kMaxNesting) return TooDeep();
  return Value(std::make_shared<const Sequence>(Sequence{kind, std::move(items), depth + 1}));
}

const Value* Dict::Find(const std::string& key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? nullptr : &items_[found->second].second;
}

const Value* Dict::FindName(std::string_view name) const {
  std::string key = "s";
  return Find(key.append(name));
}

void Dict::Set(std::string hash_key, Value key, Value value) {
  depth_ = std::max({depth_, key.Depth() + 1, value.Depth() + 1});
  const auto [place, added] = places_.emplace(std::move(hash_key), items_.size());
  if (added) {
    items_.emplace_back(std::move(key), std::move(value));
  } else {
    items_[place->second].second = std::move(value);
  }
}

Result<Value> MakeDict(Budget* budget, Dict dict) {
  TALLY_RETURN_IF_ERROR(budget->MakeItems(2 * dict.items().size()));
  if (dict.depth() > kMaxNesting) return TooDeep();
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

// The first letter tells kinds apart whose values differ; numbers that are equal have equal keys.
Result<std::string> HashKey(Budget* budget, const Value& value) {
  if (value.IsString()) {
    TALLY_RETURN_IF_ERROR(budget->Make(value.text().size()));
    return "s" + value.text().bytes();
  }
  if (value.IsInteger()) return "i" + std::to_string(value.integer());
  if (value.IsFloat()) {
    const double number = value.number();
    if (std::trunc(number) == number && std::abs(number) < 9e18) return "i" + std::to_string(static_cast<int64_t>(number));
    return "f" + std::to_string(std::bit_cast<uint64_t>(number));
  }
  if (value.IsNone()) return std::string("n");
  if (value.IsUndefined()) return std::string("u");
  if (value.IsTuple()) {
    std::string key = "(";
    for (const Value& item : value.sequence()->items) {
      TALLY_ASSIGN_OR_RETURN(const std::string part, HashKey(budget, item));
      TALLY_RETURN_IF_ERROR(budget->Make(part.size() + 20));
      key += std::to_string(part.size()) + ":" + part;
      TALLY_RETURN_IF_ERROR(budget->Make(key.size()));
    }
    return key;
  }
  if (value.object() != nullptr) return "o" + std::to_string(reinterpret_cast<uintptr_t>(value.object()));
  return BadInput("unhashable type: '" + value.TypeName() + "'");
}

Result<Value> FromJson(Budget* budget, const Json& json, bool trusted, int depth) {
  if (depth > kMaxNesting) return TooDeep();
  switch (json.type()) {
    case Json::value_t::boolean: return Value(json.get<bool>());
    case Json::value_t::number_integer: return Value(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(INT64_MAX)) return BadInput("an integer beyond 64 bits: " + std::to_string(number));
      return Value(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float: return Value(json.get<double>());
    case Json::value_t::string: {
      const std::string& bytes = json.get_ref<const std::string&>();
      TALLY_RETURN_IF_ERROR(budget->Make(bytes.size()));
      std::string storage;
      return Value(Text(std::string(WellFormed(bytes, &storage)), trusted));
    }
    case Json::value_t::array: {
      Values items;
      items.reserve(json.size());
      for (const Json& item : json) {
        TALLY_ASSIGN_OR_RETURN(Value value, FromJson(budget, item, trusted, depth + 1));
        items.push_back(std::move(value));
      }
      return MakeList(budget, std::move(items));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [name, member] : json.items()) {
        TALLY_ASSIGN_OR_RETURN(Value value, FromJson(budget, member, trusted, depth + 1));
        std::string storage;
        std::string key(WellFormed(name, &storage));
        dict.Set("s" + key, Text(key, trusted), std::move(value));
      }
      return MakeDict(budget, std::move(dict));
    }
    default: return Value();
  }
}

}  // namespace tally::jinja
