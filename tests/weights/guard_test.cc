// SPDX-License-Identifier: Apache-2.0
// Guarded slices: where they lie, and that they hold what others do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/machine/machine.h"
#include "tests/weights/everything.h"
#include "tests/weights/written.h"

namespace tally {
namespace {

TEST(GuardedWeights, EverySliceEndsWithAPageAndAnUnusedOneFollows) {
  const size_t page = SystemPageBytes();
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  Team team(2);
  const auto plain = LoadSpec(c.inventory, c.spec, team, nullptr);
  const auto guarded = LoadSpec(c.inventory, c.spec, team, nullptr, /*guard_slices=*/true);
  ASSERT_TRUE(plain.ok() && guarded.ok()) << guarded.status().message();
  EXPECT_FALSE(plain->guarded());
  EXPECT_TRUE(guarded->guarded());
  EXPECT_EQ(plain->arena().size(), plain->packed_bytes());
  ASSERT_EQ(guarded->views().size(), plain->views().size());
  ASSERT_EQ(guarded->infos().size(), plain->infos().size());
  const uint8_t* const arena = guarded->arena().data();
  std::vector<int> owner(guarded->arena().size() / page, -1);
  uint64_t guards = 0, pages = 0;
  int slices = 0, inside = 0;
  for (size_t id = 0; id < plain->views().size(); ++id) {
    const WeightView &a = plain->views()[id], &b = guarded->views()[id];
    const WeightInfo& info = guarded->infos()[id];
    SCOPED_TRACE(info.name);
    EXPECT_EQ(b.id, id);
    EXPECT_EQ(info.name, plain->infos()[id].name);
    EXPECT_EQ(info.packed_bytes, plain->infos()[id].packed_bytes);
    const uint64_t bytes = info.packed_bytes / info.slices;
    for (int64_t s = 0; s < b.slices; ++s) {
      EXPECT_EQ(std::memcmp(a.Slice(s), b.Slice(s), bytes), 0);
      const size_t begin = static_cast<size_t>(b.Slice(s) - arena), end = begin + bytes;
      ASSERT_EQ(end % page, 0u);
      ASSERT_LT(end / page, owner.size());
      inside += begin % page != 0;
      for (size_t p = begin / page; p <= end / page; ++p) {  // the guard too
        EXPECT_EQ(owner[p], -1) << "page " << p;
        owner[p] = slices;
      }
      EXPECT_TRUE(std::all_of(arena + end, arena + end + page, [](uint8_t x) { return x == 0; }));
      EXPECT_EQ(b.Slice(s) - b.data, static_cast<ptrdiff_t>(b.slice_stride) * s);
      ++guards;
      ++slices;
      pages += (bytes + page - 1) / page;
    }
  }
  EXPECT_TRUE(std::none_of(owner.begin(), owner.end(), [](int o) { return o == -1; }));
  EXPECT_GT(inside, 20);  // slices that begin within a page: it is their ends that are aligned
  EXPECT_EQ(guarded->arena().size(), (guards + pages) * page);
  EXPECT_EQ(guarded->packed_bytes(), pages * page);
}

TEST(GuardedWeights, NothingToLoad) {
  WrittenCheckpoint c;
  c.Write();
  Team team(1);
  const auto weights = LoadSpec(c.inventory, c.spec, team, nullptr, true);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->arena().size(), 0u);
}

}  // namespace
}  // namespace tally
