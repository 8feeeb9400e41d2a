// SPDX-License-Identifier: Apache-2.0
#include "engine/render/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tally {
namespace {

using Json = nlohmann::json;

std::string Scalar(const Json& scalar) { return scalar.dump(-1, ' ', false, Json::error_handler_t::replace); }

// `indent`: blanks before the closing bracket; below 0: all in one line.
void Write(const Value& value, int indent, std::string& out) {
  const int inner = indent < 0 ? -1 : indent + 2;
  const auto line = [&](int blanks) { out += indent < 0 ? "" : "\n" + std::string(static_cast<size_t>(blanks), ' '); };
  const auto all = [&](const auto& items, const char* brackets, const auto& write) {
    out += brackets[0];
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ',';
      line(inner);
      write(items[i]);
    }
    if (!items.empty()) line(indent);
    out += brackets[1];
  };
  std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, Value::List>) {
          all(x, "[]", [&](const Value& item) { Write(item, inner, out); });
        } else if constexpr (std::is_same_v<T, Value::Members>) {
          all(x, "{}", [&](const auto& member) {
            out += Scalar(member.first) + (indent < 0 ? ":" : ": ");
            Write(member.second, inner, out);
          });
        } else {
          out += Scalar(x);
        }
      },
      value.variant());
}

}  // namespace

std::string JsonText(const Value& document) {
  std::string text;
  Write(document, 0, text);
  return text;
}

std::string JsonLine(const Value& document) {
  std::string text;
  Write(document, -1, text);
  return text + "\n";
}

std::string CsvCell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string CsvText(std::span<const Value> objects) {
  std::vector<std::string> columns;
  for (const Value& object : objects) {
    for (const auto& [key, value] : object.members()) {
      if (!value.IsStructured() && std::ranges::find(columns, key) == columns.end()) columns.push_back(key);
    }
  }
  std::string text;
  const auto line = [&](const auto& cell) {
    for (size_t i = 0; i < columns.size(); ++i) text += (i == 0 ? "" : ",") + cell(columns[i]);
    text += "\n";
  };
  line([](const std::string& column) { return column; });
  for (const Value& object : objects) {
    line([&](const std::string& column) {
      const Value* const value = object.Find(column);
      return value == nullptr ? std::string() : value->IsText() ? CsvCell(value->Text()) : JsonText(*value);
    });
  }
  return text;
}

}  // namespace tally
