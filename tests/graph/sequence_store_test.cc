// SPDX-License-Identifier: Apache-2.0
// The store of sequences: blocks of layers with and without a window, sharing them between sequences, rolling back, and what is refused.
#include "engine/graph/sequence_store.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "tests/support/resident.h"

namespace tally {
namespace {

constexpr KvLayout kSmall{KvType::kF16, 8, 4};

// A layer's window and layout.
struct Kind {
  int32_t window;
  KvLayout layout;
};

std::vector<StoreLayer> LayersOf(const std::vector<Kind>& kinds) {
  std::vector<StoreLayer> layers;
  for (const Kind& kind : kinds) layers.push_back(KvStoreLayer(kind.window, kind.layout));
  return layers;
}

std::vector<StoreLayer> Layers(const std::vector<int32_t>& windows, const KvLayout& layout = kSmall) {
  std::vector<StoreLayer> layers;
  for (const int32_t w : windows) layers.push_back(KvStoreLayer(w, layout));
  return layers;
}

std::unique_ptr<SequenceStore> Make(const std::vector<StoreLayer>& layers, const StoreSize& size) {
  auto store = SequenceStore::Create(layers, size, nullptr);
  EXPECT_TRUE(store.ok()) << store.status().message();
  return store.ok() ? std::move(store).value() : nullptr;
}

int64_t Present(const KvTable& table) {
  int64_t n = 0;
  for (int64_t b = 0; b < table.count; ++b) n += table.blocks[b] != nullptr ? 1 : 0;
  return n;
}

TEST(SequenceStore, GivesEveryLayerBlocksOfItsOwn) {
  auto cache = Make(Layers({0, 64, 0}), {1024, 2, 128});
  auto a = cache->NewSequence(), b = cache->NewSequence();
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE(cache->Extend(*a, 300).ok());
  ASSERT_TRUE(cache->Extend(*b, 100).ok());
  EXPECT_EQ(cache->Length(*a), 300);
  std::set<uint8_t*> seen;
  size_t blocks = 0;
  for (int32_t layer = 0; layer < 3; ++layer) {
    const auto tables = cache->Tables(layer);
    EXPECT_EQ(tables[static_cast<size_t>(*a)].count, 3);
    EXPECT_EQ(tables[static_cast<size_t>(*b)].count, 1);
    for (int32_t s : {*a, *b}) {
      for (int64_t i = 0; i < tables[static_cast<size_t>(s)].count; ++i, ++blocks) {
        uint8_t* block = tables[static_cast<size_t>(s)].blocks[i];
        ASSERT_NE(block, nullptr);
        std::memset(block, layer + 1, kSmall.BlockBytes());  // all of it is ours to write
        seen.insert(block);
      }
    }
  }
  EXPECT_EQ(seen.size(), blocks);
  EXPECT_EQ(cache->BytesInUse(), blocks * kSmall.BlockBytes());
}

TEST(SequenceStore, WindowLayersGiveBackBlocksButOne) {
  auto cache = Make(Layers({0, 100}), {4096, 1, 64});
  auto s = cache->NewSequence();
  ASSERT_TRUE(s.ok());
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(cache->Extend(*s, 64).ok()) << i;
    const int64_t length = cache->Length(*s), first_needed = std::max<int64_t>(0, length - 64 - 100 + 1);
    const KvTable windowed = cache->Tables(1)[0];
    for (int64_t b = first_needed / kKvBlock; b < windowed.count; ++b) ASSERT_NE(windowed.blocks[b], nullptr) << length;
    EXPECT_LE(Present(windowed), 5);
  }
  EXPECT_EQ(Present(cache->Tables(0)[0]), 4096 / kKvBlock);
  EXPECT_LT(SequenceStore::PlanBytes(Layers({0, 100}), {4096, 1, 64}), 2 * 4096 / kKvBlock * kSmall.BlockBytes());
}

TEST(SequenceStore, RollsBackWithinTheMarginAndRefusesBeyond) {
  auto cache = Make(Layers({0, 50}), {4096, 1, 256});
  auto s = cache->NewSequence();
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(cache->Extend(*s, 256).ok());
  EXPECT_TRUE(cache->Truncate(*s, 2048 - 200).ok());
  EXPECT_EQ(cache->Length(*s), 1848);
  const Status gone = cache->Truncate(*s, 300);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.code(), StatusCode::kBadInput);
  EXPECT_EQ(cache->Length(*s), 1848);
  EXPECT_FALSE(cache->Truncate(*s, 1849).ok());
  EXPECT_FALSE(cache->Truncate(*s, -1).ok());
  EXPECT_TRUE(cache->Extend(*s, 100).ok());
  // Nothing needs nothing: an emptied sequence begins anew, whatever it had given back.
  ASSERT_TRUE(cache->Truncate(*s, 0).ok());
  EXPECT_EQ(cache->BytesInUse(), 0u);
  ASSERT_TRUE(cache->Extend(*s, 100).ok());
  EXPECT_TRUE(cache->Truncate(*s, 50).ok());
  cache->Free(*s);
  EXPECT_EQ(cache->BytesInUse(), 0u);
}

TEST(SequenceStore, RefusesMoreThanItHasRoomForAndStaysAsItWas) {
  auto cache = Make(Layers({0}), {200, 1, 64});
  auto s = cache->NewSequence();
  ASSERT_TRUE(cache->Extend(*s, 150).ok());
  const Status full = cache->Extend(*s, 51);
  EXPECT_EQ(full.code(), StatusCode::kNoRoom);
  EXPECT_EQ(full.message(), "the context is full: 201 positions, room for 200");
  EXPECT_EQ(cache->Length(*s), 150);
  EXPECT_TRUE(cache->Extend(*s, 50).ok());
  EXPECT_EQ(cache->NewSequence().status().code(), StatusCode::kNoRoom);
  cache->Free(*s);
  EXPECT_EQ(cache->BytesInUse(), 0u);
  EXPECT_FALSE(cache->IsLive(*s));
  EXPECT_TRUE(cache->NewSequence().ok());
}

// Refused before anything is dropped, though blocks below the window could be.
TEST(SequenceStore, AFullStoreSaysWhatFitsAndKeepsItsBlocks) {
  auto cache = Make(Layers({0, 50}), {4096, 2, 64, 20 * kSmall.BlockBytes()});
  auto s = cache->NewSequence();
  for (int i = 0; i < 17; ++i) ASSERT_TRUE(cache->Extend(*s, 60).ok());
  const KvTable windowed = cache->Tables(1)[static_cast<size_t>(*s)];
  const std::vector<uint8_t*> before(windowed.blocks, windowed.blocks + windowed.count);
  const uint64_t bytes = cache->BytesInUse();
  const Status full = cache->Extend(*s, 2000);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.code(), StatusCode::kNoRoom);
  const KvTable after = cache->Tables(1)[static_cast<size_t>(*s)];
  EXPECT_EQ(std::vector<uint8_t*>(after.blocks, after.blocks + after.count), before);
  EXPECT_EQ(cache->BytesInUse(), bytes);
  EXPECT_EQ(cache->Length(*s), 17 * 60);

  int64_t fit = 0;
  ASSERT_EQ(std::sscanf(full.message().c_str(), "the KV cache is full: room for %ld more positions of this sequence", &fit), 1)
      << full.message();
  EXPECT_FALSE(cache->Extend(*s, fit + 1).ok());
  EXPECT_TRUE(cache->Extend(*s, fit).ok());
  EXPECT_EQ((17 * 60 + fit) % kKvBlock, 0);
  EXPECT_EQ(Present(cache->Tables(1)[static_cast<size_t>(*s)]) * static_cast<int64_t>(kSmall.BlockBytes()),
            static_cast<int64_t>(cache->BytesInUse()) -
                cache->Tables(0)[static_cast<size_t>(*s)].count * static_cast<int64_t>(kSmall.BlockBytes()));
}

// Taking, giving back and rolling back at random: tables name what the window needs, and no block belongs to two.
TEST(SequenceStore, RandomUseKeepsTheBooks) {
  constexpr uint32_t kSeed = 5;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  constexpr int64_t kContext = 1500;
  constexpr int32_t kSequences = 3;
  const std::vector<StoreLayer> layers = Layers({0, 50, 200, 50});
  auto cache = Make(layers, {kContext, kSequences, 96});
  std::vector<int32_t> live;
  std::map<int32_t, int64_t> began;  // sequence -> the greatest length an extension began at
  for (int step = 0; step < 4000; ++step) {
    const uint32_t what = random() % 16;
    if (live.empty() || (what == 0 && live.size() < kSequences)) {
      auto s = cache->NewSequence();
      ASSERT_TRUE(s.ok());
      began[*s] = 0;
      live.push_back(*s);
    } else if (what == 1) {
      cache->Free(live.back());
      live.pop_back();
    } else if (what < 4) {
      const int32_t s = live[random() % live.size()];
      const int64_t length = cache->Length(s), keep = std::max<int64_t>(0, length - random() % 100);
      // Always possible to a block below where an extension began; further back windows may have given up what it takes.
      const Status rolled_back = cache->Truncate(s, keep);
      ASSERT_TRUE(rolled_back.ok() || keep < began[s] - kKvBlock) << rolled_back.message();
      ASSERT_EQ(cache->Length(s), rolled_back.ok() ? keep : length);
    } else {
      const int32_t s = live[random() % live.size()];
      const int64_t n = random() % 97, length = cache->Length(s);
      const Status status = cache->Extend(s, n);
      if (status.ok() && n > 0) began[s] = std::max(began[s], length);
      ASSERT_EQ(status.ok(), length + n <= kContext) << status.message();
      for (int32_t layer = 0; layer < 4; ++layer) {  // what the new rows see is there
        const int64_t window = layers[static_cast<size_t>(layer)].window;
        const KvTable table = cache->Tables(layer)[static_cast<size_t>(s)];
        const int64_t first = window > 0 ? std::max<int64_t>(0, length - window + 1) : 0;
        for (int64_t b = first / kKvBlock; b * kKvBlock < cache->Length(s); ++b) ASSERT_NE(table.blocks[b], nullptr);
      }
    }
    std::set<uint8_t*> seen;
    size_t blocks = 0;
    for (int32_t layer = 0; layer < 4; ++layer) {
      for (int32_t s : live) {
        const KvTable table = cache->Tables(layer)[static_cast<size_t>(s)];
        for (int64_t b = 0; b < table.count; ++b) {
          if (table.blocks[b] != nullptr) seen.insert(table.blocks[b]), ++blocks;
        }
      }
    }
    ASSERT_EQ(seen.size(), blocks) << "step " << step;
    ASSERT_EQ(cache->BytesInUse(), blocks * kSmall.BlockBytes()) << "step " << step;
  }
}

// 2^24 blocks a sequence, of 2^22 bytes in all layers: 2^18 sequences are 2^64 bytes, which a product would make nothing of.
TEST(SequenceStore, MoreThanAnyMachineHasIsNoSmallPlan) {
  constexpr int32_t kContext = INT32_MAX;
  std::vector<int32_t> one_group(16, 0), two_groups = one_group;  // two of 2^63 bytes: a sum that overflows
  std::fill_n(two_groups.begin(), 8, kContext);
  for (const std::vector<int32_t>& windows : {one_group, two_groups}) {
    const std::vector<StoreLayer> layers = Layers(windows, {KvType::kF16, 8, 64});
    ASSERT_EQ(windows.size() * layers[0].bytes, size_t{1} << 22);
    EXPECT_EQ(SequenceStore::PlanBytes(layers, {kContext, 1, 64}), uint64_t{1} << 46);
    for (int32_t sequences : {1 << 18, (1 << 18) + 1, INT32_MAX}) {
      EXPECT_EQ(SequenceStore::PlanBytes(layers, {kContext, sequences, 64}), UINT64_MAX) << sequences;
      const auto cache = SequenceStore::Create(layers, {kContext, sequences, 64}, nullptr);
      ASSERT_FALSE(cache.ok()) << sequences;
      EXPECT_EQ(cache.status().code(), StatusCode::kBadInput);
    }
  }
  // 2^31 blocks: their bytes could be counted, their ids could not.
  const auto cache = SequenceStore::Create(Layers({0}), {kContext, 128, 64}, nullptr);
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.status().code(), StatusCode::kBadInput);
  EXPECT_EQ(cache.status().message(),
            "a KV cache of 128 sequences of 2147483647 positions is more than any machine has room for");
}

TEST(SequenceStore, RecycledBlocksAreZeroed) {
  auto cache = Make(Layers({0}), {kKvBlock, 1, 64});
  for (int round = 0; round < 3; ++round) {
    auto s = cache->NewSequence();
    ASSERT_TRUE(cache->Extend(*s, 5).ok());
    uint8_t* block = cache->Tables(0)[static_cast<size_t>(*s)].blocks[0];
    for (size_t i = 0; i < kSmall.BlockBytes(); ++i) ASSERT_EQ(block[i], 0) << "round " << round;
    std::memset(block, 0xFF, kSmall.BlockBytes());
    cache->Free(*s);
  }
}

// gpt-oss-20b with a context of 131,072 and the memory of ten such sequences: as many short ones as the bytes allow.
TEST(SequenceStore, OneBudgetIsSharedByGroups) {
  constexpr KvLayout kHeads{KvType::kF16, 8, 64};
  std::vector<int32_t> windows;
  for (int l = 0; l < 12; ++l) windows.insert(windows.end(), {128, 0});
  const std::vector<StoreLayer> layers = Layers(windows, kHeads);
  StoreSize size{131072, 10, 512};
  size.bytes = SequenceStore::PlanBytes(layers, size);
  size.sequences = 10000;
  auto store = Make(layers, size);
  uint64_t of_one = 0;
  size_t n = 0;
  for (; n < 10000; ++n) {
    const int32_t s = *store->NewSequence();
    if (!store->Extend(s, 512).ok() || !store->Extend(s, 488).ok()) break;
    if (of_one == 0) of_one = store->BytesInUse();
  }
  EXPECT_EQ(n, size.bytes / of_one);
  EXPECT_GT(n, 700u);
  EXPECT_LE(of_one, store->BytesFor(1000));
  EXPECT_TRUE(store->Verify().ok());
}

TEST(SequenceStore, LayersDifferInBlocks) {
  const std::vector<StoreLayer> layers = {{.window = 3, .positions = 32, .bytes = 100, .clear = {}},
                                          {.window = 0, .positions = kKvBlock, .bytes = 0, .clear = {}},
                                          {.window = 0, .positions = kKvBlock, .bytes = 5000, .clear = {}}};
  auto store = Make(layers, {1024, 2, 64});
  const int32_t s = *store->NewSequence();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store->Extend(s, 20).ok());
  const size_t q = static_cast<size_t>(s);
  EXPECT_EQ(store->Tables(0)[q].count, 7);
  EXPECT_EQ(Present(store->Tables(0)[q]), 3);  // of positions 180 and 199, and one before
  EXPECT_EQ(store->Tables(1)[q].count, 0);     // it keeps nothing
  EXPECT_EQ(store->Tables(2)[q].count, 2);
  EXPECT_TRUE(store->Verify().ok());
  EXPECT_EQ(SequenceStore::Check(std::vector<StoreLayer>{{.window = 3, .positions = 48, .bytes = 1, .clear = {}}}, {64}).code(),
            StatusCode::kInternal);
  EXPECT_EQ(SequenceStore::Check(std::vector<StoreLayer>{{.window = 0, .positions = 32, .bytes = 1, .clear = {}}}, {64}).code(),
            StatusCode::kInternal);
}

// Groups fill and empty in turn, by blocks of whole huge pages, of parts and of small pages.
TEST(SequenceStore, ResidentMemoryStaysWithinTheBudget) {
  constexpr uint64_t kMib = uint64_t{1} << 20, kBudget = 96 * kMib, kSlack = 12 * kMib;
  Team team(2);
  std::vector<StoreLayer> layers;
  for (const auto& [window, bytes] : {std::pair{0, 3 * kMib - 4000}, {100, 2 * kMib}, {300, 100 * kMib / 1024}, {0, kMib / 2}}) {
    layers.push_back({.window = window, .bytes = bytes, .clear = {}});
  }
  auto made = SequenceStore::Create(layers, {1 << 20, 400, 1200, kBudget}, &team);
  ASSERT_TRUE(made.ok()) << made.status().message();
  SequenceStore& store = **made;
  std::mt19937 random(7);
  uint64_t most = 0;
  const uint8_t *first = nullptr, *last = nullptr;  // of all blocks
  std::vector<int32_t> live;
  for (int step = 0; step < 100; ++step) {
    const Result<int32_t> s = store.NewSequence();
    if (s.ok()) live.push_back(*s);
    const int32_t grown = live[random() % live.size()];
    // Long steps take blocks of windows too, which the next ones drop.
    while (!store.Extend(grown, 1 + static_cast<int64_t>(random() % 1200)).ok() && live.size() > 1) {
      const size_t at = random() % live.size();
      store.Free(live[at]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    }
    for (size_t l = 0; l < layers.size(); ++l) {
      for (const KvTable& table : store.Tables(static_cast<int32_t>(l))) {
        for (int64_t b = 0; b < table.count; ++b) {
          uint8_t* const block = table.blocks[b];
          if (block == nullptr) continue;
          std::memset(block, 1, layers[l].bytes);
          if (first == nullptr || block < first) first = block;
          last = std::max<const uint8_t*>(last, block + layers[l].bytes);
        }
      }
    }
    most = std::max(most, ResidentIn(first, last));
    ASSERT_LE(most, kBudget + kSlack) << "step " << step;
    ASSERT_TRUE(store.Verify().ok());
  }
  EXPECT_GT(most, kBudget / 4 * 3);
}

// A store and a plain model of it: a sequence is a vector of numbers, which are what its keys and values are made of.
class Modelled {
 public:
  Modelled(std::vector<Kind> layers, const StoreSize& size) : layers_(std::move(layers)), store_(Make(LayersOf(layers_), size)) {}

  SequenceStore& store() { return *store_; }
  std::map<int32_t, std::vector<int32_t>>& sequences() { return sequences_; }

  // Extends a sequence by numbers that were never used before, and stores their keys and values in every layer.
  Status Extend(int32_t s, int64_t n) {
    std::vector<int32_t>& numbers = sequences_.at(s);
    TALLY_RETURN_IF_ERROR(store_->Extend(s, n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = static_cast<int64_t>(numbers.size());
      numbers.push_back(next_++);
      for (size_t l = 0; l < layers_.size(); ++l) {
        const KvTable table = store_->Tables(static_cast<int32_t>(l))[static_cast<size_t>(s)];
        const KvLayout& layout = layers_[l].layout;
        const std::vector<float> k(static_cast<size_t>(layout.k_dim), Key(numbers.back(), l));
        const std::vector<float> v(static_cast<size_t>(layout.v_dim), Key(numbers.back(), l) + 1);
        for (int64_t h = 0; h < layout.kv_heads; ++h)
          layout.Store(table.blocks[at / kKvBlock], h, at % kKvBlock, k.data(), v.data());
      }
    }
    return {};
  }
  // What the sequence's next position sees, in every layer, is what was stored.
  void Check(int32_t s) {
    const std::vector<int32_t>& numbers = sequences_.at(s);
    const int64_t length = static_cast<int64_t>(numbers.size());
    ASSERT_EQ(store_->Length(s), length);
    for (size_t l = 0; l < layers_.size(); ++l) {
      const KvTable table = store_->Tables(static_cast<int32_t>(l))[static_cast<size_t>(s)];
      const int64_t window = layers_[l].window;
      for (int64_t at = window > 0 ? std::max<int64_t>(0, length - window + 1) : 0; at < length; ++at) {
        ASSERT_LT(at / kKvBlock, table.count);
        const uint8_t* block = table.blocks[at / kKvBlock];
        ASSERT_NE(block, nullptr) << "sequence " << s << ", layer " << l << ", position " << at << " of " << length;
        const float key = Key(numbers[static_cast<size_t>(at)], l);
        for (int64_t h = 0; h < 2; ++h) {
          ASSERT_EQ(layers_[l].layout.Key(block, h, at % kKvBlock, 3), key) << "sequence " << s << ", layer " << l << ", " << at;
          ASSERT_EQ(layers_[l].layout.Value(block, h, at % kKvBlock, 0), key + 1);
        }
      }
    }
  }
  // Blocks that tables name, each counted once, are all that is in use.
  void CheckBytes() {
    uint64_t bytes = 0;
    for (size_t l = 0; l < layers_.size(); ++l) {
      std::set<const uint8_t*> seen;
      for (const KvTable& table : store_->Tables(static_cast<int32_t>(l))) {
        for (int64_t b = 0; b < table.count; ++b) {
          if (table.blocks[b] != nullptr) seen.insert(table.blocks[b]);
        }
      }
      bytes += seen.size() * layers_[l].layout.BlockBytes();
    }
    ASSERT_EQ(store_->BytesInUse(), bytes);
  }
  // All that a refusal must leave alone.
  std::vector<std::vector<uint8_t*>> Blocks() {
    std::vector<std::vector<uint8_t*>> blocks;
    for (size_t l = 0; l < layers_.size(); ++l) {
      for (const auto& [s, numbers] : sequences_) {
        const KvTable table = store_->Tables(static_cast<int32_t>(l))[static_cast<size_t>(s)];
        blocks.emplace_back(table.blocks, table.blocks + table.count);
      }
    }
    return blocks;
  }

 private:
  static float Key(int32_t number, size_t layer) { return static_cast<float>(number) * 16 + 2 * static_cast<float>(layer); }

  std::vector<Kind> layers_;
  std::unique_ptr<SequenceStore> store_;
  std::map<int32_t, std::vector<int32_t>> sequences_;
  int32_t next_ = 1;
};

// The budget is small: Extend and Fork find it full at times.
TEST(SequenceStore, RandomForksKeepWhatWasStored) {
  constexpr uint32_t kSeed = 11;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  constexpr KvLayout kWide{KvType::kF32, 8, 4}, kOther{KvType::kF32, 8, 20, 4};
  Modelled m({{0, kWide}, {50, kWide}, {0, kOther}, {200, kOther}, {1, kWide}}, {1000, 6, 96, 14'000'000});
  int full = 0, shared = 0, gone = 0, copied_on_write = 0;
  for (int step = 0; step < 3000; ++step) {
    const uint32_t what = random() % 16;
    if (m.sequences().empty() || (what == 0 && random() % 4 == 0)) {
      const auto s = m.store().NewSequence();
      ASSERT_EQ(s.ok(), m.sequences().size() < 6);
      if (s.ok()) m.sequences()[*s];
      continue;
    }
    auto picked = m.sequences().begin();
    std::advance(picked, random() % m.sequences().size());
    const int32_t s = picked->first;
    std::vector<int32_t>& numbers = picked->second;
    const int64_t length = static_cast<int64_t>(numbers.size());
    const std::vector<std::vector<uint8_t*>> before = m.Blocks();
    const uint64_t bytes = m.store().BytesInUse();
    Status status;
    if (what == 1 && random() % 2 == 0) {
      m.store().Free(s);
      m.sequences().erase(s);
    } else if (what < 4) {
      const int64_t keep =
          what == 2 ? static_cast<int64_t>(random() % (length + 1)) : std::max<int64_t>(0, length - random() % 100);
      status = m.store().Truncate(s, keep);
      if (status.ok()) numbers.resize(static_cast<size_t>(keep));
    } else if (what < 6) {
      const int64_t keep = random() % 3 != 0 ? length - length % (random() % 2 != 0 ? kKvBlock : 1)
                                             : static_cast<int64_t>(random() % (length + 1));
      const auto fork = m.store().Fork(s, keep);
      status = fork.status();
      if (fork.ok()) {
        status = {};
        m.sequences()[*fork] = {numbers.begin(), numbers.begin() + keep};
        shared += keep >= kKvBlock ? 1 : 0;
        m.Check(*fork);
      }
    } else {
      const int64_t n = random() % 97;
      const uint8_t* const last =
          length % kKvBlock != 0 ? m.store().Tables(0)[static_cast<size_t>(s)].blocks[length / kKvBlock] : nullptr;
      status = m.Extend(s, n);
      if (status.ok() && last != nullptr) {
        copied_on_write += m.store().Tables(0)[static_cast<size_t>(s)].blocks[length / kKvBlock] != last ? 1 : 0;
      }
    }
    if (!status.ok()) {
      const bool is_full = status.message().find("the KV cache is full") != std::string::npos ||
                           status.message().find("the context is full") != std::string::npos ||
                           status.message().find("in use") != std::string::npos;
      ASSERT_EQ(status.code(), is_full ? StatusCode::kNoRoom : StatusCode::kBadInput) << status.message();
      ASSERT_EQ(m.Blocks(), before) << status.message();
      ASSERT_EQ(m.store().BytesInUse(), bytes);
      full += status.message().find("the KV cache is full") != std::string::npos ? 1 : 0;
      gone += status.message().find("has given up") != std::string::npos ? 1 : 0;
      int64_t fit = 0;
      if (std::sscanf(status.message().c_str(), "the KV cache is full: room for %ld more positions of this sequence", &fit) ==
          1) {
        ASSERT_FALSE(m.Extend(s, fit + 1).ok());
        ASSERT_TRUE(m.Extend(s, fit).ok()) << fit;
      }
    }
    for (const auto& [id, unused] : m.sequences()) {
      if (id == s || step % 16 == 0) m.Check(id);
      if (HasFatalFailure()) FAIL() << "step " << step;
    }
    m.CheckBytes();
    const Status verified = m.store().Verify();
    ASSERT_TRUE(verified.ok()) << verified.message() << ", step " << step;
    if (HasFatalFailure()) FAIL() << "step " << step;
  }
  // Each of these was met often enough to mean something.
  EXPECT_GT(full, 30);
  EXPECT_GT(shared, 40);
  EXPECT_GT(gone, 30);
  EXPECT_GT(copied_on_write, 10);
  for (int32_t s = 0; s < 6; ++s) m.store().Free(s);
  EXPECT_EQ(m.store().BytesInUse(), 0u);
}

// Whole blocks are shared and take no memory; the partial one is the fork's own.
TEST(SequenceStore, ForkSharesWholeBlocks) {
  Modelled m({{0, {KvType::kF32, 8, 4}}, {0, {KvType::kF32, 8, 4}}}, {1024, 3, 128, 0});
  const int32_t a = *m.store().NewSequence();
  m.sequences()[a];
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(m.Extend(a, 100).ok());
  const uint64_t three = m.store().BytesInUse();
  const auto b = m.store().Fork(a, 300), c = m.store().Fork(a, 256);
  ASSERT_TRUE(b.ok() && c.ok());
  EXPECT_EQ(m.store().BytesInUse(), three / 3 * 4);
  for (int32_t layer : {0, 1}) {
    const auto tables = m.store().Tables(layer);
    const KvTable &of_a = tables[static_cast<size_t>(a)], &of_b = tables[static_cast<size_t>(*b)],
                  &of_c = tables[static_cast<size_t>(*c)];
    EXPECT_EQ(of_c.count, 2);
    for (int64_t i : {0, 1}) {
      EXPECT_EQ(of_b.blocks[i], of_a.blocks[i]);
      EXPECT_EQ(of_c.blocks[i], of_a.blocks[i]);
    }
    EXPECT_NE(of_b.blocks[2], of_a.blocks[2]);
  }
  // A sequence that rolls back into a shared block gets its own before it writes there, with what it keeps.
  m.sequences()[*b] = m.sequences()[a];
  m.sequences()[*c] = {m.sequences()[a].begin(), m.sequences()[a].begin() + 256};
  ASSERT_TRUE(m.store().Truncate(a, 200).ok());
  m.sequences()[a].resize(200);
  ASSERT_TRUE(m.Extend(a, 20).ok());
  EXPECT_NE(m.store().Tables(0)[static_cast<size_t>(a)].blocks[1], m.store().Tables(0)[static_cast<size_t>(*b)].blocks[1]);
  for (int32_t s : {a, *b, *c}) m.Check(s);
  m.store().Free(a);
  m.sequences().erase(a);
  for (int32_t s : {*b, *c}) m.Check(s);
  EXPECT_EQ(m.store().Fork(a, 1).status().message(), "no sequence 0");
  EXPECT_EQ(m.store().Fork(*b, 301).status().message(), "cannot fork 301 of 300 positions");
}

// A copy holds what its source does, windows included, in blocks that nobody shares.
TEST(SequenceStore, ACopySharesNothing) {
  Modelled m({{0, {KvType::kF32, 8, 4}}, {50, {KvType::kF32, 8, 4}}}, {1024, 3, 128, 0});
  const int32_t a = *m.store().NewSequence();
  m.sequences()[a];
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(m.Extend(a, 128).ok());
  ASSERT_TRUE(m.Extend(a, 20).ok());
  const uint64_t one = m.store().BytesInUse();
  const auto b = m.store().Copy(a);
  ASSERT_TRUE(b.ok()) << b.status().message();
  EXPECT_EQ(m.store().Length(*b), 404);
  EXPECT_EQ(m.store().BytesInUse(), 2 * one);
  m.sequences()[*b] = m.sequences()[a];
  m.CheckBytes();
  ASSERT_TRUE(m.Extend(*b, 100).ok());
  ASSERT_TRUE(m.Extend(a, 30).ok());
  m.Check(a);
  m.Check(*b);
  EXPECT_EQ(m.store().Copy(7).status().message(), "no sequence 7");
  // A small budget refuses what does not fit, and nothing changes.
  auto small = Make(Layers({0}), {1024, 3, 128, 3 * SequenceStore::PlanBytes(Layers({0}), {128, 1, 128, 0})});
  const int32_t s = *small->NewSequence();
  ASSERT_TRUE(small->Extend(s, 200).ok());
  const uint64_t before = small->BytesInUse();
  EXPECT_EQ(small->Copy(s).status().code(), StatusCode::kNoRoom);
  EXPECT_NE(small->Copy(s).status().message().find("a copy of 200 positions needs 131072 bytes, and 65536 of 196608 are free"),
            std::string::npos);
  EXPECT_EQ(small->BytesInUse(), before);
}

TEST(SequenceStore, ForkNeedsWhatTheWindowsNeed) {
  auto store = Make(Layers({0, 50}), {4096, 3, 128});
  const auto s = store->NewSequence();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store->Extend(*s, 128).ok());
  const auto gone = store->Fork(*s, 700);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.status().code(), StatusCode::kBadInput);
  EXPECT_EQ(gone.status().message(),
            "cannot fork the first 700 positions: a layer with a window of 50 has given up what it needs");
  const auto fork = store->Fork(*s, 1200);
  ASSERT_TRUE(fork.ok()) << fork.status().message();
  EXPECT_TRUE(store->Truncate(*fork, 1100).ok());  // the margin for rolling back is the fork's too
  ASSERT_TRUE(store->Fork(*s, 0).ok());
  EXPECT_FALSE(store->Fork(*s, 0).ok());  // no slot
}

// A full context takes 8 blocks of the first layer and 3 of the windowed one.
TEST(SequenceStore, BytesAreChosenApartFromSequences) {
  const std::vector<StoreLayer> layers = Layers({0, 50});
  const uint64_t block = kSmall.BlockBytes();
  const StoreSize size{1024, 100, 64, 12 * block};
  EXPECT_EQ(SequenceStore::PlanBytes(layers, {1024, 1, 64}), (8 + 3) * block);
  EXPECT_EQ(SequenceStore::PlanBytes(layers, size), 12 * block);
  auto store = Make(layers, size);
  std::vector<int32_t> live;
  for (int i = 0; i < 100; ++i) {
    const auto s = store->NewSequence();
    ASSERT_TRUE(s.ok());
    live.push_back(*s);
  }
  EXPECT_FALSE(store->NewSequence().ok());
  for (size_t i = 0; i < 6; ++i) ASSERT_TRUE(store->Extend(live[i], 64).ok()) << i;
  const Status full = store->Extend(live[6], 1);  // each has a block of both groups
  EXPECT_EQ(full.message(), "the KV cache is full: room for 0 more positions of this sequence");
  store->Free(live[1]);
  EXPECT_TRUE(store->Extend(live[6], 64).ok());

  const auto small = SequenceStore::Create(layers, {1024, 100, 200, 3 * block}, nullptr);
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.status().code(), StatusCode::kBadInput);
  const std::string least = small.status().message();
  uint64_t bytes = 0;
  ASSERT_EQ(std::sscanf(least.c_str(),
                        "a KV cache of %*u bytes has no room for one batch of 200 positions: expected at least %lu", &bytes),
            1)
      << least;
  EXPECT_NE(least.find(std::to_string(3 * block)), std::string::npos);
  EXPECT_FALSE(SequenceStore::Check(layers, {1024, 100, 200, bytes - 1}).ok());
  auto enough = Make(layers, {1024, 100, 200, bytes});
  EXPECT_TRUE(enough->Extend(*enough->NewSequence(), 200).ok());
  EXPECT_FALSE(SequenceStore::Check(layers, {1024, 100, 200, UINT64_MAX}).ok());
}

}  // namespace
}  // namespace tally
