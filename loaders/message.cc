#include "loaders/message.h"

#include <algorithm>
#include <system_error>

namespace tally::internal {
namespace {

// Length of the valid UTF-8 sequence that starts `text`, 0 where there is none (RFC 3629: no surrogates, no
// overlong forms).
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t n = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  if (n == 0 || text.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
      (lead == 0xf4 && second > 0x8f)) {
    return 0;
  }
  return n;
}

// U+0080..U+009F are control characters too, and U+2028, U+2029 break lines in some terminals and JSON tools.
bool IsControl(std::string_view c) {
  const unsigned char first = static_cast<unsigned char>(c[0]);
  if (c.size() == 1) return first < 0x20 || first == 0x7f;
  if (c.size() == 2) return first == 0xc2 && static_cast<unsigned char>(c[1]) < 0xa0;
  return c == "\xe2\x80\xa8" || c == "\xe2\x80\xa9";
}

}  // namespace

std::string Printable(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t n = Utf8Length(text);
    if (n > 0 && !IsControl(text.substr(0, n))) {
      out += text.substr(0, n);
      text.remove_prefix(n);
      continue;
    }
    for (size_t i = 0; i < std::max<size_t>(n, 1); ++i) {
      const unsigned char b = static_cast<unsigned char>(text[i]);
      out += "\\x";
      out += kHex[b >> 4];
      out += kHex[b & 15];
    }
    text.remove_prefix(std::max<size_t>(n, 1));
  }
  return out;
}

std::string Quote(std::string_view name) {
  constexpr size_t kHead = 64, kTail = 24;
  if (name.size() <= kHead + kTail + 16) return "'" + Printable(name) + "'";
  // Cutting may split a character; its bytes are then shown as \xNN, which is still one honest line.
  return "'" + Printable(name.substr(0, kHead)) + "..." + Printable(name.substr(name.size() - kTail)) + "' (" +
         std::to_string(name.size()) + " bytes)";
}

std::string ErrnoText(int error_number) { return std::generic_category().message(error_number); }

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string FileNameOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string JoinPath(const std::string& directory, const std::string& name) {
  return directory.ends_with('/') ? directory + name : directory + "/" + name;
}

}  // namespace tally::internal
