// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/count_figures.h"

#include <map>
#include <utility>

namespace tally {
namespace {

using books::Count;

// Bytes of states that a step reads and writes.
double StateTraffic(const Count& c) { return 2 * static_cast<double>(c.options.batch) * static_cast<double>(c.state_bytes); }

books::Figure<double> PerToken(const books::Figure<uint64_t>& all, double tokens) {
  return all.Map([&](uint64_t n) { return static_cast<double>(n) / tokens; });
}

}  // namespace

std::vector<uint64_t> CountParts(const books::Count& count, books::Form books::ParameterForm::*which) {
  std::vector<uint64_t> parts(books::kParts);
  for (const books::ParameterForm& p : count.tensors) {
    if (!p.apart()) parts[static_cast<size_t>(books::PartOf(p.component, p.expert))] += (p.*which).value();
  }
  return parts;
}

std::vector<TensorGroup> TensorGroups(const books::Count& c, bool layers) {
  std::vector<TensorGroup> groups;
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (const books::ParameterForm& p : c.tensors) {
    std::string name = layers || p.layer < 0 ? p.full_name() : "blk.*." + p.name;
    if (p.apart()) name = "mtp: " + name;
    const auto [at, fresh] = known.emplace(std::pair{name, p.count.text()}, groups.size());
    if (fresh) groups.push_back({std::move(name), &p, 0});
    ++groups[at->second].n;
  }
  return groups;
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

TokenCost PrefillCost(const Count& c) {
  const double tokens = static_cast<double>(c.options.batch) * static_cast<double>(c.options.prompt);
  TokenCost cost;
  for (size_t v = 0; v < cost.flops.size(); ++v) cost.flops[v] = PerToken(c.prefill.total[v], tokens);
  cost.bytes = (c.prefill_traffic.uniform + StateTraffic(c)) / tokens + static_cast<double>(c.kv_bytes_per_token);
  return cost;
}
TokenCost DecodeCost(const Count& c) {
  const double tokens = static_cast<double>(c.options.batch);
  TokenCost cost;
  for (size_t v = 0; v < cost.flops.size(); ++v) cost.flops[v] = PerToken(c.decode.total[v], tokens);
  cost.bytes = c.kv_bytes_read.Map([&](uint64_t read) {
    return (c.decode_traffic.uniform + StateTraffic(c) + static_cast<double>(read)) / tokens +
           static_cast<double>(c.kv_bytes_per_token);
  });
  return cost;
}

}  // namespace tally
