// SPDX-License-Identifier: Apache-2.0
#include "engine/page/chat_page.h"

#include <charconv>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/digest.h"
#include "engine/page/assets.h"
#include "engine/page/style.h"

namespace tally {
namespace {

// RFC 4648, of whole bytes written in hexadecimal.
std::string Base64OfHex(std::string_view hex) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < hex.size(); at += 6) {
    const std::string_view part = hex.substr(at, 6);  // three bytes, four digits
    uint32_t bits = 0;
    std::from_chars(part.data(), part.data() + part.size(), bits, 16);
    bits <<= 4 * (6 - part.size());
    const size_t digits = part.size() / 2 + 1;
    for (size_t i = 0; i < 4; ++i) out += i < digits ? kDigits[(bits >> (18 - 6 * i)) & 63] : '=';
  }
  return out;
}

std::string HashSourceOfHex(std::string_view hex) { return " 'sha256-" + Base64OfHex(hex) + "'"; }

std::string HashSource(std::string_view text) {
  Digest digest = Digest::Sha256();
  digest.Add({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return HashSourceOfHex(digest.Hex());
}

constexpr std::string_view kHead =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1, interactive-widget=resizes-content\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<meta name=\"referrer\" content=\"no-referrer\">\n"
    "<meta name=\"generator\" content=\"tally serve\">\n"
    "<link rel=\"icon\" href=\"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath "
    "d='M3 3v10M6 3v10M9 3v10M12 3v10M1 11 14 5' fill='none' stroke='%230b62a8' stroke-width='1.6'/%3E%3C/svg%3E\">\n"
    "<title>Tally</title>\n<style>";

}  // namespace

ChatPage MakeChatPage() {
  const std::string css = page::ChatCss(), script = "\"use strict\";\n(() => {\n" + std::string(page::kChatScript) + "})();\n";
  std::vector<std::string_view> scripts;
  for (const std::string_view library : {page::kMarkedScript, page::kPurifyScript}) {
    if (!library.empty()) scripts.push_back(library);
  }
  scripts.push_back(script);

  ChatPage page;
  page.html = std::string(kHead) + css + "</style>\n</head>\n" + std::string(page::kChatHtml);
  std::string hashes;
  if (!page::kKatexGzip.empty()) {  // data until a script unpacks it
    page.html += "<script type=\"application/gzip\" id=\"packed-katex\">" + Base64OfHex(page::kKatexGzip) + "</script>\n";
    hashes = HashSourceOfHex(page::kKatexSha256);
  }
  for (const std::string_view text : scripts) {
    page.html += "<script>" + std::string(text) + "</script>\n";
    hashes += HashSource(text);
  }
  page.html += "</body>\n</html>\n";
  page.content_security_policy =
      "default-src 'none'; script-src" + hashes + "; style-src" + HashSource(css) +
      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
  return page;
}

}  // namespace tally
