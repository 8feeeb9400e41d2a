// SPDX-License-Identifier: Apache-2.0
// The table of roles against the closed forms, which were written apart from it: of every published model the same tensors, by name,
// component, kind and shape.
#include "engine/recipe/roles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "counters/books/closed_form.h"
#include "engine/recipe/model_spec.h"
#include "engine/recipe/shard.h"
#include "models/catalog/catalog.h"

namespace tally {
namespace {

using Facts = std::tuple<Component, WeightInfo::Kind, uint64_t, uint64_t, uint64_t>;  // ..., slices, rows, cols

std::map<std::string, Facts> OfTable(const Recipe& r) {
  std::map<std::string, Facts> tensors;
  for (int32_t layer = -1; layer < r.n_layers; ++layer) {
    for (int i = 0; i < kRoles; ++i) {
      const Role role = static_cast<Role>(i);
      if (role == Role::kRopeFactors || !HasRole(r, role, layer)) continue;
      const WeightInfo w = WeightInfoOf({.role = role, .layer = layer, .names = {}, .shape = RoleShape(r, role, layer)}, r);
      EXPECT_TRUE(tensors.emplace(w.name, Facts(w.component, w.kind, w.slices, w.rows, w.cols)).second) << w.name;
    }
  }
  return tensors;
}

void ExpectSameTensors(const Recipe& r) {
  std::map<std::string, Facts> forms;
  for (const books::ParameterForm& p : books::ParameterForms(r)) {
    if (!p.apart()) forms.emplace(p.full_name(), Facts(p.component, p.kind, p.slices, p.rows, p.cols));
  }
  const std::map<std::string, Facts> table = OfTable(r);
  for (const auto& [name, facts] : forms) {
    const auto found = table.find(name);
    if (found == table.end()) {
      ADD_FAILURE() << name << " is not in the table";
    } else {
      EXPECT_TRUE(found->second == facts) << name;
    }
  }
  EXPECT_EQ(table.size(), forms.size());
}

TEST(Roles, AreTheClosedFormsTensorsOfEveryPublishedModel) {
  for (const std::string_view name : CatalogNames()) {
    SCOPED_TRACE(name);
    ExpectSameTensors(FindCatalogModel(name)->recipe);
  }
}

// Of each weight, every row of every slice is in one process that is not a copy; of one layer of each kind.
void ExpectEveryRowHasOneProcess(const Recipe& r) {
  std::vector<LayerRecipe> seen;
  for (int32_t layer = -1; layer < r.n_layers; ++layer) {
    if (layer >= 0) {
      if (std::ranges::find(seen, r.layer(layer)) != seen.end()) continue;
      seen.push_back(r.layer(layer));
    }
    for (int i = 0; i < kRoles; ++i) {
      const Role role = static_cast<Role>(i);
      if (!HasRole(r, role, layer)) continue;
      uint64_t elements = 1;
      const std::vector<uint64_t> shape = RoleShape(r, role, layer);
      for (const uint64_t n : shape) elements *= n;
      const uint64_t row = FactsOf(role).vector ? 1 : shape.back();
      for (const Shard& all : {Shard{}, Shard{0, 2}, Shard{0, 3}, Shard{0, 7}, Shard{0, 3, true, true}}) {
        uint64_t held = 0;
        for (int32_t rank = 0; rank < all.ranks; ++rank) {
          const Held h = HeldOf(r, all.Of(rank), role, layer);
          held += static_cast<uint64_t>(h.slices.size() * (h.size() - h.copied())) * row;
        }
        EXPECT_EQ(held, elements) << WeightName(role, layer) << " of " << all.ranks << (all.own_experts ? ", by experts" : "");
      }
    }
  }
}

TEST(Roles, EveryRowHasOneProcess) {
  for (const std::string_view name : CatalogNames()) {
    SCOPED_TRACE(name);
    Recipe r = FindCatalogModel(name)->recipe;
    if (r.counted_only) continue;
    ExpectEveryRowHasOneProcess(r);
    // Norms of queries and keys of every kind, some of which no published model has.
    if (AttentionOf(r).n_heads == 0 || AnyLayer(r, [](const LayerRecipe& l) { return l.mixers.has(Mixer::kLatentAttention); }))
      continue;
    for (const QkNormKind kind : {QkNormKind::kNone, QkNormKind::kHead, QkNormKind::kWhole, QkNormKind::kEachHead}) {
      ChangeLayers(r, [&](LayerRecipe& l) { l.attention.qk_norm = kind; });
      ExpectEveryRowHasOneProcess(r);
    }
  }
}

// What no published model has: LayerNorm or biases beside everything else.
TEST(Roles, AreTheClosedFormsTensorsWithEveryOption) {
  for (const char* name : {"gpt2", "Gemma-3-1B", "Qwen1.5-MoE-A2.7B", "gpt-oss-20b", "mini-gpt"}) {
    SCOPED_TRACE(name);
    Recipe r = FindCatalogModel(name)->recipe;
    r.norm = NormKind::kLayer;
    ChangeLayers(r, [](LayerRecipe& l) {
      l.attention.q_bias = l.attention.k_bias = l.attention.v_bias = l.attention.o_bias = l.attention.sinks = true;
      l.ffn.bias = l.experts.bias = l.experts.router_bias = l.residual.post_norms = true;
    });
    r.head_bias = !r.tied_head;
    ExpectSameTensors(r);
    ChangeLayers(r, [](LayerRecipe& l) { l.network.gated = !l.network.gated; });
    ExpectSameTensors(r);
  }
}

TEST(Roles, NamesAreUnique) {
  std::set<std::string_view> names;
  for (int i = 0; i < kRoles; ++i) EXPECT_TRUE(names.insert(FactsOf(static_cast<Role>(i)).name).second) << i;
  EXPECT_EQ(GgufName(Role::kExpertGate, 3), "blk.3.ffn_gate_exps.weight");
  EXPECT_EQ(GgufName(Role::kHeadBias, -1), "output.bias");
}

}  // namespace
}  // namespace tally
