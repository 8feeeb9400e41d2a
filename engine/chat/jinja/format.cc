// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

constexpr int64_t kMaxWidth = 10000;

// How one value is laid out.
struct Layout {
  Text fill = Text(" ", true);
  char align = 0;  // '<', '>', '^', '=' (after the sign); 0: numbers to the right, else to the left
  char sign = '-';
  bool commas = false;
  int64_t width = 0, precision = -1;
  char type = 0;
};

std::string WithCommas(const std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < whole && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

// Without sign.
std::string FixedDigits(double number, int64_t precision) {
  char buffer[512];
  const int length = std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), std::abs(number));
  if (length < static_cast<int>(sizeof buffer)) return {buffer, static_cast<size_t>(length)};
  std::string out(static_cast<size_t>(length) + 1, '\0');
  std::snprintf(out.data(), out.size(), "%.*f", static_cast<int>(precision), std::abs(number));
  out.pop_back();
  return out;
}

Text Pad(const Text& prefix, const Text& body, const Layout& layout, bool number) {
  const auto length = static_cast<int64_t>(CountCharacters(prefix.bytes()) + CountCharacters(body.bytes()));
  const int64_t missing = std::max<int64_t>(0, layout.width - length);
  const char align = layout.align != 0 ? layout.align : number ? '>' : '<';
  const int64_t left = align == '<' || align == '=' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&](int64_t n, Text* out) {
    for (; n > 0; --n) out->Append(layout.fill);
  };
  Text out;
  fill(left, &out);
  out.Append(prefix);
  if (align == '=') fill(missing, &out);
  out.Append(body);
  if (align != '=') fill(missing - left, &out);
  return out;
}

// As a float if its type is 'f' or '%', or if it is one.
Text LayOutNumber(const Value& value, const Layout& layout) {
  const bool is_float = value.IsFloat() || layout.type == 'f' || layout.type == '%';
  const bool negative = value.IsFloat() ? std::signbit(value.number()) : value.integer() < 0;
  std::string digits, sign = negative ? "-" : layout.sign == '-' ? "" : std::string(1, layout.sign);
  if (!is_float) {
    digits = std::to_string(value.integer()).substr(negative ? 1 : 0);
  } else if (layout.type == 0 && layout.precision < 0) {
    digits = FloatRepr(std::abs(value.number()));
  } else {
    digits = FixedDigits(layout.type == '%' ? value.number() * 100 : value.number(), layout.precision < 0 ? 6 : layout.precision);
  }
  if (layout.type == '%') digits += '%';
  if (layout.commas) digits = WithCommas(digits);
  return Pad(Text(sign, true), Text(digits, true), layout, true);
}

Text LayOutText(const Text& text, const Layout& layout) {
  Text body = text;
  if (layout.precision >= 0) body = text.Part(0, ByteOfCharacter(text.bytes(), static_cast<size_t>(layout.precision)));
  return Pad(Text(), body, layout, false);
}

// A number at *at, which moves behind it; -1 where there is none.
Result<int64_t> ReadWidth(std::string_view format, size_t* at) {
  int64_t number = -1;
  for (; *at < format.size() && format[*at] >= '0' && format[*at] <= '9'; ++*at) {
    number = (number < 0 ? 0 : number) * 10 + (format[*at] - '0');
    if (number > kMaxWidth) return BadInput("a width beyond " + std::to_string(kMaxWidth));
  }
  return number;
}

// ---- "%..." % values

class PercentFormatter {
 public:
  PercentFormatter(Budget* budget, const Text& format, const Value& values) : budget_(budget), format_(format), values_(values) {
    if (values.IsTuple()) tuple_ = &values.sequence()->items;
  }

  Result<Value> Run() {
    const std::string& bytes = format_.bytes();
    while (at_ < bytes.size()) {
      const size_t next = std::min(bytes.find('%', at_), bytes.size());
      out_.AppendPart(format_, at_, next);
      at_ = next;
      if (at_ < bytes.size()) TALLY_RETURN_IF_ERROR(Conversion());
      TALLY_RETURN_IF_ERROR(budget_->Step());
    }
    // Python takes whatever has items for a mapping, which need not be used.
    const bool mapping =
        values_.dict() != nullptr || values_.IsUndefined() || (values_.sequence() != nullptr && values_.sequence()->Indexable());
    const size_t given = tuple_ != nullptr ? tuple_->size() : mapping ? used_ : 1;
    if (used_ < given && !named_) return BadInput("not all arguments converted during string formatting");
    TALLY_RETURN_IF_ERROR(budget_->Make(out_.size()));
    return Value(std::move(out_));
  }

 private:
  Result<const Value*> Next() {
    const size_t n = used_++;
    if (tuple_ == nullptr && n == 0) return &values_;
    if (tuple_ == nullptr || n >= tuple_->size()) return BadInput("not enough arguments for format string");
    return &(*tuple_)[n];
  }

  Result<const Value*> Named() {
    const size_t end = format_.bytes().find(')', at_);
    if (end == std::string::npos) return BadInput("incomplete format key");
    const std::string name = format_.bytes().substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    named_ = true;
    if (values_.dict() == nullptr) return BadInput("format requires a mapping");
    const Value* found = values_.dict()->FindName(name);
    if (found == nullptr) return BadInput("format has no value for '" + name + "'");
    return found;
  }

  Status Conversion() {
    const std::string& bytes = format_.bytes();
    ++at_;
    const Value* value = nullptr;
    if (at_ < bytes.size() && bytes[at_] == '(') {
      TALLY_ASSIGN_OR_RETURN(value, Named());
    }
    Layout layout;
    layout.align = '>';
    for (; at_ < bytes.size() && std::string_view("-+ 0").find(bytes[at_]) != std::string_view::npos; ++at_) {
      if (bytes[at_] == '-') layout.align = '<';
      if (bytes[at_] == '+' || (bytes[at_] == ' ' && layout.sign != '+')) layout.sign = bytes[at_];
      if (bytes[at_] == '0' && layout.align != '<') layout.align = '=';
    }
    TALLY_ASSIGN_OR_RETURN(const int64_t width, ReadWidth(bytes, &at_));
    layout.width = std::max<int64_t>(width, 0);
    if (at_ < bytes.size() && bytes[at_] == '.') {
      ++at_;
      TALLY_ASSIGN_OR_RETURN(layout.precision, ReadWidth(bytes, &at_));
      layout.precision = std::max<int64_t>(layout.precision, 0);
    }
    if (at_ >= bytes.size()) return BadInput("incomplete format");
    const char type = bytes[at_++];
    if (type == '%') {
      out_.AppendPart(format_, at_ - 1, at_);
      return {};
    }
    if (value == nullptr) {
      TALLY_ASSIGN_OR_RETURN(value, Next());
    }
    return Convert(type, *value, &layout);
  }

  Status Convert(char type, const Value& value, Layout* layout) {
    if (type == 's' || type == 'r') {
      TALLY_ASSIGN_OR_RETURN(const Text text, type == 's' ? Str(budget_, value) : Repr(budget_, value));
      if (layout->align == '=') layout->align = '>';
      return Add(LayOutText(text, *layout));
    }
    if (type != 'd' && type != 'i' && type != 'f') return BadInput("unsupported format character '" + std::string(1, type) + "'");
    if (value.IsUndefined()) return BadInput(value.reason());
    if (!value.IsNumber()) return BadInput(std::string("%") + type + " format: a number is required, not " + value.TypeName());
    if (layout->align == '=') layout->fill = Text("0", true);
    layout->type = type;
    if (type == 'f' || !value.IsFloat()) return Add(LayOutNumber(value, *layout));
    if (!(std::abs(value.number()) < 9e18)) return BadInput("%d format: an integer is required, not float");
    return Add(LayOutNumber(Value(static_cast<int64_t>(value.number())), *layout));
  }

  Status Add(const Text& text) {
    out_.Append(text);
    return budget_->Fits(out_.size());
  }

  Budget* budget_;
  const Text& format_;
  const Value& values_;
  const Values* tuple_ = nullptr;
  size_t at_ = 0, used_ = 0;
  bool named_ = false;
  Text out_;
};

// ---- "{}".format(...)

// Bytes [begin, end) of `format`.
Result<Layout> ReadSpec(const Text& format, size_t begin, size_t end) {
  const std::string_view spec = std::string_view(format.bytes()).substr(begin, end - begin);
  Layout layout;
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < spec.size() && std::string_view("<>^=").find(spec[i]) != std::string_view::npos;
  };
  const size_t fill = spec.empty() ? 0 : ReadUtf8(spec, 0).bytes;
  if (fill > 0 && is_align(fill)) {
    layout.fill = format.Part(begin, begin + fill);
    layout.align = spec[fill];
    at = fill + 1;
  } else if (is_align(0)) {
    layout.align = spec[at++];
  }
  if (at < spec.size() && std::string_view("+- ").find(spec[at]) != std::string_view::npos) layout.sign = spec[at++];
  if (at < spec.size() && spec[at] == '0') {
    ++at;
    if (layout.align == 0) layout.align = '=', layout.fill = Text("0", true);
  }
  TALLY_ASSIGN_OR_RETURN(const int64_t width, ReadWidth(spec, &at));
  layout.width = std::max<int64_t>(width, 0);
  if (at < spec.size() && spec[at] == ',') layout.commas = ++at != 0;
  if (at < spec.size() && spec[at] == '.') {
    ++at;
    TALLY_ASSIGN_OR_RETURN(layout.precision, ReadWidth(spec, &at));
    if (layout.precision < 0) return BadInput("Format specifier missing precision");
  }
  if (at < spec.size()) layout.type = spec[at++];
  if (at < spec.size()) return BadInput("Invalid format specifier");
  return layout;
}

class BraceFormatter {
 public:
  BraceFormatter(Budget* budget, const Text& format, const CallArguments& arguments)
      : budget_(budget), format_(format), arguments_(arguments) {}

  Result<Value> Run() {
    const std::string& bytes = format_.bytes();
    for (size_t at = 0; at < bytes.size();) {
      TALLY_RETURN_IF_ERROR(budget_->Step());
      const size_t next = std::min(bytes.find_first_of("{}", at), bytes.size());
      out_.AppendPart(format_, at, next);
      if (next == bytes.size()) break;
      if (next + 1 < bytes.size() && bytes[next + 1] == bytes[next]) {  // {{ and }}
        out_.AppendPart(format_, next, next + 1);
        at = next + 2;
        continue;
      }
      if (bytes[next] == '}') return BadInput("Single '}' encountered in format string");
      const size_t end = bytes.find_first_of("{}", next + 1);
      if (end == std::string::npos) return BadInput("Single '{' encountered in format string");
      if (bytes[end] == '{') return BadInput("fields within fields are not supported in format strings");
      TALLY_RETURN_IF_ERROR(Field(next + 1, end));
      TALLY_RETURN_IF_ERROR(budget_->Fits(out_.size()));
      at = end + 1;
    }
    TALLY_RETURN_IF_ERROR(budget_->Make(out_.size()));
    return Value(std::move(out_));
  }

 private:
  Result<Value> First(std::string_view name) {
    const bool number = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
    if (name.empty() || number) {
      if (number && name.size() > 6) return BadInput("Replacement index out of range");
      const size_t n = number ? static_cast<size_t>(std::stol(std::string(name))) : next_++;
      if (n >= arguments_.positional.size()) return BadInput("Replacement index " + std::to_string(n) + " out of range");
      return arguments_.positional[n];
    }
    TALLY_RETURN_IF_ERROR(budget_->Step(arguments_.named.size() / 16));
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return BadInput("format has no value for '" + std::string(name) + "'");
  }

  Result<Value> Find(std::string_view path) {
    size_t at = std::min(path.find_first_of(".["), path.size());
    TALLY_ASSIGN_OR_RETURN(Value value, First(path.substr(0, at)));
    while (at < path.size()) {
      const bool item = path[at] == '[';
      const size_t end = item ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
      if (end == path.npos) return BadInput("expected '}' before end of string");
      const std::string_view name = path.substr(at + 1, end - at - 1);
      const bool number = item && !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
      const Value key = number ? Value(int64_t{std::stol(std::string(name))}) : Value::Literal(std::string(name));
      TALLY_ASSIGN_OR_RETURN(value, item ? GetItem(budget_, value, key) : GetAttribute(budget_, value, name));
      at = item ? end + 1 : end;
    }
    return value;
  }

  // Bytes [begin, end) of the format.
  Status Field(size_t begin, size_t end) {
    const std::string_view field = std::string_view(format_.bytes()).substr(begin, end - begin);
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view path = field.substr(0, colon);
    const std::string_view spec = colon < field.size() ? field.substr(colon + 1) : "";
    char conversion = 0;
    if (path.size() >= 2 && path[path.size() - 2] == '!') {
      conversion = path.back();
      path.remove_suffix(2);
    }
    TALLY_ASSIGN_OR_RETURN(Value value, Find(path));
    if (conversion != 0) {
      if (conversion != 's' && conversion != 'r') return BadInput("unknown conversion in a format string");
      TALLY_ASSIGN_OR_RETURN(Text text, conversion == 's' ? Str(budget_, value) : Repr(budget_, value));
      value = Value(std::move(text));
    }
    TALLY_ASSIGN_OR_RETURN(const Layout layout, ReadSpec(format_, end - spec.size(), end));
    if (value.IsNumber() && !(value.IsBool() && spec.empty())) return AddNumber(value, layout);
    if (!spec.empty() && !value.IsString()) return BadInput("unsupported format string passed to " + value.TypeName());
    if (layout.type != 0 && layout.type != 's')
      return BadInput("Unknown format code for object of type '" + value.TypeName() + "'");
    TALLY_ASSIGN_OR_RETURN(const Text text, Str(budget_, value));
    out_.Append(LayOutText(text, layout));
    return {};
  }

  Status AddNumber(const Value& value, const Layout& layout) {
    const std::string_view known = value.IsFloat() ? "f%" : "df%";
    if (layout.type != 0 && known.find(layout.type) == known.npos) {
      return BadInput("Unknown format code '" + std::string(1, layout.type) + "' for object of type '" + value.TypeName() + "'");
    }
    if (value.IsFloat() && layout.type == 0 && layout.precision >= 0) return BadInput("a precision wants the format code 'f'");
    out_.Append(LayOutNumber(value, layout));
    return {};
  }

  Budget* budget_;
  const Text& format_;
  const CallArguments& arguments_;
  size_t next_ = 0;
  Text out_;
};

}  // namespace

Result<Value> PercentFormat(Budget* budget, const Text& format, const Value& values) {
  return PercentFormatter(budget, format, values).Run();
}

Result<Value> StrFormat(Budget* budget, const Text& format, const CallArguments& arguments) {
  return BraceFormatter(budget, format, arguments).Run();
}

}  // namespace tally::jinja
