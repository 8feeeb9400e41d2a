// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/access_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tally {
namespace {

HttpRequest Head(HttpHeaders headers, const std::string& path = "/v1/models", const std::string& method = "GET") {
  return {.method = method, .path = path, .headers = std::move(headers)};
}
int StatusOf(const AccessRules& rules, const HttpRequest& head) {
  const AccessRules::Decision decision = rules.Check(head);
  return decision.error ? decision.error->status : 200;
}

TEST(AccessRules, Hosts) {
  const AccessRules rules({.hosts = {"Box.lan"}});
  for (const char* host : {"localhost", "localhost:8080", "LOCALHOST.", "127.0.0.1:1", "[::1]:8080", "127.8.8.8", "box.LAN:80"}) {
    EXPECT_EQ(StatusOf(rules, Head({{"host", host}})), 200) << host;
  }
  for (const char* host : {"", "evil.example", "localhost.evil.example", "10.0.0.1", "[::2]", "[", "a:b:c", "box.lan.evil"}) {
    EXPECT_EQ(StatusOf(rules, Head({{"host", host}})), 403) << host;
  }
  EXPECT_EQ(StatusOf(rules, Head({})), 403);
  EXPECT_EQ(StatusOf(rules, Head({{"host", "localhost"}, {"host", "evil.example"}})), 403);
  // Reached by others: an address is what they typed, a name may be anybody's.
  const AccessRules open({.loopback = false});
  EXPECT_EQ(StatusOf(open, Head({{"host", "10.0.0.1:8080"}})), 200);
  EXPECT_EQ(StatusOf(open, Head({{"host", "evil.example"}})), 403);
  EXPECT_EQ(StatusOf(AccessRules({.hosts = {"*"}}), Head({{"host", "any.example"}})), 200);
}

TEST(AccessRules, Origins) {
  const AccessRules rules({.origins = {"https://chat.example.com"}});
  const auto from = [&](const char* origin) { return Head({{"host", "localhost:8080"}, {"origin", origin}}); };
  for (const char* origin :
       {"http://localhost:8080", "https://localhost:8080", "https://chat.example.com", "HTTPS://CHAT.example.com"}) {
    EXPECT_EQ(StatusOf(rules, from(origin)), 200) << origin;
  }
  for (const char* origin : {"null", "", "http://localhost:8081", "http://localhost", "http://chat.example.com",
                             "https://evil.example", "https://chat.example.com.evil.example"}) {
    EXPECT_EQ(StatusOf(rules, from(origin)), 403) << origin;
    EXPECT_TRUE(rules.CorsHeaders(from(origin)).empty()) << origin;
  }
  EXPECT_TRUE(rules.CorsHeaders(Head({{"host", "localhost"}})).empty());
  // A page elsewhere that does not ask for CORS, which sends no Origin; and a link there.
  EXPECT_EQ(StatusOf(rules, Head({{"host", "localhost"}, {"sec-fetch-site", "cross-site"}}, "/live")), 403);
  EXPECT_EQ(StatusOf(rules, Head({{"host", "localhost"}, {"sec-fetch-site", "cross-site"}}, "/")), 200);
  EXPECT_EQ(StatusOf(rules, Head({{"host", "localhost"}, {"sec-fetch-site", "same-origin"}}, "/live")), 200);
  const HttpHeaders allowed = rules.CorsHeaders(from("https://chat.example.com"));
  ASSERT_EQ(allowed.size(), 3u);
  EXPECT_EQ(allowed[0].second, "https://chat.example.com");
  HttpRequest preflight = from("https://chat.example.com");
  preflight.method = "OPTIONS";
  preflight.headers.emplace_back("access-control-request-headers", "authorization,x-stainless-os");
  EXPECT_EQ(rules.CorsHeaders(preflight)[3].second, "authorization,x-stainless-os");
  preflight.headers.back().second = "a\r\nSet-Cookie: b";
  EXPECT_EQ(rules.CorsHeaders(preflight)[3].second, "authorization, content-type, x-api-key, anthropic-version, x-tally");
}

TEST(AccessRules, LocalOrigins) {
  const auto from = [&](const char* origin) { return Head({{"host", "localhost:8080"}, {"origin", origin}}); };
  const AccessRules none({}), local({.origins = {"local"}});
  for (const char* origin : {"http://localhost:5173", "https://localhost", "http://127.0.0.1:3000", "http://[::1]:3000",
                             "http://app.localhost:1", "HTTP://LOCALHOST:1"}) {
    const AccessRules::Decision refused = none.Check(from(origin));
    ASSERT_TRUE(refused.error.has_value()) << origin;
    EXPECT_EQ(refused.error->status, 403);
    EXPECT_NE(refused.error->message.find("--allow-origin local"), std::string::npos) << refused.error->message;
    EXPECT_EQ(StatusOf(local, from(origin)), 200) << origin;
    EXPECT_EQ(local.CorsHeaders(from(origin))[0].second, origin);
  }
  for (const char* origin : {"null", "local", "file://", "http://localhost.evil.example", "http://evil.example",
                             "http://10.0.0.1", "http://localhost@evil.example", "ftp://localhost"}) {
    EXPECT_EQ(StatusOf(local, from(origin)), 403) << origin;
  }
}

TEST(AccessRules, Keys) {
  const AccessRules rules({.keys = {"first-key-0123456789", "second-key-012345678"}});
  const auto with = [](const std::string& value, const std::string& path = "/v1/models") {
    return Head({{"host", "localhost"}, {"authorization", value}}, path);
  };
  EXPECT_EQ(rules.Check(with("Bearer first-key-0123456789")).client, "key 1");
  EXPECT_EQ(rules.Check(with("bearer second-key-012345678")).client, "key 2");
  // What is kept for a key is its own wherever it stands in the file.
  const AccessRules later({.keys = {"second-key-012345678"}});
  EXPECT_EQ(later.Check(with("Bearer second-key-012345678")).key, rules.Check(with("Bearer second-key-012345678")).key);
  EXPECT_NE(rules.Check(with("Bearer first-key-0123456789")).key, rules.Check(with("Bearer second-key-012345678")).key);
  for (const char* value :
       {"", "Bearer ", "first-key-0123456789", "Basic first-key-0123456789", "Bearer first-key-012345678",
        "Bearer first-key-01234567890", "Bearer first-key-0123456789first-key-0123456789", "Bearer FIRST-KEY-0123456789"}) {
    EXPECT_EQ(StatusOf(rules, with(value)), 401) << value;
    EXPECT_EQ(StatusOf(rules, with(value, "/metrics")), 401) << value;
    EXPECT_EQ(StatusOf(rules, with(value, "/health")), 200) << value;
    EXPECT_EQ(StatusOf(rules, with(value, "/")), 200) << value;
  }
  EXPECT_EQ(StatusOf(rules, Head({{"host", "localhost"}}, "/health/")), 401);
  EXPECT_EQ(StatusOf(rules, Head({{"host", "evil.example"}}, "/health")), 403);
}

TEST(AccessRules, FilesOfKeys) {
  const Result<std::vector<std::string>> keys = ReadKeys("keys", "# mine\n\n  first-key-0123456789 \r\nsecond-key-012345678");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(*keys, (std::vector<std::string>{"first-key-0123456789", "second-key-012345678"}));
  for (const char* text : {"", "# none\n", "short\n", "one key of several words\n", "k\xc3\xa9y-0123456789-0123456789\n"}) {
    const Result<std::vector<std::string>> bad = ReadKeys("keys", text);
    ASSERT_FALSE(bad.ok()) << text;
    EXPECT_TRUE(bad.status().message().starts_with("keys:")) << bad.status().message();
    EXPECT_EQ(bad.status().message().find("short"), std::string::npos) << "a secret is not shown";
  }
}

}  // namespace
}  // namespace tally
