// SPDX-License-Identifier: Apache-2.0
// The README's tables of families and weight types are those of the registry and of formats.inc.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "engine/base/dtype.h"
#include "models/family.h"

namespace tally {
namespace {

std::string Readme() {
  std::ifstream file(TALLY_SOURCE_DIR "/README.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Joined(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

TEST(Readme, FamiliesAreTheRegistrys) {
  std::string table = "| family | Hugging Face | GGUF |\n|---|---|---|\n";
  for (const Family* f : Families()) {
    const auto hf = f->hf_architectures.empty() ? f->hf_model_types : f->hf_architectures;
    table += "| " + std::string(f->name) + " | " + Joined(hf) + " | " + Joined(f->gguf_architectures) + " |\n";
  }
  EXPECT_NE(Readme().find("\n" + table + "\n"), std::string::npos) << "README.md should have\n" << table;
}

TEST(Readme, WeightTypesAreTheFormats) {
  std::string row = "| weights |";
  for (const DType t : kWeightTypes) row += (row.ends_with("|") ? " " : ", ") + std::string(DTypeName(t));
  EXPECT_NE(Readme().find("\n" + row + " |\n"), std::string::npos) << "README.md should have\n" << row << " |";
}

}  // namespace
}  // namespace tally
