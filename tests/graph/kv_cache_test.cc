// The KV cache's book-keeping: blocks of layers with and without a window, rolling back, and what is refused.
#include "engine/graph/kv_cache.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "engine/graph/decoder.h"

namespace tally {
namespace {

Recipe SmallRecipe(std::vector<int32_t> windows) {
  Recipe r;
  r.n_layers = static_cast<int32_t>(windows.size());
  r.n_kv_heads = 2;
  r.head_dim = 4;
  for (int32_t w : windows) r.layers.push_back({.window = w});
  return r;
}

std::unique_ptr<KvCache> Make(const Recipe& r, int64_t context, int32_t sequences, int64_t max_batch) {
  auto cache = KvCache::Create(r, KvType::kF16, context, sequences, max_batch);
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return cache.ok() ? std::move(cache).value() : nullptr;
}

int64_t Present(const KvTable& table) {
  int64_t n = 0;
  for (int64_t b = 0; b < table.count; ++b) n += table.blocks[b] != nullptr ? 1 : 0;
  return n;
}

TEST(KvCache, GivesEveryLayerBlocksOfItsOwn) {
  const Recipe r = SmallRecipe({0, 64, 0});
  auto cache = Make(r, 1024, 2, 128);
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
        std::memset(block, layer + 1, KvBlockBytes(KvType::kF16, 2, 4));  // all of it is ours to write
        seen.insert(block);
      }
    }
  }
  EXPECT_EQ(seen.size(), blocks);
  EXPECT_EQ(cache->BytesAllocated(), blocks * KvBlockBytes(KvType::kF16, 2, 4));
}

TEST(KvCache, WindowLayersGiveBackBlocksButOne) {
  const Recipe r = SmallRecipe({0, 100});
  auto cache = Make(r, 4096, 1, 64);
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
  EXPECT_LT(KvCache::PlanBytes(r, KvType::kF16, 4096, 1, 64), 2 * 4096 / kKvBlock * KvBlockBytes(KvType::kF16, 2, 4));
}

TEST(KvCache, RollsBackWithinTheMarginAndRefusesBeyond) {
  const Recipe r = SmallRecipe({0, 50});
  auto cache = Make(r, 4096, 1, 256);
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
}

TEST(KvCache, RefusesMoreThanItHasRoomForAndStaysAsItWas) {
  const Recipe r = SmallRecipe({0});
  auto cache = Make(r, 200, 1, 64);
  auto s = cache->NewSequence();
  ASSERT_TRUE(cache->Extend(*s, 150).ok());
  const Status full = cache->Extend(*s, 51);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.message(), "the context is full: 201 positions, room for 200");
  EXPECT_EQ(cache->Length(*s), 150);
  EXPECT_TRUE(cache->Extend(*s, 50).ok());
  EXPECT_FALSE(cache->NewSequence().ok());
  cache->Free(*s);
  EXPECT_EQ(cache->BytesAllocated(), 0u);
  EXPECT_FALSE(cache->IsLive(*s));
  EXPECT_TRUE(cache->NewSequence().ok());
}

// A batch longer than the pools were made for: refused before anything is given back, though blocks below the window could be.
TEST(KvCache, AFullPoolSaysWhatFitsAndKeepsItsBlocks) {
  const Recipe r = SmallRecipe({0, 50});
  auto cache = Make(r, 4096, 2, 64);
  auto s = cache->NewSequence();
  for (int i = 0; i < 17; ++i) ASSERT_TRUE(cache->Extend(*s, 60).ok());
  const KvTable windowed = cache->Tables(1)[static_cast<size_t>(*s)];
  const std::vector<uint8_t*> before(windowed.blocks, windowed.blocks + windowed.count);
  const uint64_t bytes = cache->BytesAllocated();
  const Status full = cache->Extend(*s, 2000);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.code(), StatusCode::kBadInput);
  const KvTable after = cache->Tables(1)[static_cast<size_t>(*s)];
  EXPECT_EQ(std::vector<uint8_t*>(after.blocks, after.blocks + after.count), before);
  EXPECT_EQ(cache->BytesAllocated(), bytes);
  EXPECT_EQ(cache->Length(*s), 17 * 60);

  int64_t fit = 0;
  ASSERT_EQ(std::sscanf(full.message().c_str(), "the KV cache is full: room for %ld more positions of this sequence", &fit), 1)
      << full.message();
  EXPECT_FALSE(cache->Extend(*s, fit + 1).ok());
  EXPECT_TRUE(cache->Extend(*s, fit).ok());
  EXPECT_EQ((17 * 60 + fit) % kKvBlock, 0);
  EXPECT_EQ(Present(cache->Tables(1)[static_cast<size_t>(*s)]) * static_cast<int64_t>(KvBlockBytes(KvType::kF16, 2, 4)),
            static_cast<int64_t>(cache->BytesAllocated()) -
                cache->Tables(0)[static_cast<size_t>(*s)].count * static_cast<int64_t>(KvBlockBytes(KvType::kF16, 2, 4)));
}

// Taking, giving back and rolling back at random: tables name what the window needs, and no block belongs to two.
TEST(KvCache, RandomUseKeepsTheBooks) {
  constexpr uint32_t kSeed = 5;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  const Recipe r = SmallRecipe({0, 50, 200, 50});
  constexpr int64_t kContext = 1500;
  constexpr int32_t kSequences = 3;
  auto cache = Make(r, kContext, kSequences, 96);
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
        const int64_t window = r.layers[static_cast<size_t>(layer)].window;
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
    ASSERT_EQ(cache->BytesAllocated(), blocks * KvBlockBytes(KvType::kF16, 2, 4)) << "step " << step;
  }
}

// 2^24 blocks a sequence, of 2^22 bytes in all layers: 2^18 sequences are 2^64 bytes, which a product would make nothing of.
TEST(KvCache, MoreThanAnyMachineHasIsNoSmallPlan) {
  constexpr int32_t kContext = INT32_MAX;
  std::vector<int32_t> one_group(16, 0), two_groups = one_group;  // two of 2^63 bytes: a sum that overflows
  std::fill_n(two_groups.begin(), 8, kContext);
  for (const std::vector<int32_t>& windows : {one_group, two_groups}) {
    Recipe r = SmallRecipe(windows);
    r.n_kv_heads = 8;
    r.head_dim = 64;
    ASSERT_EQ(windows.size() * KvBlockBytes(KvType::kF16, 8, 64), size_t{1} << 22);
    EXPECT_EQ(KvCache::PlanBytes(r, KvType::kF16, kContext, 1, 64), uint64_t{1} << 46);
    for (int32_t sequences : {1 << 18, (1 << 18) + 1, INT32_MAX}) {
      EXPECT_EQ(KvCache::PlanBytes(r, KvType::kF16, kContext, sequences, 64), UINT64_MAX) << sequences;
      const auto cache = KvCache::Create(r, KvType::kF16, kContext, sequences, 64);
      ASSERT_FALSE(cache.ok()) << sequences;
      EXPECT_EQ(cache.status().code(), StatusCode::kBadInput);
    }
  }
  // 2^31 blocks: their bytes could be counted, their ids could not.
  const auto cache = KvCache::Create(SmallRecipe({0}), KvType::kF16, kContext, 128, 64);
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.status().code(), StatusCode::kBadInput);
  EXPECT_EQ(cache.status().message(),
            "a KV cache of 128 sequences of 2147483647 positions is more than any machine has room for");
}

TEST(KvCache, RecycledBlocksAreZeroed) {
  const Recipe r = SmallRecipe({0});
  auto cache = Make(r, kKvBlock, 1, 64);
  for (int round = 0; round < 3; ++round) {
    auto s = cache->NewSequence();
    ASSERT_TRUE(cache->Extend(*s, 5).ok());
    uint8_t* block = cache->Tables(0)[static_cast<size_t>(*s)].blocks[0];
    for (size_t i = 0; i < KvBlockBytes(KvType::kF16, 2, 4); ++i) ASSERT_EQ(block[i], 0) << "round " << round;
    std::memset(block, 0xFF, KvBlockBytes(KvType::kF16, 2, 4));
    cache->Free(*s);
  }
}

}  // namespace
}  // namespace tally
