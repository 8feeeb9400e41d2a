// SPDX-License-Identifier: Apache-2.0
// tokenizer.json files that a test puts together from its parts.
#pragma once

#include <memory>
#include <string>

#include "tests/support/temp_folder.h"
#include "tests/text/text_test_util.h"

namespace tally::test {

using Folder = TempFolder;

// The parts of a tokenizer.json; each is the text of a JSON value.
struct Spec {
  std::string vocab = R"({"a":0,"b":1,"c":2,"ab":3,"_":4,"_a":5,"<u>":6,"bc":7})";
  std::string merges = R"(["a b","_ a","b c"])";
  std::string model = R"("unk_token":"<u>")";  // further members
  std::string added = "[]";
  std::string normalizer = "null", pre = "null", post = "null", decoder = R"({"type":"Fuse"})";
  std::string Text() const {
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" + added + R"(,"normalizer":)" + normalizer +
           R"(,"pre_tokenizer":)" + pre + R"(,"post_processor":)" + post + R"(,"decoder":)" + decoder +
           R"(,"model":{"type":"BPE","vocab":)" + vocab + R"(,"merges":)" + merges + (model.empty() ? "" : ",") + model + "}}";
  }
};

inline std::unique_ptr<Tokenizer> Make(const Spec& spec, const std::string& config = "") {
  const Folder folder;
  if (!config.empty()) folder.Write("tokenizer_config.json", config);
  auto made = TokenizerFromJson(folder.Write("tokenizer.json", spec.Text()));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

inline std::string Error(const std::string& json, const std::string& config = "") {
  const Folder folder;
  if (!config.empty()) folder.Write("tokenizer_config.json", config);
  auto made = TokenizerFromJson(folder.Write("tokenizer.json", json));
  if (made.ok()) return "";
  EXPECT_EQ(made.status().code(), StatusCode::kBadInput);
  EXPECT_NE(made.status().message().find("tokenizer"), std::string::npos);
  EXPECT_EQ(made.status().message().find('\n'), std::string::npos);
  return made.status().message();
}

}  // namespace tally::test
