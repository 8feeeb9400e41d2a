// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/print.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "engine/chat/jinja/objects.h"
#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

void AppendHex(uint32_t code, int digits, std::string* out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out->push_back(kDigits[(code >> shift) & 0xF]);
}

// Of str.isprintable.
bool IsPrintable(int32_t code) {
  if (code == ' ') return true;
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

// Writes a value, and finds out whether all of its strings are trusted.
class ReprWriter {
 public:
  explicit ReprWriter(Budget* budget) : budget_(budget) {}

  Status Write(const Value& value) {
    TALLY_RETURN_IF_ERROR(budget_->Step());
    // Values that hold one another are bounded when they are made, but not through namespaces.
    if (depth_ > 2 * kMaxNesting)
      return BadInput("a value nested too deeply, or a namespace that holds itself, cannot be printed");
    ++depth_;
    Status status = WriteAny(value);
    --depth_;
    return status;
  }

  Text Take() { return {std::move(out_), trusted_}; }

 private:
  Status WriteAny(const Value& value) {
    if (value.IsString()) {
      TALLY_RETURN_IF_ERROR(budget_->Make(value.text().size()));
      trusted_ = trusted_ && value.text().AllTrusted();
      const std::string repr = StringRepr(value.text().bytes());
      out_ += value.text().markup() ? "Markup(" + repr + ")" : repr;
    } else if (value.sequence() != nullptr) {
      return WriteSequence(*value.sequence());
    } else if (value.dict() != nullptr) {
      return WriteDict(value.dict()->items());
    } else if (value.object() != nullptr) {
      return WriteObject(*value.object());
    } else {
      out_ += Plain(value);
    }
    return budget_->Fits(out_.size());
  }

  static std::string Plain(const Value& value) {
    if (value.IsUndefined()) return "Undefined";
    if (value.IsNone()) return "None";
    if (value.IsBool()) return value.integer() != 0 ? "True" : "False";
    if (value.IsInteger()) return std::to_string(value.integer());
    if (value.IsFloat()) return FloatRepr(value.number());
    return "<built-in method " + value.method()->name + " of " + value.method()->self.TypeName() + " object>";
  }

  Status WriteItems(const Values& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      TALLY_RETURN_IF_ERROR(Write(items[i]));
    }
    return {};
  }

  Status WriteSequence(const Sequence& sequence) {
    switch (sequence.kind) {
      case Sequence::Kind::kIterator: out_ += "<generator object>"; return {};
      case Sequence::Kind::kRange: return WriteRange(sequence.items);
      case Sequence::Kind::kList: out_ += "["; break;
      case Sequence::Kind::kTuple: out_ += "("; break;
      case Sequence::Kind::kItems: out_ += "dict_items(["; break;
      case Sequence::Kind::kKeys: out_ += "dict_keys(["; break;
      case Sequence::Kind::kValues: out_ += "dict_values(["; break;
    }
    TALLY_RETURN_IF_ERROR(WriteItems(sequence.items));
    if (sequence.kind == Sequence::Kind::kList) {
      out_ += "]";
    } else if (sequence.kind == Sequence::Kind::kTuple) {
      out_ += sequence.items.size() == 1 ? ",)" : ")";
    } else {
      out_ += "])";
    }
    return {};
  }

  Status WriteRange(const Values& items) {
    const int64_t first = items.empty() ? 0 : items.front().integer();
    int64_t step = 1, end = 0;  // beyond 64 bits they wrap around
    if (items.size() > 1) __builtin_sub_overflow(items[1].integer(), first, &step);
    if (!items.empty()) __builtin_add_overflow(items.back().integer(), step, &end);
    out_ += "range(" + std::to_string(first) + ", " + std::to_string(end);
    if (step != 1) out_ += ", " + std::to_string(step);
    out_ += ")";
    return {};
  }

  Status WriteDict(const std::vector<Dict::Item>& items) {
    out_ += "{";
    bool first = true;
    for (const auto& [key, value] : items) {
      if (!first) out_ += ", ";
      first = false;
      TALLY_RETURN_IF_ERROR(Write(key));
      out_ += ": ";
      TALLY_RETURN_IF_ERROR(Write(value));
    }
    out_ += "}";
    return {};
  }

  Status WriteObject(const Object& object) {
    const auto* space = dynamic_cast<const Namespace*>(&object);
    if (space == nullptr) {
      out_ += "<" + object.TypeName() + ">";
      return {};
    }
    out_ += "<Namespace ";
    TALLY_RETURN_IF_ERROR(WriteDict(space->attributes().items()));
    out_ += ">";
    return {};
  }

  Budget* budget_;
  std::string out_;
  bool trusted_ = true;
  int depth_ = 0;
};

}  // namespace

std::string StringRepr(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text, at);
    if (c.code == quote || c.code == '\\') {
      out += '\\';
      out += static_cast<char>(c.code);
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (IsPrintable(c.code)) {
      out.append(text, at, c.bytes);
    } else if (c.code < 0x100) {
      AppendHex(static_cast<uint32_t>(c.code), 2, &(out += "\\x"));
    } else if (c.code < 0x10000) {
      AppendHex(static_cast<uint32_t>(c.code), 4, &(out += "\\u"));
    } else {
      AppendHex(static_cast<uint32_t>(c.code), 8, &(out += "\\U"));
    }
    at += c.bytes;
  }
  return out += quote;
}

std::string FloatRepr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));  // -d.ddde-XX
  const size_t e = shortest.find('e');
  const bool negative = shortest[e + 1] == '-';
  int exponent = 0;
  std::from_chars(buffer + e + 2, end, exponent);  // what follows e+ or e-
  if (negative) exponent = -exponent;
  std::string digits, sign;
  for (const char c : shortest.substr(0, e)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') digits += c;
  }
  const auto n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string text = sign + digits.substr(0, 1);
    if (n > 1) text += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return text + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return sign + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return sign + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." + digits.substr(static_cast<size_t>(exponent) + 1);
}

Result<Text> Repr(Budget* budget, const Value& value) {
  ReprWriter writer(budget);
  TALLY_RETURN_IF_ERROR(writer.Write(value));
  Text text = writer.Take();
  TALLY_RETURN_IF_ERROR(budget->Make(text.size()));
  return text;
}

Result<Text> Str(Budget* budget, const Value& value) {
  if (value.IsString()) {
    TALLY_RETURN_IF_ERROR(budget->Read(value.text().size()));
    return value.text();
  }
  if (value.IsUndefined()) return Text();
  return Repr(budget, value);
}

}  // namespace tally::jinja
