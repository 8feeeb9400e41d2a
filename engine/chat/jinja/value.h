// SPDX-License-Identifier: Apache-2.0
// The values of templates: those of Python that jinja2 programs meet. Strings, lists and dicts do not change once they are made (the
// sandbox of chat templates forbids it); objects (objects.h) do, and belong to the run that made them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/jinja/budget.h"
#include "engine/chat/jinja/text.h"

namespace tally::jinja {

using Json = nlohmann::ordered_json;

class Value;
class Object;
struct Sequence;
class Dict;
struct Method;

struct None {};
// What a missing name or attribute gives. Most that is done with it fails with this reason.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}                                           // NOLINT: implicit on purpose
  Value(int64_t value) : data_(value) {}                                        // NOLINT
  Value(double value) : data_(value) {}                                         // NOLINT
  Value(Text value) : data_(std::make_shared<const Text>(std::move(value))) {}  // NOLINT
  Value(std::shared_ptr<const Sequence> value) : data_(std::move(value)) {}     // NOLINT
  Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}         // NOLINT
  Value(std::shared_ptr<const Method> value) : data_(std::move(value)) {}       // NOLINT
  Value(Object* value) : data_(value) {}                                        // NOLINT
  Value(const char*) = delete;
  // Of a long reason the beginning is kept.
  static Value MakeUndefined(std::string reason);
  // The template's own text.
  static Value Literal(std::string bytes) { return Text(std::move(bytes), true); }

  bool IsUndefined() const { return std::holds_alternative<Undefined>(data_); }
  bool IsNone() const { return std::holds_alternative<None>(data_); }
  bool IsBool() const { return std::holds_alternative<bool>(data_); }
  bool IsFloat() const { return std::holds_alternative<double>(data_); }
  bool IsString() const { return std::holds_alternative<std::shared_ptr<const Text>>(data_); }
  bool IsNumber() const { return IsInteger() || IsFloat(); }
  // Booleans are the integers 0 and 1, as in Python.
  bool IsInteger() const { return IsBool() || std::holds_alternative<int64_t>(data_); }

  int64_t integer() const { return IsBool() ? int64_t{std::get<bool>(data_)} : std::get<int64_t>(data_); }
  double number() const { return IsFloat() ? std::get<double>(data_) : static_cast<double>(integer()); }
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const std::string& reason() const { return *std::get<Undefined>(data_).reason; }
  // Null for other kinds of values.
  const Sequence* sequence() const { return Pointer<Sequence>(); }
  const Dict* dict() const { return Pointer<Dict>(); }
  const Method* method() const { return Pointer<Method>(); }
  Object* object() const;
  // Lists and tuples, not what walks over something else.
  bool IsList() const;
  bool IsTuple() const;

  // Python's name of the type: "str", "NoneType", "dict".
  std::string TypeName() const;
  // Of values within this one, 0 for plain ones.
  int Depth() const;
  // The same object in memory, or equal small values: `sameas`.
  bool IsSame(const Value& other) const;

 private:
  template <class T>
  const T* Pointer() const {
    const auto* held = std::get_if<std::shared_ptr<const T>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }

  std::variant<None, Undefined, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Dict>, std::shared_ptr<const Method>, Object*>
      data_;
};

using Values = std::vector<Value>;

// Whatever holds values in a row.
struct Sequence {
  enum class Kind : uint8_t { kList, kTuple, kItems, kKeys, kValues, kRange, kIterator };
  Kind kind = Kind::kList;
  Values items = {};
  int depth = 1;
  mutable size_t taken = 0;  // kIterator: items that were walked over, which are gone

  bool Indexable() const { return kind <= Kind::kTuple || kind == Kind::kRange; }
  bool HasLength() const { return kind != Kind::kIterator; }
};
// An error where values are nested too deeply, or memory is used up.
Result<Value> MakeSequence(Budget* budget, Sequence::Kind kind, Values items);
inline Result<Value> MakeList(Budget* budget, Values items) {
  return MakeSequence(budget, Sequence::Kind::kList, std::move(items));
}

// A dict, in the order of insertion.
class Dict {
 public:
  using Item = std::pair<Value, Value>;
  const std::vector<Item>& items() const { return items_; }
  int depth() const { return depth_; }
  // By a key made by HashKey. Null: not there.
  const Value* Find(const std::string& key) const;
  const Value* FindName(std::string_view name) const;
  // A key that is there keeps its place.
  void Set(std::string hash_key, Value key, Value value);

 private:
  std::vector<Item> items_;
  std::unordered_map<std::string, size_t> places_;
  int depth_ = 1;
};
Result<Value> MakeDict(Budget* budget, Dict dict);
// Equal for equal values. Lists and dicts have none.
Result<std::string> HashKey(Budget* budget, const Value& value);

// A method of a value, not called yet.
struct Method {
  Value self;
  std::string name;
};

// Something with state: a namespace, a macro, a loop, a function.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string TypeName() const = 0;
  // Null: there is none of that name.
  virtual const Value* Attribute(std::string_view name) {
    (void)name;
    return nullptr;
  }
  virtual bool Callable() const { return false; }
};

// JSON into values; strings are trusted or not as a whole.
Result<Value> FromJson(Budget* budget, const Json& json, bool trusted, int depth = 0);

}  // namespace tally::jinja
