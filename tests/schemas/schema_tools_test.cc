// SPDX-License-Identifier: Apache-2.0
// Schemas of tools as people's libraries make them: all are held, and what arguments are taken. Those of pydantic are in pydantic.json
// (pydantic_tools.py), those of zod and openai's helpers are made by tools.mjs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/grammar/grammar.h"
#include "tests/support/npm.h"

namespace tally {
namespace {

using Json = nlohmann::ordered_json;

void RunTools(const Json& tools) {
  double slowest = 0;
  std::string which;
  for (const Json& tool : tools) {
    const std::string name = tool["name"], schema = tool["schema"].dump();
    const auto begin = std::chrono::steady_clock::now();
    const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromSchema(schema);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_TRUE(grammar.ok()) << name << ": " << grammar.status().message() << "\n" << schema;
    if (!grammar.ok()) continue;
    if (ms > slowest) slowest = ms, which = name;
    for (const char* kind : {"good", "bad"}) {
      for (const Json& value : tool[kind]) {
        const Result<bool> accepts = (*grammar)->AcceptsDocument(value.dump());
        EXPECT_TRUE(accepts.ok() && *accepts == (kind == std::string("good"))) << name << "\n"
                                                                               << schema << "\n"
                                                                               << kind << ": " << value;
      }
    }
  }
  std::printf("%zu tools; the slowest to compile: %s, %.1f ms\n", tools.size(), which.c_str(), slowest);
}

TEST(SchemaTools, OfPydantic) {
  const Json tools = Json::parse(ReadAll(TALLY_SOURCE_DIR "/tests/schemas/pydantic.json"));
  EXPECT_EQ(tools.size(), 20u);
  RunTools(tools);
}

TEST(SchemaTools, OfZodAndOpenai) {
  const std::string folder = TALLY_SCHEMAS_DIR;
  const std::string missing = InstallNpm(TALLY_SOURCE_DIR "/tests/schemas", folder, {"tools.mjs"});
  if (!missing.empty()) GTEST_SKIP() << missing;
  const TempFolder made;
  ASSERT_EQ(Shell("cd '" + folder + "' && timeout 60 node tools.mjs '" + made / "tools" + "' 2>'" + made / "said" + "'"), 0)
      << ReadAll(made / "said");
  const Json tools = Json::parse(ReadAll(made / "tools"));
  EXPECT_GE(tools.size(), 29u);
  RunTools(tools);
}

}  // namespace
}  // namespace tally
