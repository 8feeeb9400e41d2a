// SPDX-License-Identifier: Apache-2.0
// npm's ajv against the machine: what is drawn from the machine of a random schema is valid, and a document is accepted if and only if it
// is. TALLY_SCHEMAS=COUNT tries more schemas, TALLY_SEED=N others.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/tally.h"
#include "engine/base/mix.h"
#include "tests/schemas/random_schemas.h"
#include "tests/support/npm.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

using Json = nlohmann::ordered_json;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

// All bytes, and texts of several that cross the parts of a document. The last ends an answer.
std::shared_ptr<const Vocabulary> SmallVocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* more : {"{\"",  "\":",   "\":\"", "\",\"", "\"}",  "\"]", "},{",     "]}",       "}}",         "null",
                           "true", "false", "\\u00", "a\"",   "ab",   "n_",  "_s",      "\xc3\xa9", "[1",         "-0.",
                           "00",   "12",    "2024-", ":00Z",  ".com", "\",", ",\"a\":", "{\"a\":1", "\"t\":\"x\""})
    tokens.emplace_back(more);
  tokens.emplace_back();
  return std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{static_cast<int32_t>(tokens.size()) - 1});
}

// Numbers beyond what a validator that computes with doubles knows.
bool HasLargeNumbers(std::string_view text) {
  size_t digits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    digits = is_digit ? digits + 1 : text[i] == '.' ? digits : 0;
    if (digits > 14) return true;
    if ((text[i] == 'e' || text[i] == 'E') && i > 0 && std::isdigit(static_cast<unsigned char>(text[i - 1])) != 0) {
      size_t end = i + 1;
      while (end < text.size() &&
             (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '+' || text[end] == '-'))
        ++end;
      if (end - i > 3) return true;
    }
  }
  return false;
}

// What the two may know otherwise: such numbers, and characters that are in one version of Unicode alone.
bool IsBeyond(std::string_view text) {
  static const std::shared_ptr<Grammar> assigned = *Grammar::FromRegex("\\P{Cn}*");
  return HasLargeNumbers(text) || !assigned->Accepts(text);
}

// A document that the grammar has, drawn token by token; empty: none was found in 300 bytes.
std::string Drawn(const std::shared_ptr<Grammar>& grammar, const std::shared_ptr<const Vocabulary>& vocabulary,
                  RandomSchemas& random) {
  GrammarCursor cursor(grammar, vocabulary);
  const int32_t end = vocabulary->ends()[0];
  const bool by_bytes = random.Below(2) == 0;
  std::string text;
  while (text.size() < 300) {
    const TokenMask mask = cursor.Mask();
    std::vector<int32_t> may, ending;
    for (int32_t token = 0; token < (by_bytes ? 256 : end); ++token) {
      if (((*mask)[static_cast<size_t>(token) / 64] >> (token % 64) & 1) == 0) continue;
      may.push_back(token);
      if (std::string_view("\"}],:abt01.").find(vocabulary->bytes(token).front()) != std::string_view::npos)
        ending.push_back(token);
    }
    const bool may_end = ((*mask)[static_cast<size_t>(end) / 64] >> (end % 64) & 1) != 0;
    EXPECT_EQ(may_end, cursor.MayEnd()) << text;
    EXPECT_TRUE(may_end || !may.empty()) << "nothing follows " << text;
    if (may_end && (may.empty() || random.Below(3) == 0)) return text;
    if (may.empty()) return "";
    const int32_t token = random.Any(ending.empty() || random.Below(12) == 0 ? may : ending);
    text += vocabulary->bytes(token);
    EXPECT_TRUE(cursor.Take(token)) << text;
  }
  return "";
}

// A line of what oracle.mjs judges.
struct Trial {
  Json schema, answers = Json::array(), documents = Json::array();  // [document, whether it is accepted]
};

void Add(Trial& trial, const Result<std::shared_ptr<Grammar>>& grammar, const Json& document) {
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (IsBeyond(text)) return;
  const Result<bool> accepts = grammar.ok() ? (*grammar)->AcceptsDocument(text) : Result<bool>(false);
  ASSERT_TRUE(accepts.ok()) << accepts.status().message();
  trial.documents.push_back({text, *accepts});
}

// What ajv says of the trials: fails where it says something else.
void Judge(const std::vector<Trial>& trials, const std::string& folder) {
  const TempFolder said;
  std::ofstream file(said / "trials", std::ios::binary);
  for (const Trial& trial : trials)
    file << Json{{"schema", trial.schema}, {"answers", trial.answers}, {"documents", trial.documents}}.dump() << "\n";
  file.close();
  const int ended =
      Shell("cd '" + folder + "' && timeout 300 node oracle.mjs '" + said / "trials" + "' >'" + said / "said" + "' 2>&1");
  const std::string report = ReadAll(said / "said");
  EXPECT_EQ(ended, 0) << report;
  std::printf("%s", report.c_str());
}

TEST(SchemaOracle, RandomSchemas) {
  const std::string folder = TALLY_SCHEMAS_DIR;
  const std::string missing = InstallNpm(TALLY_SOURCE_DIR "/tests/schemas", folder, {"oracle.mjs"});
  if (!missing.empty()) GTEST_SKIP() << missing;
  const auto vocabulary = SmallVocabulary();
  const uint64_t wanted = FromEnvironment("TALLY_SCHEMAS", 2000), seed = FromEnvironment("TALLY_SEED", 1);
  std::vector<Trial> trials;
  uint64_t tried = 0, drawn = 0, accepted = 0, refused = 0;
  while (trials.size() < wanted && tried < 3 * wanted) {
    RandomSchemas random(SplitMix64(seed * 1'000'000 + tried++));
    Trial trial{.schema = random.Document()};
    const SchemaOptions spaced{.space = tried % 2 == 0 ? JsonSpace::kOne : JsonSpace::kNone};
    const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromSchema(trial.schema.dump(), spaced);
    if (!grammar.ok() && grammar.status().message() != "no answer is in it") continue;
    for (int i = 0; i < 4; ++i) Add(trial, grammar, random.Value(2));
    for (int i = 0; i < 4 && grammar.ok(); ++i) {
      const std::string answer = Drawn(*grammar, vocabulary, random);
      if (answer.empty() || IsBeyond(answer)) continue;
      trial.answers.push_back(answer);
      const Json document = Json::parse(answer, nullptr, false);
      ASSERT_FALSE(document.is_discarded()) << trial.schema.dump() << "\n" << answer;
      Json changed = document;
      for (int n = 0; n < 3; ++n) {
        changed = random.Changed(n == 2 ? changed : document);
        Add(trial, grammar, changed);
      }
    }
    drawn += trial.answers.size();
    for (const Json& document : trial.documents) (document[1].get<bool>() ? accepted : refused) += 1;
    trials.push_back(std::move(trial));
  }
  std::printf("%zu schemas of %llu, %llu answers, documents: %llu accepted, %llu refused\n", trials.size(),
              static_cast<unsigned long long>(tried), static_cast<unsigned long long>(drawn),
              static_cast<unsigned long long>(accepted), static_cast<unsigned long long>(refused));
  EXPECT_EQ(trials.size(), wanted);
  for (const SchemaKeyword& keyword : SchemaKeywords()) {
    const std::string name = "\"" + std::string(keyword.name) + "\":";
    const auto has = [&](const Trial& trial) { return trial.schema.dump().find(name) != std::string::npos; };
    EXPECT_GE(std::ranges::count_if(trials, has), keyword.held == "refused" ? 0 : static_cast<std::ptrdiff_t>(wanted / 100))
        << name;
  }
  EXPECT_GT(drawn, wanted * 5 / 2);
  EXPECT_GT(accepted, wanted * 3);
  EXPECT_GT(refused, wanted * 3);
  Judge(trials, folder);
}

TEST(SchemaOracle, AnswersOfTheDemoAtTemperatureTwo) {
  const std::string folder = TALLY_SCHEMAS_DIR;
  const std::string missing = InstallNpm(TALLY_SOURCE_DIR "/tests/schemas", folder, {"oracle.mjs"});
  if (!missing.empty()) GTEST_SKIP() << missing;
  EngineOptions options;
  options.context = 200;
  const Opened opened = Open(TALLY_SOURCE_DIR "/models/demo/demo.gguf", options);
  const std::vector<int32_t> prompt = *opened.engine->model().tokenizer()->Encode("ROMEO:\nWhat say you? ");
  std::vector<Trial> trials;
  int answers = 0;
  for (uint64_t n = 0; n < 500; ++n) {
    RandomSchemas random(SplitMix64(n));
    Trial trial{.schema = random.Document()};
    const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromSchema(trial.schema.dump());
    if (!grammar.ok()) continue;
    GenerateOptions generate;
    generate.max_tokens = 150;
    generate.sampling = {.temperature = 2, .seed = n};
    generate.grammar = *grammar;
    const Result<GenerateResult> answer = Generate(*opened.engine, prompt, generate);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    if (answer->finish != FinishReason::kEos || IsBeyond(answer->text)) continue;
    trial.answers.push_back(answer->text);
    trials.push_back(std::move(trial));
    ++answers;
  }
  EXPECT_GT(answers, 150);
  Judge(trials, folder);
}

}  // namespace
}  // namespace tally
