// SPDX-License-Identifier: Apache-2.0
#include "engine/app/parts.h"

#include "engine/base/format.h"

namespace tally::app {

std::span<const std::string_view> ParameterParts() { return books::ParameterParts(); }

std::vector<std::string> ParameterPartNames(const Recipe& recipe) {
  std::vector<std::string> names(ParameterParts().begin(), ParameterParts().end());
  if (recipe.tied_head) names[PartOf(Component::kEmbedding, false)] = "embedding and head";
  return names;
}

std::vector<uint64_t> CountParts(const books::Count& count, books::Form books::ParameterForm::*which) {
  std::vector<uint64_t> parts(ParameterParts().size());
  for (const books::ParameterForm& p : count.tensors) {
    if (!p.prediction) parts[PartOf(p.component, p.expert)] += (p.*which).value();
  }
  return parts;
}

std::string NotRunText(const books::NotRun& n) {
  if (n.tensors == 0) return "";
  return "present, not run: " + books::WithThousands(n.parameters) + " parameters, " + books::WithThousands(n.bytes) +
         " bytes (" + Printable(n.names) + ")\n";
}

size_t PartOf(Component component, bool expert) { return books::ParameterPartOf(component, expert); }

LookedUpTables LookedUp(const books::Count& count) {
  LookedUpTables tables;
  for (const books::ParameterForm& p : count.tensors) {
    if (p.kind != WeightInfo::Kind::kTable) continue;
    tables.stored += p.count.value();
    tables.read += p.touched.value();
    tables.ngrams = p.component == Component::kNgramTable;
  }
  return tables;
}

std::string LookedUpText(const LookedUpTables& tables) {
  return std::string(tables.ngrams ? "n-gram" : "layers'") + " embeddings, " + books::WithThousands(tables.read) +
         " read for a token";
}

}  // namespace tally::app
