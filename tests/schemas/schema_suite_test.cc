// SPDX-License-Identifier: Apache-2.0
// Every test of a JSON-Schema-Test-Suite whose schema is held. Of npm's json-schema-test-suite 0.0.10, which has draft 4; of another copy,
// with drafts 6, 7 and 2020-12: TALLY_SCHEMA_SUITE=FOLDER/tests build/release/tests/schemas/schemas_tests --file=schema_suite_test.cc
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"
#include "tests/support/npm.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Counts {
  int valid = 0, invalid = 0, refused = 0;
};

// What the suite has otherwise than Tally means to: a part of a test's name (DRAFT/FILE: GROUP: TEST), and why.
constexpr std::pair<const char*, const char*> kOtherwise[] = {
    {"draft6/format:", "formats as annotations; here they hold"},
    {"draft7/format:", "the same"},
    {"draft2020-12/format:", "the same"},
    {"/content:", "contentEncoding and contentMediaType are annotations (2019-09, Validation, section 8)"},
    {"/hostname: validation of A-label", "labels that begin with xn-- are not decoded (docs/structured.md)"},
    {"leap second, with minus offset", "a second of 60 is one at 23:59:60Z alone (docs/structured.md)"},
    {"/time: validation of time strings: valid leap second, ", "the same; with Z it is tried by regex_test"},
    {"/vocabulary: schema that uses custom metaschema with with no validation", "a $schema that is not known is read as 2020-12"},
    {"draft4/zeroTerminatedFloats:", "1.0 is an integer since draft 6 (Validation, section 6.25)"},
    {"draft4/format: validation of URIs: a valid protocol-relative URI", "a URI has a scheme (RFC 3986, section 3)"},
};

bool IsOtherwise(const std::string& name) {
  return std::ranges::any_of(kOtherwise, [&](const auto& part) { return name.find(part.first) != std::string::npos; });
}

// Of a format that is an annotation here.
bool IsAnnotated(const fs::path& file) {
  const auto formats = SchemaFormats();
  return file.parent_path().filename() == "format" && std::ranges::find(formats, file.stem().string()) == formats.end();
}

void RunFile(const std::string& draft, const fs::path& file, Counts& counts) {
  const Json groups = Json::parse(ReadAll(file.string()));
  for (const Json& group : groups) {
    const std::string place = draft + "/" + file.stem().string() + ": " + group["description"].get<std::string>();
    Json schema = group["schema"];
    if (schema.is_object() && draft != "draft2020-12") schema["$schema"] = "http://json-schema.org/draft-07/schema#";
    const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromSchema(schema.dump());
    const bool empty = !grammar.ok() && grammar.status().message() == "no answer is in it";
    if (!grammar.ok() && !empty) {
      counts.refused += static_cast<int>(group["tests"].size());
      continue;
    }
    for (const Json& test : group["tests"]) {
      const std::string name = place + ": " + test["description"].get<std::string>();
      if (IsOtherwise(name)) continue;
      const bool valid = test["valid"].get<bool>();
      (valid ? counts.valid : counts.invalid) += 1;
      const Result<bool> accepts = empty ? Result<bool>(false) : (*grammar)->AcceptsDocument(test["data"].dump());
      EXPECT_TRUE(accepts.ok() && *accepts == valid)
          << name << "\n"
          << schema.dump() << "\n"
          << test["data"].dump() << ": " << (valid ? "valid" : "invalid") << " " << accepts.status().message();
    }
  }
}

TEST(SchemaSuite, EveryTestThatIsHeld) {
  std::string folder = TALLY_SCHEMAS_DIR "/node_modules/json-schema-test-suite/tests";
  if (const char* given = std::getenv("TALLY_SCHEMA_SUITE"); given != nullptr) {
    folder = given;
  } else if (const std::string missing = InstallNpm(TALLY_SOURCE_DIR "/tests/schemas", TALLY_SCHEMAS_DIR, {}); !missing.empty()) {
    GTEST_SKIP() << missing;
  }
  // The least that is held of each, so that nothing is lost unseen.
  const std::pair<const char*, int> drafts[] = {{"draft4", 260}, {"draft6", 1030}, {"draft7", 1180}, {"draft2020-12", 1380}};
  for (const auto& [draft, least] : drafts) {
    if (!fs::exists(fs::path(folder) / draft)) continue;
    Counts counts;
    for (const auto& file : fs::recursive_directory_iterator(fs::path(folder) / draft)) {
      if (file.path().extension() == ".json" && !IsAnnotated(file.path())) RunFile(draft, file.path(), counts);
    }
    std::printf("%s: %d valid, %d invalid, %d refused\n", draft, counts.valid, counts.invalid, counts.refused);
    EXPECT_GE(counts.valid + counts.invalid, least) << draft;
  }
}

}  // namespace
}  // namespace tally
