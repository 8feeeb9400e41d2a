// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/chat/jinja/print.h"
#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

void AppendEscape(uint32_t unit, std::string* out) {
  char escape[16];
  std::snprintf(escape, sizeof escape, "\\u%04x", unit);
  *out += escape;
}

void AppendJsonString(std::string_view text, bool ensure_ascii, std::string* out) {
  *out += '"';
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text, at);
    switch (c.code) {
      case '"': *out += "\\\""; break;
      case '\\': *out += "\\\\"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\t': *out += "\\t"; break;
      case '\f': *out += "\\f"; break;
      case '\b': *out += "\\b"; break;
      default:
        if (c.code < 0x20 || (ensure_ascii && c.code > 0x7E && c.code < 0x10000)) {
          AppendEscape(static_cast<uint32_t>(c.code), out);
        } else if (ensure_ascii && c.code >= 0x10000) {
          const auto rest = static_cast<uint32_t>(c.code) - 0x10000;
          AppendEscape(0xD800 + (rest >> 10), out);
          AppendEscape(0xDC00 + (rest & 0x3FF), out);
        } else {
          out->append(text, at, c.bytes);
        }
    }
    at += c.bytes;
  }
  *out += '"';
}

std::string JsonFloat(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return FloatRepr(number);
}

class JsonWriter {
 public:
  JsonWriter(Budget* budget, const DumpOptions& options)
      : budget_(budget),
        options_(options),
        trusted_(options.item_separator.AllTrusted() && options.key_separator.AllTrusted() &&
                 (!options.indent || options.indent->AllTrusted())) {}

  Status Write(const Value& value, int level) {
    TALLY_RETURN_IF_ERROR(budget_->Step());
    if (value.IsString()) {
      TALLY_RETURN_IF_ERROR(budget_->Make(value.text().size()));
      trusted_ = trusted_ && value.text().AllTrusted();
      AppendJsonString(value.text().bytes(), options_.ensure_ascii, &out_);
    } else if (value.IsList() || value.IsTuple()) {
      return WriteArray(value.sequence()->items, level);
    } else if (value.dict() != nullptr) {
      return WriteObject(value.dict()->items(), level);
    } else {
      TALLY_ASSIGN_OR_RETURN(const std::string plain, Plain(value));
      out_ += plain;
    }
    return budget_->Fits(out_.size());
  }

  Text Take() { return {std::move(out_), trusted_}; }

 private:
  static Result<std::string> Plain(const Value& value) {
    if (value.IsNone()) return std::string("null");
    if (value.IsBool()) return std::string(value.integer() != 0 ? "true" : "false");
    if (value.IsInteger()) return std::to_string(value.integer());
    if (value.IsFloat()) return JsonFloat(value.number());
    return BadInput("Object of type " + value.TypeName() + " is not JSON serializable");
  }

  void NewLine(int level) {
    if (!options_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += options_.indent->bytes();
  }

  Status WriteArray(const Values& items, int level) {
    if (items.empty()) {
      out_ += "[]";
      return {};
    }
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += options_.item_separator.bytes();
      NewLine(level + 1);
      TALLY_RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    NewLine(level);
    out_ += ']';
    return {};
  }

  Status WriteObject(std::vector<Dict::Item> items, int level) {
    if (items.empty()) {
      out_ += "{}";
      return {};
    }
    if (options_.sort_keys) {
      for (const auto& [key, value] : items) {
        if (!key.IsString()) return BadInput("tojson sorts only keys that are strings");
      }
      std::stable_sort(items.begin(), items.end(),
                       [](const auto& a, const auto& b) { return a.first.text().bytes() < b.first.text().bytes(); });
    }
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : items) {
      if (!first) out_ += options_.item_separator.bytes();
      first = false;
      NewLine(level + 1);
      if (key.IsString()) {
        TALLY_RETURN_IF_ERROR(Write(key, level));
      } else if (key.IsNone() || key.IsNumber()) {
        TALLY_ASSIGN_OR_RETURN(const std::string plain, Plain(key));
        out_ += '"' + plain + '"';
      } else {
        return BadInput("keys must be str, int, float, bool or None, not " + key.TypeName());
      }
      out_ += options_.key_separator.bytes();
      TALLY_RETURN_IF_ERROR(Write(value, level + 1));
    }
    NewLine(level);
    out_ += '}';
    return {};
  }

  Budget* budget_;
  const DumpOptions& options_;
  std::string out_;
  bool trusted_;
};

}  // namespace

Result<Text> DumpJson(Budget* budget, const Value& value, const DumpOptions& options) {
  JsonWriter writer(budget, options);
  TALLY_RETURN_IF_ERROR(writer.Write(value, 0));
  Text text = writer.Take();
  TALLY_RETURN_IF_ERROR(budget->Make(text.size()));
  return text;
}

}  // namespace tally::jinja
