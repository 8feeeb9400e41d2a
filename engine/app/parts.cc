// SPDX-License-Identifier: Apache-2.0
#include "engine/app/parts.h"

#include <map>
#include <utility>

#include "engine/base/format.h"

namespace tally::app {

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

std::vector<uint64_t> CountParts(const books::Count& count, books::Form books::ParameterForm::*which) {
  std::vector<uint64_t> parts(books::kParts);
  for (const books::ParameterForm& p : count.tensors) {
    if (!p.prediction) parts[static_cast<size_t>(books::PartOf(p.component, p.expert))] += (p.*which).value();
  }
  return parts;
}

std::vector<TensorGroup> TensorGroups(const books::Count& c, bool layers) {
  std::vector<TensorGroup> groups;
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (const books::ParameterForm& p : c.tensors) {
    std::string name = layers || p.layer < 0 ? p.full_name() : "blk.*." + p.name;
    if (p.prediction) name = "mtp: " + name;
    const auto [at, fresh] = known.emplace(std::pair{name, p.count.text()}, groups.size());
    if (fresh) groups.push_back({std::move(name), &p, 0});
    ++groups[at->second].n;
  }
  return groups;
}

std::string NotRunText(const books::NotRun& n) {
  if (n.tensors == 0) return "";
  return "present, not run: " + books::WithThousands(n.parameters) + " parameters, " + books::WithThousands(n.bytes) +
         " bytes (" + Printable(n.names) + ")\n";
}

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
