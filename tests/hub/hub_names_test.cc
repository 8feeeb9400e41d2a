// SPDX-License-Identifier: Apache-2.0
// Names, addresses, variables, digests: what needs no network.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "engine/hub/client.h"
#include "engine/hub/hub.h"
#include "engine/hub/name.h"
#include "engine/hub/url.h"

namespace tally::hub {
namespace {

TEST(HubName, OfOneFormOnly) {
  const Result<Name> plain = ParseName("Qwen/Qwen3-0.6B");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->org, "Qwen");
  EXPECT_EQ(plain->name, "Qwen3-0.6B");
  EXPECT_EQ(plain->choice, "");
  const Result<Name> file = ParseName("unsloth/gpt-oss-GGUF:Q4_K_M/a-00001-of-00002.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->choice, "Q4_K_M/a-00001-of-00002.gguf");
  EXPECT_EQ(file->text(), "unsloth/gpt-oss-GGUF:Q4_K_M/a-00001-of-00002.gguf");
  EXPECT_EQ(FolderOf(*plain), "models--Qwen--Qwen3-0.6B");
  for (const char* address :
       {"https://huggingface.co/Qwen/Qwen3-0.6B", "huggingface.co/Qwen/Qwen3-0.6B", "hf.co/Qwen/Qwen3-0.6B"}) {
    const Result<Name> named = ParseName(address);
    ASSERT_TRUE(named.ok()) << address;
    EXPECT_EQ(named->text(), "Qwen/Qwen3-0.6B");
  }
  for (const char* bad : {"",
                          "gpt2",
                          "/a/b",
                          "a/",
                          "/b",
                          "a//b",
                          "a/b/c",
                          "../b",
                          "a/..",
                          "./b",
                          "a/.b",
                          "a/b.",
                          "a/b--c",
                          "a/b..c",
                          "a b/c",
                          "a/b\n",
                          "-a/b",
                          "a/b.git",
                          "a/b:",
                          "a/b:/etc/passwd",
                          "a/b:../c",
                          "a/b:c/../d",
                          "a/b:c//d",
                          "a/b:c/.",
                          "a/b:c\\d",
                          "a/b:c\x01",
                          "\xc3\xa9/b",
                          "https://example.com/a",
                          "https://hf.co/a"}) {
    EXPECT_FALSE(ParseName(bad).ok()) << bad;
    EXPECT_EQ(ParseName(bad).status().message().find('\n'), std::string::npos);
  }
  EXPECT_FALSE(ParseName("a/" + std::string(95, 'b')).ok());
  EXPECT_TRUE(ParseName("a/" + std::string(94, 'b')).ok());
  EXPECT_FALSE(CheckFilePath(std::string(256, 'a')).ok());
  EXPECT_FALSE(CheckFilePath(std::string("a\0b", 3)).ok());
}

TEST(HubUrl, AreTakenApart) {
  const Result<Url> url = ParseUrl("HTTPS://Huggingface.CO/a/b?c=d#e");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->origin(), "https://huggingface.co:443");
  EXPECT_EQ(url->path, "/a/b?c=d");
  EXPECT_EQ(url->text(), "https://huggingface.co/a/b?c=d");
  EXPECT_EQ(ParseUrl("http://[::1]:8080/x")->origin(), "http://[::1]:8080");
  EXPECT_EQ(ParseUrl("http://a?b")->path, "?b");
  for (const char* bad :
       {"", "huggingface.co", "ftp://a/b", "file:///etc/passwd", "https://", "https:///a", "http://user@host/",
        "http://user:secret@host/", "http://host:0/", "http://host:99999/", "http://host:x/", "http://host:/", "http://ho st/",
        "http://host/\n", "http://host\\@evil/", "http://[::1/", "http://[x]/", "http://ho%73t/"}) {
    EXPECT_FALSE(ParseUrl(bad).ok()) << bad;
  }
  EXPECT_EQ(ParseUrl("ftp://a/b?signature=secret").status().message().find("secret"), std::string::npos);
}

TEST(HubUrl, Redirects) {
  const Url base = *ParseUrl("https://hub/a/b?c");
  EXPECT_EQ(ResolveRedirect(base, "https://Other:8443/x")->text(), "https://other:8443/x");
  EXPECT_EQ(ResolveRedirect(base, "//other/x")->text(), "https://other/x");
  EXPECT_EQ(ResolveRedirect(base, "/x?y=http://z")->text(), "https://hub/x?y=http://z");
  EXPECT_EQ(ResolveRedirect(base, "x")->text(), "https://hub/a/x");
  EXPECT_EQ(ResolveRedirect(base, " /x\r")->text(), "https://hub/x");
  for (const char* bad : {"", "http://hub/x", "ftp://hub/x", "file:///etc/passwd", "javascript:alert(1)", "https://u:p@hub/x"}) {
    EXPECT_FALSE(ResolveRedirect(base, bad).ok()) << bad;
  }
  EXPECT_TRUE(ResolveRedirect(*ParseUrl("http://hub/"), "https://hub/").ok());
}

TEST(HubUrl, WhoGetsTheToken) {
  const Url hub = *ParseUrl("https://huggingface.co");
  EXPECT_TRUE(MaySendToken(hub, *ParseUrl("https://huggingface.co:443/api/x")));
  for (const char* other :
       {"https://cdn-lfs.huggingface.co/x", "https://huggingface.co.evil.org/", "https://huggingface.co:8443/",
        "http://huggingface.co/", "https://evil.org/?https://huggingface.co/", "https://huggingface.com/"}) {
    EXPECT_FALSE(MaySendToken(hub, *ParseUrl(other))) << other;
  }
  const Url mirror = *ParseUrl("http://mirror.example");
  EXPECT_FALSE(MaySendToken(mirror, *ParseUrl("http://mirror.example/x")));  // in the clear, over a network
  EXPECT_TRUE(MaySendToken(*ParseUrl("http://127.0.0.1:80"), *ParseUrl("http://127.0.0.1/x")));
}

TEST(HubUrl, ThisMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.255.0.9", "[::1]"}) EXPECT_TRUE(IsLoopback(host)) << host;
  for (const char* host : {"127.evil.org", "127.0.0.1.evil.org", "127.0.0", "127.0.0.0.1", "127.0.0.", "127..0.1", "127.0.0.256",
                           "127.0.0.0001", "127.0.0.x", "1270.0.0.1", "128.0.0.1", "localhost.evil.org", "", "127."}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
  EXPECT_FALSE(MaySendToken(*ParseUrl("http://127.evil.org"), *ParseUrl("http://127.evil.org/x")));
}

TEST(HubMessages, HoldNoToken) {
  const auto shown = [](const std::string& message, const std::string& token) {
    const Status status = WithoutToken(BadInput(message), token);
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    return status.message();
  };
  EXPECT_EQ(shown("a hf_0123456789 b hf_0123456789", "hf_0123456789"), "a *** b ***");
  EXPECT_EQ(shown("cut 'hf_01234...23456789'", "hf_0123456789"), "cut '***...***'");
  EXPECT_EQ(shown("hf_0123456789", "hf_0123456789"), "***");
  EXPECT_EQ(shown("set HF_TOKEN, hf_", "hf_0123456789"), "set HF_TOKEN, hf_");
  EXPECT_EQ(shown("xabcx abc ab", "abc"), "x***x *** ab");
  EXPECT_EQ(shown("words", ""), "words");
  EXPECT_TRUE(WithoutToken(Status(), "hf_0123456789").ok());
}

TEST(HubHeaders, AreRead) {
  EXPECT_EQ(EtagValue("\"abc\""), "abc");
  EXPECT_EQ(EtagValue("W/\"abc\""), "abc");
  EXPECT_EQ(EtagValue("abc"), "abc");
  EXPECT_EQ(RetryAfterSeconds(" 12 "), 12);
  EXPECT_FALSE(RetryAfterSeconds("Wed, 21 Oct 2015 07:28:00 GMT"));
  EXPECT_FALSE(RetryAfterSeconds("-1"));
  EXPECT_FALSE(RetryAfterSeconds(""));
  const auto range = ParseContentRange("bytes 3-9/10");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 3u);
  EXPECT_EQ(range->last, 9u);
  EXPECT_EQ(range->total, 10u);
  EXPECT_FALSE(ParseContentRange("bytes 3-9/*")->total);
  for (const char* bad : {"", "bytes", "bytes */10", "bytes 9-3/10", "bytes 3-/10", "items 3-9/10", "bytes 3-9", "bytes 3-9/x",
                          "bytes 99999999999999999999-9/10"}) {
    EXPECT_FALSE(ParseContentRange(bad)) << bad;
  }
  EXPECT_EQ(EscapePath("a b/c+d%é"), "a%20b/c%2Bd%25%C3%A9");
}

Result<Settings> Read(const std::map<std::string, std::string>& variables) {
  return ReadSettings([&](const char* name) {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

TEST(HubSettings, AsHuggingfaceHubReadsThem) {
  EXPECT_EQ(Read({{"HOME", "/home/a"}})->cache, "/home/a/.cache/huggingface/hub");
  EXPECT_EQ(Read({{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "/x"}})->cache, "/x/huggingface/hub");
  EXPECT_EQ(Read({{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/h"}})->cache, "/h/hub");
  EXPECT_EQ(Read({{"HF_HOME", "/h"}, {"HF_HUB_CACHE", "/c"}})->cache, "/c");
  EXPECT_EQ(Read({{"HF_HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/c"}})->cache, "/c");
  EXPECT_EQ(Read({{"HOME", "/home/a"}, {"HF_HOME", "~/h"}})->cache, "/home/a/h/hub");
  EXPECT_FALSE(Read({}).ok());
  const std::string home = "/nowhere";
  EXPECT_EQ(Read({{"HF_HOME", home}})->endpoint, "https://huggingface.co");
  EXPECT_EQ(Read({{"HF_HOME", home}, {"HF_ENDPOINT", "https://mirror/hf//"}})->endpoint, "https://mirror/hf");
  EXPECT_FALSE(Read({{"HF_HOME", home}, {"HF_ENDPOINT", "mirror"}}).ok());
  EXPECT_FALSE(Read({{"HF_HOME", home}})->offline);
  for (const char* yes : {"1", "on", "YES", "True"}) EXPECT_TRUE(Read({{"HF_HOME", home}, {"HF_HUB_OFFLINE", yes}})->offline);
  EXPECT_FALSE(Read({{"HF_HOME", home}, {"HF_HUB_OFFLINE", "0"}})->offline);
  EXPECT_TRUE(Read({{"HF_HOME", home}, {"TRANSFORMERS_OFFLINE", "1"}})->offline);
  EXPECT_FALSE(Read({{"HF_HOME", home}, {"HF_HUB_OFFLINE", "0"}, {"TRANSFORMERS_OFFLINE", "1"}})->offline);
  for (const char* bad : {"https://mirror?x=", "https://mirror/#"}) {
    EXPECT_FALSE(Read({{"HF_HOME", home}, {"HF_ENDPOINT", bad}}).ok()) << bad;
  }
}

TEST(HubSettings, Tokens) {
  const std::filesystem::path home = std::filesystem::path(testing::TempDir()) / ("hub_token_" + std::to_string(getpid()));
  std::filesystem::create_directories(home);
  std::ofstream(home / "token") << "hf_file\n";
  std::ofstream(home / "other") << "hf_other";
  const std::string h = home.string();
  EXPECT_EQ(Read({{"HF_HOME", h}})->token, "hf_file");
  EXPECT_EQ(Read({{"HF_HOME", h}, {"HF_TOKEN", " hf_variable\n"}})->token, "hf_variable");
  EXPECT_EQ(Read({{"HF_HOME", h}, {"HUGGING_FACE_HUB_TOKEN", "hf_old"}})->token, "hf_old");
  EXPECT_EQ(Read({{"HF_HOME", h}, {"HF_TOKEN_PATH", h + "/other"}})->token, "hf_other");
  EXPECT_EQ(Read({{"HF_HOME", h}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}})->token, "");
  EXPECT_EQ(Read({{"HF_HOME", h}, {"HF_TOKEN", "hf_x"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}})->token, "");
  EXPECT_TRUE(Read({{"HF_HOME", h}})->token_status.ok());
  // A token that is none is in the way of the network only.
  std::ofstream(home / "long") << std::string(10'000, 'x');
  for (const auto& [variable, value] :
       {std::pair("HF_TOKEN", std::string("hf_a\r\nX-Evil: hf_b")), std::pair("HF_TOKEN_PATH", h + "/long")}) {
    const Result<Settings> bad = Read({{"HF_HOME", h}, {variable, value}});
    ASSERT_TRUE(bad.ok()) << bad.status().message();
    EXPECT_EQ(bad->token, "");
    EXPECT_FALSE(bad->token_status.ok());
    EXPECT_EQ(bad->token_status.message().find("hf_a"), std::string::npos);
    EXPECT_EQ(OpenHub(*bad).status().message(), bad->token_status.message());
  }
  std::filesystem::remove_all(home);
}

}  // namespace
}  // namespace tally::hub
