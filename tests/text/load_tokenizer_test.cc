// SPDX-License-Identifier: Apache-2.0
// LoadTokenizer (engine/studies/inspect.h): a directory that has a tokenizer.json needs nothing else.
#include "engine/studies/inspect.h"
#include "tests/text/json_spec.h"

namespace tally {
namespace {

using test::Encode;
using test::Folder;
using test::Ids;
using test::Spec;

TEST(LoadTokenizer, ATokenizerJsonIsEnough) {
  const Folder folder;
  const std::string json = folder.Write("tokenizer.json", Spec().Text());
  for (const std::string& path : {folder.path(), json}) {
    const auto made = LoadTokenizer(path);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(Encode(**made, "ab"), (Ids{3}));
  }
  // Beside a config.json without weights, or with weights that cannot be read.
  const std::string config = folder.Write("config.json", R"({"architectures":["LlamaForCausalLM"]})");
  for (const char* weights : {"", "not safetensors"}) {
    if (*weights != '\0') folder.Write("model.safetensors", weights);
    for (const std::string& path : {folder.path(), folder.path() + "/", config}) {
      const auto made = LoadTokenizer(path);
      ASSERT_TRUE(made.ok()) << path << ": " << made.status().message();
      EXPECT_EQ(Encode(**made, "ab"), (Ids{3}));
    }
  }
}

TEST(LoadTokenizer, WithoutOneTheCheckpointIsAsked) {
  const Folder folder;
  const std::string config = folder.Write("config.json", R"({"architectures":["LlamaForCausalLM"]})");
  for (const std::string& path : {folder.path(), config}) {
    const auto none = LoadTokenizer(path);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.status().code(), StatusCode::kBadInput);
    EXPECT_NE(none.status().message().find("no tokenizer.json"), std::string::npos) << none.status().message();
  }
  // Tokenizers of other kinds are named, by themselves and in a directory.
  for (const auto& [file, kind] : {std::pair{"tekken.json", "Mistral's tekken"},
                                   {"vocab.txt", "a WordPiece"},
                                   {"merges.txt", "a BPE as GPT-2"},
                                   {"tokenizer.model", "SentencePiece's"},
                                   {"qwen.tiktoken", "ranks of tiktoken"}}) {
    const std::string path = folder.Write(file, "\n");
    for (const std::string& asked : {path, folder.path(), config}) {
      const std::string message = LoadTokenizer(asked).status().message();
      EXPECT_NE(message.find(kind), std::string::npos) << message;
      EXPECT_NE(message.find("; what is read is tokenizer.json"), std::string::npos) << message;
    }
    std::filesystem::remove(path);
  }
  folder.Write("tokenizer.model", "IQ== 0\n");  // Llama 3's is of tiktoken
  folder.Write("vocab.json", "{}");
  const std::string both = LoadTokenizer(folder.path()).status().message();
  EXPECT_NE(both.find(folder.path() + ": has no tokenizer.json, but tokenizer.model (ranks of tiktoken"), std::string::npos)
      << both;
  EXPECT_NE(both.find("), vocab.json (the lists of a BPE"), std::string::npos) << both;
  const std::string missing = LoadTokenizer(folder.path() + "/missing.model").status().message();
  EXPECT_NE(missing.find("missing.model"), std::string::npos) << missing;
  EXPECT_EQ(missing.find("SentencePiece"), std::string::npos) << missing;
  std::filesystem::create_symlink("nowhere", folder.path() + "/tokenizer.json");
  const auto broken = LoadTokenizer(folder.path());
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.status().message().find("tokenizer.json: cannot be opened"), std::string::npos) << broken.status().message();
}

}  // namespace
}  // namespace tally
