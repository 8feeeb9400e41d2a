// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/expert_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace tally {
namespace {

constexpr uint64_t kPage = 4096;

// A record's two slices hold its layer and expert in every page.
class Records final : public RecordReader {
 public:
  int pieces(size_t) const override { return 2; }
  uint64_t bytes(size_t layer) const override { return (layer + 2) * kPage; }
  Status Read(size_t layer, int64_t expert, int piece, uint8_t* slot, int) const override {
    ++reads_;
    if (fail_ > 0 && fail_-- > 0) return BadInput("FILE: Input/output error at 17");
    uint8_t* const to = slot + (piece == 0 ? 0 : kPage * (layer + 1));
    const uint64_t value = layer * 1000 + static_cast<uint64_t>(expert);
    for (uint64_t p = 0; p < (piece == 0 ? layer + 1 : 1); ++p) std::memcpy(to + p * kPage, &value, sizeof value);
    return {};
  }
  mutable std::atomic<int> reads_{0}, fail_{0};
};

std::vector<ExpertRecords> Layers(int64_t experts) {
  std::vector<ExpertRecords> layers;
  for (int32_t l = 0; l < 2; ++l) {
    const uint64_t first = static_cast<uint64_t>(l + 1) * kPage;
    const WeightId id = static_cast<WeightId>(2 * l);
    layers.push_back({.layer = 10 + l, .parts = {{id, 0}, {id + 1, first}}, .experts = experts, .bytes = first + kPage});
  }
  return layers;
}

struct Store {
  Store(int64_t experts, int64_t slots) {
    auto reader = std::make_unique<Records>();
    records = reader.get();
    store = ExpertStore::Create(Layers(experts), {slots, slots}, false, std::move(reader)).value();
  }
  Records* records;
  std::unique_ptr<ExpertStore> store;
};

uint64_t Held(const ExpertStore& store, WeightId weight, int32_t expert) {
  const uint8_t* const slice = store.Table(weight)[expert];
  uint64_t value = UINT64_MAX;
  if (slice != nullptr) std::memcpy(&value, slice, sizeof value);
  return value;
}

// Runs a visit to its end, and checks that each expert is there when its turn comes.
std::vector<int32_t> Visit(Store& s, size_t layer, const std::vector<ExpertUse>& uses) {
  ExpertStore::Visit visit = s.store->Begin(layer, uses);
  std::set<int32_t> seen;
  const auto check = [&](int32_t e) {
    EXPECT_TRUE(seen.insert(e).second);
    for (WeightId w : {0u, 1u}) {
      EXPECT_EQ(Held(*s.store, static_cast<WeightId>(2 * layer + w), e), layer * 1000 + static_cast<uint64_t>(e));
    }
  };
  for (const int32_t e : visit.hits()) check(e);
  visit.FreeHits();
  for (size_t i = 0; i < visit.misses().size(); ++i) {
    EXPECT_TRUE(visit.Wait(i).ok());
    check(visit.misses()[i]);
    visit.Free(i);
  }
  EXPECT_EQ(seen.size(), uses.size());
  return {visit.misses().begin(), visit.misses().end()};
}

// Steps of one row, or of many: as if the rows ran one after another, the least recently used is dropped.
TEST(ExpertStore, DropsTheLeastRecentlyUsed) {
  std::mt19937 random(7);
  for (const size_t slots : {3, 5, 8}) {
    Store s(12, static_cast<int64_t>(slots));
    std::array<std::vector<int32_t>, 2> recent;  // by layer, the last one last
    uint64_t misses = 0;
    for (int step = 0; step < 200; ++step) {
      for (size_t layer = 0; layer < 2; ++layer) {
        std::vector<int32_t> some(12);
        std::iota(some.begin(), some.end(), 0);
        std::ranges::shuffle(some, random);
        std::map<int32_t, int32_t> last;
        for (int r = 0; r < (step % 7 == 0 ? 40 : 2); ++r) last[some[random() % slots]] = r;
        std::vector<ExpertUse> uses;
        for (const auto& [expert, row] : last) uses.push_back({expert, row});
        std::vector<int32_t>& list = recent[layer];
        std::set<int32_t> expected;
        for (const ExpertUse& use : uses) {
          if (std::ranges::find(list, use.expert) == list.end()) expected.insert(use.expert);
        }
        const std::vector<int32_t> missed = Visit(s, layer, uses);
        EXPECT_EQ(std::set<int32_t>(missed.begin(), missed.end()), expected);
        misses += missed.size();
        std::ranges::sort(uses, {}, &ExpertUse::last_row);
        for (const ExpertUse& use : uses) {
          std::erase(list, use.expert);
          list.push_back(use.expert);
        }
        if (list.size() > slots) list.erase(list.begin(), list.end() - static_cast<int64_t>(slots));
        for (int32_t e = 0; e < 12; ++e) {
          const bool held = Held(*s.store, static_cast<WeightId>(2 * layer), e) != UINT64_MAX;
          EXPECT_EQ(held, std::ranges::find(list, e) != list.end());
        }
      }
    }
    EXPECT_EQ(static_cast<uint64_t>(s.records->reads_.load()), 2 * misses);
  }
}

// A step that uses more experts than there are slots reads each missing one once, and ends with those that its last rows used, but for two
// at most.
TEST(ExpertStore, PassesMoreExpertsThanSlots) {
  for (const int64_t slots : {1, 2, 5, 11}) {
    Store s(12, slots);
    for (int step = 0; step < 20; ++step) {
      std::vector<ExpertUse> uses;
      for (int32_t e = 0; e < 12; ++e) uses.push_back({e, (e * 5 + step) % 12});
      const size_t missed = Visit(s, 0, uses).size();
      EXPECT_LE(missed, 12u);
      EXPECT_GE(missed, static_cast<size_t>(12 - slots));
      int64_t kept = 0;
      for (const ExpertUse& use : uses) {
        kept += use.last_row >= 12 - slots && Held(*s.store, 0, use.expert) != UINT64_MAX ? 1 : 0;
      }
      EXPECT_GE(kept, slots - 2);
    }
  }
}

TEST(ExpertStore, CountsFirstUses) {
  Store s(6, 2);
  const std::vector<ExpertUse> first = {{1, 0}, {2, 0}}, second = {{2, 0}, {3, 0}};
  EXPECT_EQ(s.store->Begin(0, first).first_uses(), 2u);
  EXPECT_EQ(s.store->Begin(0, second).first_uses(), 1u);
  EXPECT_EQ(s.store->Begin(0, first).first_uses(), 0u);
  EXPECT_EQ(s.store->Begin(1, first).first_uses(), 2u);
}

TEST(ExpertStore, ReadsAgainOnceAndGoesOnAfterAnError) {
  Store s(6, 3);
  const std::vector<ExpertUse> uses = {{4, 0}};
  s.records->fail_ = 1;
  EXPECT_EQ(Visit(s, 1, uses), std::vector<int32_t>{4});
  const std::vector<ExpertUse> others = {{1, 0}, {2, 0}, {4, 0}};
  s.records->fail_ = 4;  // both pieces, twice
  {
    ExpertStore::Visit visit = s.store->Begin(1, others);
    EXPECT_EQ(visit.hits().size(), 1u);
    visit.FreeHits();
    Status failed;
    for (size_t i = 0; i < 2 && failed.ok(); ++i) failed = visit.Wait(i);
    EXPECT_EQ(failed.code(), StatusCode::kUnreadable);
    EXPECT_NE(failed.message().find("layer 11, expert "), std::string::npos);
    EXPECT_NE(failed.message().find("FILE: Input/output error at 17"), std::string::npos);
  }
  s.records->fail_ = 0;
  EXPECT_FALSE(Visit(s, 1, others).empty());
  EXPECT_TRUE(Visit(s, 1, others).empty());
}

// Filled through a view of their own; before an expert is dropped, what it held is still there.
TEST(ExpertStore, TellsBeforeASlotChangesHands) {
  auto store = ExpertStore::Create(Layers(6), {2, 2}, /*guarded=*/true, std::make_unique<Records>()).value();
  std::vector<std::pair<size_t, int32_t>> told;
  store->SetBeforeRefill([&](size_t layer, int32_t expert) {
    EXPECT_EQ(Held(*store, static_cast<WeightId>(2 * layer), expert), layer * 1000 + static_cast<uint64_t>(expert));
    told.emplace_back(layer, expert);
  });
  const auto run = [&](const std::vector<ExpertUse>& uses) {
    ExpertStore::Visit visit = store->Begin(1, uses);
    visit.FreeHits();
    for (size_t i = 0; i < visit.misses().size(); ++i) {
      EXPECT_TRUE(visit.Wait(i).ok());
      visit.Free(i);
    }
  };
  run({{1, 0}, {2, 1}});
  EXPECT_TRUE(told.empty());
  run({{2, 1}, {3, 0}, {4, 2}, {5, 3}});
  using Told = std::vector<std::pair<size_t, int32_t>>;
  EXPECT_EQ(told, (Told{{1, 1}, {1, 2}, {1, 3}}));
}

TEST(ExpertRecords, SlotsTakeTheirBudget) {
  std::vector<ExpertRecords> layers = Layers(8);
  EXPECT_EQ(SlotsIn(layers, 0), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(SlotsIn(layers, 3 * 5 * kPage + 2 * kPage), (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(SlotsIn(layers, UINT64_MAX), (std::vector<int64_t>{8, 8}));
  layers[1].experts = 2;
  EXPECT_EQ(SlotsIn(layers, 2 * 5 * kPage + 3 * 2 * kPage), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(SlotBytes(layers, {5, 2}), (5 * 2 + 2 * 3) * kPage);
}

}  // namespace
}  // namespace tally
