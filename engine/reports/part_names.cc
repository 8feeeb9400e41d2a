// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/part_names.h"

#include "engine/base/format.h"
#include "engine/recipe/recipe.h"

namespace tally {

std::vector<std::string> PartNames(const Recipe& recipe) {
  std::vector<std::string> names;
  for (int part = 0; part < books::kParts; ++part) names.emplace_back(PartName(static_cast<books::Part>(part)));
  if (recipe.tied_head) names[static_cast<size_t>(books::Part::kEmbedding)] = "embedding and head";
  return names;
}

std::string ShortPartName(std::string_view name) {
  if (name == PartName(books::Part::kAttention)) return "QK^T and PV";
  const size_t at = name.find(" projections");
  return std::string(name.substr(0, at)) + (at == name.npos ? "" : " proj.");
}

std::string NotRunText(const books::NotRun& n) {
  if (n.tensors == 0) return "";
  return "present, not run: " + books::WithThousands(n.parameters) + " parameters, " + books::WithThousands(n.bytes) +
         " bytes (" + Printable(n.names) + ")\n";
}

std::string LookedUpText(const LookedUpTables& tables) {
  return std::string(tables.ngrams ? "n-gram" : "layers'") + " embeddings, " + books::WithThousands(tables.read) +
         " read for a token";
}

}  // namespace tally
