// SPDX-License-Identifier: Apache-2.0
// The tables of README.md and docs/files.md are those of the registry and of formats.inc; README stays short; links lead somewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "models/family.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TALLY_SOURCE_DIR;

std::string Page(const fs::path& name) {
  std::ifstream file(kRoot / name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Joined(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

std::string FamilyNames(bool run) {
  std::vector<std::string_view> names;
  for (const Family* f : Families()) {
    if (f->not_run.empty() == run) names.push_back(f->name);
  }
  return Joined(names);
}

std::string WeightTypes() {
  std::vector<std::string_view> names;
  for (const DType t : kWeightTypes) names.push_back(DTypeName(t));
  return Joined(names);
}

// The quantised types that files may have and no kernel runs.
std::string CountedTypes() {
  std::vector<std::string_view> names;
  for (const DType t : kDTypes) {
    if (!IsWeightType(t) && GetDTypeInfo(t).quantised) names.push_back(DTypeName(t));
  }
  return Joined(names);
}

void ExpectLines(const char* page, const std::string& lines) {
  EXPECT_NE(Page(page).find("\n" + lines + "\n"), std::string::npos) << page << " should have\n" << lines;
}

TEST(Readme, TheTableOfWhatRuns) {
  ExpectLines("README.md", "| | run and counted | counted only |\n|---|---|---|\n| families | " + FamilyNames(true) + " | " +
                               FamilyNames(false) + " |\n| types | " + WeightTypes() + " | " + CountedTypes() + " |\n");
}

TEST(Readme, FamiliesAreTheRegistrys) {
  std::string table = "| family | Hugging Face | GGUF |\n|---|---|---|\n";
  for (const Family* f : Families()) {
    if (!f->not_run.empty()) continue;
    const auto hf = f->hf_architectures.empty() ? f->hf_model_types : f->hf_architectures;
    table += "| " + std::string(f->name) + " | " + Joined(hf) + " | " + Joined(f->gguf_architectures) + " |\n";
  }
  ExpectLines("docs/files.md", table);
  std::string counted = "| family | Hugging Face | refused in GGUF as | what nothing runs |\n|---|---|---|---|\n";
  for (const Family* f : Families()) {
    if (f->not_run.empty()) continue;
    counted += "| " + std::string(f->name) + " | " + Joined(f->hf_architectures) + " | " + Joined(CountedInGguf(*f)) + " | " +
               std::string(f->not_run) + " |\n";
  }
  ExpectLines("docs/files.md", counted);
  std::string refused = "| Hugging Face | GGUF | why |\n|---|---|---|\n";
  for (const UnsupportedArchitecture& u : UnsupportedArchitectures()) {
    refused += "| " + std::string(u.hf) + " | " + std::string(u.gguf) + " | " + std::string(u.why) + " |\n";
  }
  ExpectLines("docs/files.md", refused);
}

TEST(Readme, WeightTypesAreTheFormats) {
  ExpectLines("docs/files.md", "| weights | " + WeightTypes() + " |\n| counted only | " + CountedTypes() + " |");
}

TEST(Readme, IsShort) {
  const std::string text = Page("README.md");
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 120);
}

// Markdown links to files, from the folder of the page, and paths of pages below docs/ that a text names.
TEST(Readme, LinksLeadSomewhere) {
  static const std::regex link(R"(\]\(([^)#:]+)(#[^)]*)?\))"), named(R"(docs/[a-z_]+(\.[a-z]+)+)");
  std::vector<fs::path> pages = {"README.md", "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(fs::path("docs") / entry.path().filename());
  }
  for (const fs::path& page : pages) {
    const std::string text = Page(page);
    EXPECT_FALSE(text.empty()) << page;
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      EXPECT_TRUE(fs::exists(kRoot / page.parent_path() / it->str(1))) << page << " links " << it->str(1);
    }
    for (std::sregex_iterator it(text.begin(), text.end(), named), end; it != end; ++it) {
      EXPECT_TRUE(fs::exists(kRoot / it->str())) << page << " names " << it->str();
    }
  }
}

}  // namespace
}  // namespace tally
