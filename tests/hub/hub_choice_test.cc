// SPDX-License-Identifier: Apache-2.0
// Reading the hub's list, and what a name stands for.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "engine/hub/listing.h"

namespace tally::hub {
namespace {

using Json = nlohmann::json;
const std::string kCommit(40, 'a'), kSha1(40, 'b'), kSha256(64, 'c');

Listing Of(const std::vector<std::string>& paths) {
  Listing listing{kCommit, {}};
  for (const std::string& p : paths) listing.files.push_back({p, 1 << 20, kSha256});
  std::sort(listing.files.begin(), listing.files.end(), [](const File& a, const File& b) { return a.path < b.path; });
  return listing;
}

std::string Chosen(const std::vector<std::string>& paths, const std::string& choice = "", Want want = Want::kWeights,
                   bool cached = false) {
  const Result<Choice> chosen = Choose(Of(paths), {"o", "n", choice}, want, cached);
  if (!chosen.ok()) return "refused: " + chosen.status().message();
  std::string text = chosen->open + ":";
  for (const File& f : chosen->files) text += " " + f.path;
  return text + (chosen->index.empty() ? "" : " +" + chosen->index);
}

TEST(HubListing, IsRead) {
  const Json good = {{"sha", kCommit},
                     {"config", {{"size", 3}, {"siblings", 1}}},
                     {"siblings",
                      {{{"rfilename", "model.safetensors"},
                        {"size", 7},
                        {"blobId", kSha1},
                        {"lfs", {{"sha256", kSha256}, {"size", 8}, {"pointerSize", 9}}}},
                       {{"rfilename", "a/config.json"}, {"size", 5}, {"blobId", kSha1}}}}};
  const Result<Listing> listing = ParseListing(good.dump(), "o/n");
  ASSERT_TRUE(listing.ok()) << listing.status().message();
  EXPECT_EQ(listing->commit, kCommit);
  ASSERT_EQ(listing->files.size(), 2u);
  EXPECT_EQ(listing->files[0].path, "a/config.json");
  EXPECT_EQ(listing->files[0].digest, kSha1);
  EXPECT_EQ(listing->files[1].size, 8u);
  EXPECT_EQ(listing->files[1].digest, kSha256);
  EXPECT_NE(listing->Find("model.safetensors"), nullptr);
  EXPECT_EQ(listing->Find("model"), nullptr);

  const auto refused = [&](const std::function<void(Json&)>& change, const std::string& part) {
    Json bad = good;
    change(bad);
    const Result<Listing> read = ParseListing(bad.dump(), "o/n");
    ASSERT_FALSE(read.ok()) << part;
    EXPECT_NE(read.status().message().find(part), std::string::npos) << read.status().message();
  };
  for (const char* path : {"../evil", "/etc/passwd", "a/../../b", "", "a\\b", "a//b", "."}) {
    refused([&](Json& j) { j["siblings"][1]["rfilename"] = path; }, "is no path of a file");
  }
  refused([](Json& j) { j.erase("sha"); }, "40 hexadecimal digits");
  refused([](Json& j) { j["sha"] = "../../../../../../../../../../etc/passwd12"; }, "40 hexadecimal digits");
  refused([](Json& j) { j.erase("siblings"); }, "siblings");
  refused([](Json& j) { j["siblings"] = Json::object(); }, "siblings");
  refused([](Json& j) { j["siblings"][1].erase("size"); }, "its size and its digest are not said");
  refused([](Json& j) { j["siblings"][1]["size"] = -5; }, "its size and its digest are not said");
  refused([](Json& j) { j["siblings"][1]["size"] = UINT64_MAX; }, "no size of a file");
  refused([](Json& j) { j["siblings"][0]["lfs"]["sha256"] = "../x"; }, "is no digest");
  refused([](Json& j) { j["siblings"][1]["blobId"] = std::string(40, 'Z'); }, "is no digest");
  refused([](Json& j) { j["siblings"][1]["rfilename"] = "model.safetensors"; }, "appears twice");
  EXPECT_FALSE(ParseListing("<html>", "o/n").ok());
  EXPECT_FALSE(ParseListing("[]", "o/n").ok());
}

TEST(HubListing, Index) {
  const Result<std::vector<std::string>> shards = ShardsOfIndex(
      R"({"metadata":{"x":{"weight_map":"z"}},"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors","c":"m-1.safetensors"}})",
      "i");
  ASSERT_TRUE(shards.ok()) << shards.status().message();
  EXPECT_EQ(*shards, (std::vector<std::string>{"m-1.safetensors", "m-2.safetensors"}));
  for (const char* bad : {"{}", R"({"weight_map":{}})", R"({"weight_map":{"a":"../x"}})", R"({"weight_map":{"a":"b/c"}})",
                          R"({"weight_map":{"a":3}})", "[]", ""}) {
    EXPECT_FALSE(ShardsOfIndex(bad, "i").ok()) << bad;
  }
}

TEST(HubChoice, TypesInNames) {
  for (const char* name : {"x-Q4_K_M.gguf", "x.q4_k_m.gguf", "Q4_K_M/x-00001-of-00002.gguf", "x-Q4_K_M-00001-of-00002.gguf",
                           "x_Q4_K_M.gguf", "x-UD-Q4_K_M.gguf"}) {
    EXPECT_TRUE(HasType(name, "Q4_K_M")) << name;
  }
  for (const char* name : {"x-IQ4_K_M.gguf", "x-Q4_K_MX.gguf", "x-Q4_K.gguf", "x-Q4_K_M_L.gguf"})
    EXPECT_FALSE(HasType(name, "Q4_K_M")) << name;
  EXPECT_FALSE(HasType("x-Q4_0_4_4.gguf", "Q4_0"));
  EXPECT_FALSE(HasType("x-Q4_K_M.gguf", "Q4_K"));
  EXPECT_FALSE(HasType("x-BF16.gguf", "F16"));
  EXPECT_TRUE(HasType("x-f16.gguf", "F16"));
  EXPECT_FALSE(PartOf("x-00003-of-00002.gguf"));
  EXPECT_FALSE(PartOf("x-00000-of-00002.gguf"));
  EXPECT_EQ(PartOf("a/x-00002-of-00003.gguf")->stem, "a/x");
}

TEST(HubChoice, Safetensors) {
  EXPECT_EQ(Chosen({"config.json", "model.safetensors", "tokenizer.json", "README.md", "onnx/model.onnx", "x-Q4_K_M.gguf",
                    "original/model.safetensors", "pytorch_model.bin", "chat_template.jinja"}),
            ": config.json tokenizer.json chat_template.jinja model.safetensors");
  EXPECT_EQ(
      Chosen({"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors", "consolidated.safetensors"}),
      ": config.json model.safetensors.index.json +model.safetensors.index.json");
  EXPECT_EQ(Chosen({"config.json", "other.safetensors"}), ": config.json other.safetensors");
  EXPECT_NE(Chosen({"config.json", "a.safetensors", "b.safetensors"}).find("2 safetensors files"), std::string::npos);
  EXPECT_EQ(Chosen({"config.json", "model.safetensors", "x-Q4_K_M.gguf"}, "", Want::kConfiguration), "config.json: config.json");
  EXPECT_EQ(Chosen({"config.json", "pytorch_model.bin"}, "", Want::kConfiguration), "config.json: config.json");
  EXPECT_NE(Chosen({"config.json", "pytorch_model.bin"}).find("'pytorch_model.bin'"), std::string::npos);
  EXPECT_NE(Chosen({"README.md"}).find("no config.json"), std::string::npos);
}

TEST(HubChoice, Gguf) {
  const std::vector<std::string> several = {"x-Q8_0.gguf", "x-Q4_K_M.gguf", "mmproj-x-Q4_K_M.gguf", "x-imatrix.gguf",
                                            "README.md"};
  EXPECT_EQ(Chosen(several), "x-Q4_K_M.gguf: x-Q4_K_M.gguf");
  EXPECT_EQ(Chosen(several, "q8_0"), "x-Q8_0.gguf: x-Q8_0.gguf");
  EXPECT_EQ(Chosen(several, "mmproj-x-Q4_K_M.gguf"), "mmproj-x-Q4_K_M.gguf: mmproj-x-Q4_K_M.gguf");
  EXPECT_EQ(Chosen(several, "README.md"), "README.md: README.md");
  EXPECT_NE(Chosen(several, "Q5_0").find("x-Q4_K_M.gguf (1.00 MiB), x-Q8_0.gguf"), std::string::npos) << Chosen(several, "Q5_0");
  EXPECT_EQ(Chosen({"x-mxfp4.gguf", "config.json"}), "x-mxfp4.gguf: x-mxfp4.gguf");
  EXPECT_NE(Chosen({"x-Q8_0.gguf", "x-F16.gguf"}).find("refused: o/n: no Q4_K_M there; write o/n:TYPE or :FILE, of x-F16.gguf"),
            std::string::npos);
  const std::vector<std::string> parts = {"Q4_K_M/x-Q4_K_M-00001-of-00002.gguf", "Q4_K_M/x-Q4_K_M-00002-of-00002.gguf",
                                          "x-Q8_0.gguf"};
  const std::string both = parts[0] + ": " + parts[0] + " " + parts[1];
  EXPECT_EQ(Chosen(parts), both);
  EXPECT_EQ(Chosen(parts, "Q4_K_M"), both);
  EXPECT_EQ(Chosen(parts, parts[1]), both);
  EXPECT_NE(Chosen({parts[0]}, "Q4_K_M").find("one of 2 parts, and there are 1"), std::string::npos);
  EXPECT_EQ(Chosen({"x-Q4_K_M.gguf", "x-UD-Q4_K_M.gguf"}), "x-Q4_K_M.gguf: x-Q4_K_M.gguf");
  EXPECT_NE(Chosen({"x-Q4_K_M.gguf", "y-Q4_K_M.gguf"}).find("several files are of this type"), std::string::npos);
  EXPECT_NE(Chosen({"config.json", "model.safetensors"}, "Q4_K_M").find("there is no GGUF file"), std::string::npos);
}

// Files that another program fetched: what else the repository has is not known.
TEST(HubChoice, OfTheCacheAlone) {
  const auto cached = [](const std::vector<std::string>& paths, const std::string& choice = "") {
    return Chosen(paths, choice, Want::kWeights, true);
  };
  EXPECT_EQ(cached({"config.json", "model.safetensors", "tokenizer.json", "x-Q4_K_M.gguf"}),
            ": config.json tokenizer.json model.safetensors");
  EXPECT_EQ(cached({"config.json", "model.safetensors"}), "refused: o/n: its tokenizer is not in the cache");
  EXPECT_EQ(cached({"config.json", "tokenizer.json", "model-00001-of-00002.safetensors"}),
            "refused: o/n: not all of its weights are in the cache");
  EXPECT_EQ(cached({"config.json", "tokenizer.json", "x-Q4_K_M.gguf"}),
            "refused: o/n: its weights are not in the cache; there is x-Q4_K_M.gguf (1.00 MiB), as o/n:TYPE or :FILE");
  EXPECT_EQ(cached({"x-Q8_0.gguf"}, "Q8_0"), "x-Q8_0.gguf: x-Q8_0.gguf");
  EXPECT_NE(cached({"x-Q8_0-00001-of-00002.gguf"}, "Q8_0").find("one of 2 parts"), std::string::npos);
}

TEST(HubChoice, PartsAndPathsLikeThem) {
  // The name of one file is what the parts of another have in common.
  EXPECT_EQ(Chosen({"x-Q4_K_M-00001-of-00002.gguf", "x-Q4_K_M-00002-of-00002.gguf", "x-Q4_K_M/2.gguf"}, "x-Q4_K_M/2.gguf"),
            "x-Q4_K_M/2.gguf: x-Q4_K_M/2.gguf");
  EXPECT_NE(Chosen({"x-Q4_K_M-00001-of-00002.gguf", "x-Q4_K_M/2.gguf"}).find("several files are of this type"),
            std::string::npos);
  std::vector<std::string> many;
  for (int i = 1; i <= 30'000; ++i) {
    const std::string number = std::to_string(100'000 + i).substr(1);
    many.push_back("x-" + number + "-of-30000.gguf");
    many.push_back("y-" + std::to_string(i) + ".gguf");
  }
  EXPECT_NE(Chosen(many, "Q8_0").find("and 29989 more"), std::string::npos);
}

}  // namespace
}  // namespace tally::hub
