// SPDX-License-Identifier: Apache-2.0
// The tree of tokens alone: what is found is the longest common beginning of what was entered.
#include "engine/graph/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tally {
namespace {

using Tokens = std::vector<int32_t>;

// Enters all of a text; the last node, or kNone if a longer text has been entered.
int32_t EnterAll(PrefixIndex& index, std::string_view key, const Tokens& text) {
  int32_t node = index.Root(key);
  for (size_t at = 0; at < text.size(); at += PrefixIndex::kTokens) {
    const size_t n = std::min<size_t>(PrefixIndex::kTokens, text.size() - at);
    const PrefixIndex::Entry entry = index.Enter(node, std::span(text).subspan(at, n));
    if (entry.node == PrefixIndex::kNone) return entry.node;
    for (size_t slot = 0; slot < index.slots(); ++slot) index.SetBlock(entry.node, slot, 1);
    node = entry.node;
  }
  return node;
}

TEST(PrefixIndex, FindsTheLongestBeginning) {
  constexpr uint32_t kSeed = 3;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  PrefixIndex index(1);
  std::vector<Tokens> texts = {{}};
  const auto next = [&] {  // a text's beginning and something new
    Tokens text = texts[random() % texts.size()];
    text.resize(random() % 3 == 0 ? random() % (text.size() + 1) : text.size());
    for (size_t n = random() % 200; n > 0; --n) text.push_back(static_cast<int32_t>(random() % 2));
    return text;
  };
  for (int i = 0; i < 400; ++i) {
    const Tokens sought = next();
    size_t longest = 0;
    for (const Tokens& text : texts) {
      longest = std::max<size_t>(longest, std::ranges::mismatch(text, sought).in2 - sought.begin());
    }
    const PrefixIndex::Path path = index.Find("a", sought);
    ASSERT_EQ(path.length, static_cast<int64_t>(longest)) << i;
    ASSERT_EQ(static_cast<int64_t>(path.nodes.size()), (path.length + PrefixIndex::kTokens - 1) / PrefixIndex::kTokens);
    ASSERT_EQ(index.Find("b", sought).length, 0);
    const Status verified = index.Verify();
    ASSERT_TRUE(verified.ok()) << verified.message();
    texts.push_back(next());
    EnterAll(index, "a", texts.back());
  }
}

TEST(PrefixIndex, ANodeGrowsAndALongerOneStandsForShorter) {
  PrefixIndex index(1);
  const Tokens five = {1, 2, 3, 4, 5}, seven = {1, 2, 3, 4, 5, 6, 7}, other = {1, 2, 3, 9};
  const int32_t root = index.Root("");
  const PrefixIndex::Entry first = index.Enter(root, five);
  EXPECT_EQ(first.known, 0);
  const PrefixIndex::Entry grown = index.Enter(root, seven);
  EXPECT_EQ(grown.node, first.node);
  EXPECT_EQ(grown.known, 5);
  EXPECT_EQ(index.end(grown.node), 7);
  EXPECT_EQ(index.Enter(root, seven).known, 7);
  EXPECT_EQ(index.Enter(root, five).node, PrefixIndex::kNone);
  const PrefixIndex::Entry apart = index.Enter(root, other);
  EXPECT_NE(apart.node, first.node);
  EXPECT_EQ(index.nodes(), 3u);
  EXPECT_EQ(index.Find("", Tokens{1, 2, 3, 4, 8}).nodes, std::vector<int32_t>{first.node});
}

// Of two that agree alike one that names its blocks is found.
TEST(PrefixIndex, PrefersWhatIsWhole) {
  PrefixIndex index(2);
  const int32_t root = index.Root("");
  std::vector<int32_t> nodes;
  for (int32_t last = 0; last < 5; ++last) nodes.push_back(index.Enter(root, Tokens{1, 2, last * 2}).node);
  for (const int32_t whole : nodes) {
    for (const int32_t node : nodes) index.SetBlock(node, 0, 7), index.SetBlock(node, 1, node == whole ? 7 : PrefixIndex::kNone);
    for (int32_t last = -1; last < 10; last += 2) {
      EXPECT_EQ(index.Find("", Tokens{1, 2, last}).nodes, std::vector<int32_t>{whole}) << last;
    }
  }
}

// States are found after tokens that nodes beside the best one begin with, too.
TEST(PrefixIndex, FindsStates) {
  PrefixIndex index(0);
  Tokens text(200, 1);
  const int32_t node = EnterAll(index, "key", text);
  index.AddState(node, 150, 3);
  index.AddState(index.parent(node), 128, 4);
  text[160] = 2;
  const int32_t other = EnterAll(index, "key", text);
  ASSERT_NE(other, node);
  index.AddState(other, 200, 5);
  const auto found = [&](size_t n) {
    std::vector<int32_t> ids;
    for (const PrefixIndex::State& state : index.Find("key", std::span(text).first(n)).states) ids.push_back(state.id);
    return ids;
  };
  EXPECT_EQ(found(200), (std::vector<int32_t>{4, 3, 5}));
  EXPECT_EQ(found(199), (std::vector<int32_t>{4, 3}));
  EXPECT_EQ(found(149), std::vector<int32_t>{4});
  EXPECT_TRUE(index.Verify().ok());
  index.RemoveState(node, 3);
  index.Prune(node);
  EXPECT_EQ(found(199), std::vector<int32_t>{4});
  index.RemoveState(other, 5);
  index.Prune(other);
  EXPECT_EQ(found(200), std::vector<int32_t>{4});
}

TEST(PrefixIndex, RemovesChainsAndWhatIsEmpty) {
  PrefixIndex index(1);
  Tokens text(300, 1);
  const int32_t last = EnterAll(index, "key", text);
  text[200] = 2;
  const int32_t branch = EnterAll(index, "key", text);
  EXPECT_EQ(index.nodes(), 1u + 1 + 2 + 2);
  const uint64_t generation = index.generation(last);
  EXPECT_TRUE(index.Exists(last, generation));
  int dropped = 0;
  const auto drop = [&](size_t, int32_t) { ++dropped; };
  std::vector<int32_t> states;
  const auto drop_state = [&](int32_t id) { states.push_back(id); };
  index.AddState(branch, 290, 7);
  index.AddState(last, 300, 8);
  index.Remove(index.parent(branch), drop, drop_state);
  EXPECT_EQ(dropped, 2);
  EXPECT_EQ(states, std::vector<int32_t>{7});
  EXPECT_EQ(index.Find("key", text).length, 200);
  const int32_t middle = index.parent(last), first = index.parent(middle);
  index.SetBlock(first, 0, PrefixIndex::kNone);
  index.SetBlock(middle, 0, PrefixIndex::kNone);
  index.Prune(middle);
  EXPECT_EQ(index.nodes(), 4u);  // what has children stays
  index.Remove(last, drop, drop_state);
  EXPECT_EQ(dropped, 3);
  EXPECT_EQ(states.back(), 8);
  EXPECT_EQ(index.nodes(), 0u);
  EXPECT_FALSE(index.Exists(last, generation));
  EXPECT_EQ(index.Find("key", text).length, 0);
}

}  // namespace
}  // namespace tally
