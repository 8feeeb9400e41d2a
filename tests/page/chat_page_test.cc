// SPDX-License-Identifier: Apache-2.0
#include "engine/page/chat_page.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/digest.h"

namespace tally {
namespace {

// The texts of the elements <name>: the document has no such element within another's text.
std::vector<std::string> Texts(const std::string& html, const std::string& name) {
  std::vector<std::string> all;
  const std::string from = "<" + name + ">", to = "</" + name + ">";
  for (size_t at = 0; (at = html.find(from, at)) != std::string::npos;) {
    const size_t begin = at + from.size(), end = html.find(to, begin);
    all.push_back(html.substr(begin, end - begin));
    at = end;
  }
  return all;
}

std::string Hex(const std::string& text) {
  Digest digest = Digest::Sha256();
  digest.Add({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return digest.Hex();
}

// The hexadecimal digits of what the source 'sha256-BASE64' says; empty: it is none.
std::string HexOfSource(const std::string& source) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", head = "'sha256-";
  if (!source.starts_with(head) || source.size() != head.size() + 45) return "";
  std::string hex;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : source.substr(head.size(), 43)) {
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    for (count += 6; count >= 4;) hex += "0123456789abcdef"[bits >> (count -= 4) & 15];
  }
  return hex.substr(0, 64);
}

// The sources of a directive of the policy.
std::vector<std::string> Sources(const std::string& policy, const std::string& directive) {
  std::vector<std::string> sources;
  const size_t at = policy.find(directive + " ");
  if (at == std::string::npos) return sources;
  std::istringstream words(policy.substr(at, policy.find(';', at) - at));
  for (std::string word; words >> word;) sources.push_back(word);
  sources.erase(sources.begin());
  return sources;
}

TEST(ChatPage, IsSmallAndTheSameEachTime) {
  const ChatPage page = MakeChatPage();
  EXPECT_LT(page.html.size(), 400'000u);
  EXPECT_EQ(page.html, MakeChatPage().html);
  EXPECT_TRUE(page.html.starts_with("<!doctype html>"));
  EXPECT_TRUE(page.html.ends_with("</html>\n"));
  RecordProperty("bytes", static_cast<int>(page.html.size()));
}

TEST(ChatPage, ThePolicyHasTheHashOfEachTextAndNothingElse) {
  const ChatPage page = MakeChatPage();
  for (const auto& [element, directive] : {std::pair<const char*, const char*>{"script", "script-src"}, {"style", "style-src"}}) {
    std::multiset<std::string> texts, hashes;
    for (const std::string& text : Texts(page.html, element)) texts.insert(Hex(text));
    for (const std::string& source : Sources(page.content_security_policy, directive)) hashes.insert(HexOfSource(source));
    EXPECT_FALSE(texts.empty()) << element;
    // KaTeX's text has one, too, and is there packed; the browser's tests unpack it.
    const bool packed = std::string_view(element) == "script" && page.html.find(" id=\"packed-katex\"") != std::string::npos;
    EXPECT_EQ(hashes.size(), texts.size() + (packed ? 1 : 0)) << element;
    for (const std::string& text : texts) EXPECT_TRUE(hashes.contains(text)) << element;
  }
  for (const auto& [directive, source] : {std::pair<const char*, const char*>{"default-src", "'none'"},
                                          {"connect-src", "'self'"},
                                          {"img-src", "data:"},
                                          {"base-uri", "'none'"},
                                          {"form-action", "'none'"},
                                          {"frame-ancestors", "'none'"}}) {
    EXPECT_EQ(Sources(page.content_security_policy, directive), std::vector<std::string>{source}) << directive;
  }
  EXPECT_EQ(page.content_security_policy.find("unsafe"), std::string::npos);
}

// What the policy would refuse, and the browser would not say before somebody clicks.
TEST(ChatPage, HasNoInlineHandlersStylesOrAddresses) {
  const std::string html = MakeChatPage().html;
  const size_t from = html.find("<body>"), to = html.find("<script>");
  ASSERT_LT(from, to);
  const std::string body = html.substr(from, to - from);
  for (const char* forbidden : {" onclick=", " style=", "http://", "https://", "javascript:", " src="}) {
    EXPECT_EQ(body.find(forbidden), std::string::npos) << forbidden;
  }
}

TEST(ChatPage, EveryIdThatTheScriptNamesIsThereOnce) {
  const std::string html = MakeChatPage().html;
  for (const char* call : {"byId(\"", "for=\"", "aria-controls=\"", "aria-labelledby=\"", "aria-describedby=\""}) {
    size_t found = 0;
    for (size_t at = 0; (at = html.find(call, at)) != std::string::npos; ++found) {
      at += std::string_view(call).size();
      const std::string id = " id=\"" + html.substr(at, html.find('"', at) - at) + "\"";
      const size_t first = html.find(id);
      EXPECT_NE(first, std::string::npos) << call << id;
      EXPECT_EQ(html.find(id, first + 1), std::string::npos) << id;
    }
    EXPECT_GT(found, 0u) << call;
  }
}

}  // namespace
}  // namespace tally
