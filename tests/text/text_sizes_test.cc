// Large and awkward texts. Nothing is timed here; what is quadratic would not come back within the test's
// time limit.
#include "loaders/loaders.h"
#include "tests/text/text_test_util.h"

namespace tally {
namespace {

using test::Encode;

std::string Repeat(std::string_view part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

TEST(TextSizes, LargeTextsRoundTrip) {
  std::vector<std::string> texts = {test::ReadAll(test::Shared("text/war-and-peace.txt"))};
  for (const char* part : {"a", " ", "\n", "1", "!", "<", "\xE4\xB8\xAD", " \n", "\xCC\x81\xCC\xA3", "ab", "'s", "<s"}) {
    texts.push_back(Repeat(part, 1 << 20));
    texts.push_back(texts.back() + "x");
  }
  int found = 0;
  for (const char* name : {"gpt-2", "llama-spm", "deepseek-coder", "mpt"}) {
    const std::string path = test::Shared("tokenizers/llama.cpp-vocabs/ggml-vocab-") + name + ".gguf";
    if (!std::filesystem::exists(path)) continue;
    Result<Inventory> inventory = ReadGguf(path);
    ASSERT_TRUE(inventory.ok()) << inventory.status().message();
    std::vector<std::string> pres = {name};
    if (std::string(name) == "gpt-2")
      pres = {"gpt-2", "llama-bpe", "gpt-4o", "deepseek-llm", "deepseek-v3", "starcoder", "default", "falcon"};
    for (const std::string& pre : pres) {
      ++found;
      SCOPED_TRACE(std::string(name) + " " + pre);
      if (std::string(name) != "llama-spm") inventory->metadata.Set("tokenizer.ggml.pre", pre);
      Result<std::unique_ptr<Tokenizer>> tokenizer = TokenizerFor(*inventory);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
      for (const std::string& text : texts) {
        ASSERT_TRUE((*tokenizer)->Decode(Encode(**tokenizer, text)) == text) << text.substr(0, 10);
      }
    }
  }
  if (found == 0) GTEST_SKIP() << test::Shared("tokenizers") << " is absent";
}

}  // namespace
}  // namespace tally
