// SPDX-License-Identifier: Apache-2.0
// Parts of values: items, attributes, slices, and walking over them.
#include <algorithm>

#include "engine/chat/jinja/objects.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/runtime.h"
#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

// "'dict object'", "None": how jinja2 calls a value in its messages.
std::string Describe(const Value& value) { return value.IsNone() ? "None" : value.TypeName() + " object"; }

Value NoAttribute(const Value& value, std::string_view name) {
  return Value::MakeUndefined("'" + Describe(value) + "' has no attribute '" + std::string(name.substr(0, kMaxNameBytes)) + "'");
}

// What the sandbox does not allow, by type.
bool Changes(const Value& value, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (value.IsList()) return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  return value.dict() != nullptr && std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
}

// A method, or an attribute of an object; nothing where there is none of that name.
Result<Value> OwnAttribute(Budget* budget, const Value& value, std::string_view name, bool* found) {
  *found = true;
  if (Object* object = value.object()) {
    const Value* attribute = object->Attribute(name);
    if (attribute != nullptr) return *attribute;
  }
  if (HasMethod(value, name)) {
    if (Changes(value, name)) {
      return Value::MakeUndefined("access to attribute '" + std::string(name) + "' of '" + value.TypeName() +
                                  "' object is unsafe.");
    }
    TALLY_RETURN_IF_ERROR(budget->MakeItems(1));
    if (value.Depth() >= kMaxNesting) return BadInput("values nested deeper than " + std::to_string(kMaxNesting));
    return Value(std::make_shared<const Method>(Method{value, std::string(name)}));
  }
  *found = false;
  return Value();
}

Result<const Value*> FindKey(Budget* budget, const Dict& dict, const Value& key) {
  Result<std::string> hash = HashKey(budget, key);
  if (!hash.ok()) return static_cast<const Value*>(nullptr);
  return dict.Find(*hash);
}

// The item at `index`, counted from the end where it is negative; nullopt: outside.
std::optional<size_t> Place(int64_t index, size_t size) {
  if (index < 0) index += static_cast<int64_t>(size);
  if (index < 0 || index >= static_cast<int64_t>(size)) return std::nullopt;
  return static_cast<size_t>(index);
}

// Where the characters of a text begin, and its end.
std::vector<size_t> CharacterStarts(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) != 0x80) starts.push_back(at);
  }
  starts.push_back(text.size());
  return starts;
}

// The indices of a slice of `size` items, as Python's slice.indices gives them.
struct Range {
  int64_t start = 0, stop = 0, step = 1;
};
Result<Range> SliceRange(const Value& start, const Value& stop, const Value& step, int64_t size) {
  for (const Value* part : {&start, &stop, &step}) {
    if (!part->IsNone() && !part->IsInteger()) return BadInput("slice indices must be integers or None");
  }
  Range range;
  if (!step.IsNone()) range.step = step.integer();
  if (range.step == 0) return BadInput("slice step cannot be zero");
  range.step = std::clamp(range.step, -INT64_MAX, INT64_MAX);
  const int64_t low = range.step < 0 ? -1 : 0, high = range.step < 0 ? size - 1 : size;
  const auto bound = [&](const Value& part, int64_t otherwise) {
    if (part.IsNone()) return otherwise;
    int64_t at = part.integer();
    if (at < 0) at = at < -size ? low : at + size;
    return std::clamp(at, low, high);
  };
  range.start = bound(start, range.step < 0 ? high : low);
  range.stop = bound(stop, range.step < 0 ? low : high);
  return range;
}

template <class Visit>
void ForEachIndex(const Range& range, int64_t size, const Visit& visit) {
  const int64_t step = std::clamp(range.step, -size - 1, size + 1);  // beyond that it is one item at most
  for (int64_t i = range.start; step > 0 ? i < range.stop : i > range.stop; i += step) visit(static_cast<size_t>(i));
}

Result<Value> SliceText(Budget* budget, const Text& text, const Value& start, const Value& stop, const Value& step) {
  const std::string& bytes = text.bytes();
  TALLY_RETURN_IF_ERROR(budget->Read(bytes.size()));
  TALLY_RETURN_IF_ERROR(budget->Make(bytes.size()));
  const auto size = static_cast<int64_t>(CountCharacters(bytes));
  TALLY_ASSIGN_OR_RETURN(const Range range, SliceRange(start, stop, step, size));
  if (range.step == 1) {
    return Value(text.Part(ByteOfCharacter(bytes, static_cast<size_t>(range.start)),
                           ByteOfCharacter(bytes, static_cast<size_t>(range.stop))));
  }
  TALLY_RETURN_IF_ERROR(budget->MakeItems(bytes.size() / 8));
  const std::vector<size_t> starts = CharacterStarts(bytes);
  Text out;
  ForEachIndex(range, size, [&](size_t i) { out.AppendPart(text, starts[i], starts[i + 1]); });
  return Value(std::move(out));
}

}  // namespace

Result<Value> GetAttribute(Budget* budget, const Value& value, std::string_view name) {
  if (value.IsUndefined()) return BadInput(value.reason());
  bool found = false;
  TALLY_ASSIGN_OR_RETURN(Value own, OwnAttribute(budget, value, name, &found));
  if (found) return own;
  if (value.dict() != nullptr) {
    const Value* item = value.dict()->FindName(name);
    if (item != nullptr) return *item;
  }
  return NoAttribute(value, name);
}

Result<Value> GetOwnAttribute(Budget* budget, const Value& value, std::string_view name) {
  if (value.IsUndefined()) return BadInput(value.reason());
  bool found = false;
  TALLY_ASSIGN_OR_RETURN(Value own, OwnAttribute(budget, value, name, &found));
  return found ? own : NoAttribute(value, name);
}

Result<Value> GetItem(Budget* budget, const Value& value, const Value& index) {
  if (value.IsUndefined()) return BadInput(value.reason());
  if (value.dict() != nullptr) {
    TALLY_ASSIGN_OR_RETURN(const Value* item, FindKey(budget, *value.dict(), index));
    if (item != nullptr) return *item;
  } else if (index.IsInteger() && value.IsString()) {
    TALLY_RETURN_IF_ERROR(budget->Read(value.text().size()));
    const std::string& bytes = value.text().bytes();
    const std::optional<size_t> place = Place(index.integer(), CountCharacters(bytes));
    if (place) {
      const size_t at = ByteOfCharacter(bytes, *place);
      return Value(value.text().Part(at, at + ReadUtf8(bytes, at).bytes));
    }
  } else if (index.IsInteger() && value.sequence() != nullptr && value.sequence()->Indexable()) {
    const std::optional<size_t> place = Place(index.integer(), value.sequence()->items.size());
    if (place) return value.sequence()->items[*place];
  }
  if (index.IsString()) {
    bool found = false;
    TALLY_ASSIGN_OR_RETURN(Value own, OwnAttribute(budget, value, index.text().bytes(), &found));
    return found ? own : NoAttribute(value, index.text().bytes());
  }
  TALLY_ASSIGN_OR_RETURN(const Text name, Repr(budget, index));
  return Value::MakeUndefined(Describe(value) + " has no element " + name.bytes());
}

Result<Value> GetSlice(Budget* budget, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.IsUndefined()) return BadInput(value.reason());
  if (value.IsString()) return SliceText(budget, value.text(), start, stop, step);
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || !sequence->Indexable()) return BadInput("'" + value.TypeName() + "' object cannot be sliced");
  const auto size = static_cast<int64_t>(sequence->items.size());
  TALLY_ASSIGN_OR_RETURN(const Range range, SliceRange(start, stop, step, size));
  TALLY_RETURN_IF_ERROR(budget->MakeItems(sequence->items.size()));
  Values items;
  ForEachIndex(range, size, [&](size_t i) { items.push_back(sequence->items[i]); });
  return MakeSequence(budget, sequence->kind, std::move(items));
}

bool IsIterable(const Value& value) {
  return value.IsUndefined() || value.IsString() || value.dict() != nullptr || value.sequence() != nullptr;
}

Result<Values> Iterate(Budget* budget, const Value& value) {
  if (value.IsUndefined()) return Values();
  Values items;
  if (value.IsString()) {
    const Text& text = value.text();
    TALLY_RETURN_IF_ERROR(budget->MakeItems(2 * text.size()));
    const std::vector<size_t> starts = CharacterStarts(text.bytes());
    for (size_t i = 0; i + 1 < starts.size(); ++i) items.emplace_back(text.Part(starts[i], starts[i + 1]));
  } else if (const Dict* dict = value.dict()) {
    TALLY_RETURN_IF_ERROR(budget->MakeItems(dict->items().size()));
    for (const auto& [key, member] : dict->items()) items.push_back(key);
  } else if (const Sequence* sequence = value.sequence()) {
    TALLY_RETURN_IF_ERROR(budget->MakeItems(sequence->items.size()));
    const auto first = sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->taken);
    items.assign(first, sequence->items.end());
    if (!sequence->HasLength()) sequence->taken = sequence->items.size();
  } else {
    return BadInput("'" + value.TypeName() + "' object is not iterable");
  }
  TALLY_RETURN_IF_ERROR(budget->Step(items.size()));
  return items;
}

Result<int64_t> Length(Budget* budget, const Value& value) {
  if (value.IsUndefined()) return 0;
  if (value.IsString()) {
    TALLY_RETURN_IF_ERROR(budget->Read(value.text().size()));
    return static_cast<int64_t>(CountCharacters(value.text().bytes()));
  }
  if (value.dict() != nullptr) return static_cast<int64_t>(value.dict()->items().size());
  if (value.sequence() != nullptr && value.sequence()->HasLength()) return static_cast<int64_t>(value.sequence()->items.size());
  if (auto* loop = dynamic_cast<Loop*>(value.object())) return static_cast<int64_t>(loop->items().size());
  return BadInput("object of type '" + value.TypeName() + "' has no len()");
}

}  // namespace tally::jinja
