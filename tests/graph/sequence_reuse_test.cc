// SPDX-License-Identifier: Apache-2.0
// Sequences that begin as others did: what is found, what is shared and copied, what is evicted; and that contents are those of sequences
// that share nothing.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/base/mix.h"
#include "engine/graph/sequence_store.h"

namespace tally {
namespace {

using Tokens = std::vector<int32_t>;

// A layer whose rows are numbers.
StoreLayer Numbers(int32_t window, int32_t positions = kKvBlock) {
  return {.window = window,
          .positions = positions,
          .bytes = static_cast<size_t>(positions) * sizeof(uint64_t),
          .clear = [positions](uint8_t* block, int64_t from) {
            std::memset(block + static_cast<size_t>(from) * sizeof(uint64_t), 0,
                        static_cast<size_t>(positions - from) * sizeof(uint64_t));
          }};
}

// A recurrent layer whose state is one number of all tokens so far, and whose rows are the tokens.
StoreLayer Recurrent() {
  StoreLayer layer = Numbers(0, kStateRows);
  layer.state_bytes = sizeof(uint64_t);
  return layer;
}

Tokens Text(int64_t n, int32_t begin = 0) {
  Tokens text(static_cast<size_t>(n));
  for (size_t i = 0; i < text.size(); ++i) text[i] = begin + static_cast<int32_t>(i * i % 1009);
  return text;
}

Tokens Joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A store, and for each sequence its tokens, of which every row of it is a function: of those up to its own.
class Shared {
 public:
  Shared(std::vector<StoreLayer> layers, const StoreSize& size) : layers_(std::move(layers)) {
    auto store = SequenceStore::Create(layers_, size, nullptr);
    EXPECT_TRUE(store.ok()) << store.status().message();
    store_ = std::move(store).value();
  }
  SequenceStore& store() { return *store_; }
  std::map<int32_t, Tokens>& sequences() { return sequences_; }
  uint64_t stride() const { return SystemPageBytes(); }  // of each group's blocks here

  Status Extend(int32_t s, std::span<const int32_t> tokens) {
    TALLY_RETURN_IF_ERROR(store_->Extend(s, static_cast<int64_t>(tokens.size())));
    Tokens& all = sequences_[s];
    uint64_t row = 0;
    for (const int32_t token : all) row = Next(row, token);
    const int64_t before = static_cast<int64_t>(all.size());
    for (const int32_t token : tokens) {
      all.push_back(token);
      row = Next(row, token);
      for (size_t l = 0; l < layers_.size(); ++l) {
        if (layers_[l].state_bytes == 0) *Row(l, s, static_cast<int64_t>(all.size()) - 1) = row + l;
      }
    }
    for (size_t l = 0; l < layers_.size(); ++l) {
      if (layers_[l].state_bytes > 0) Recur(l, s, before);
    }
    return {};
  }
  // A step that fails halfway.
  Status FailToExtend(int32_t s, int64_t n) {
    const int64_t before = store_->Length(s);
    TALLY_RETURN_IF_ERROR(store_->Extend(s, n));
    for (size_t l = 0; l < layers_.size(); ++l) {
      if (layers_[l].state_bytes == 0) continue;
      const StateTable& t = store_->States(static_cast<int32_t>(l))[static_cast<size_t>(s)];
      std::memset(t.to, 0xee, sizeof(uint64_t));
      if (t.mid != nullptr) std::memset(t.mid, 0xee, sizeof(uint64_t));
      break;
    }
    const Status back = store_->Truncate(s, before);
    EXPECT_TRUE(back.ok()) << back.message();
    return {};
  }
  // In pieces, and remembers each.
  void Run(int32_t s, std::string_view key, const Tokens& text, size_t piece = 100) {
    for (size_t at = static_cast<size_t>(store_->Length(s)); at < text.size(); at += piece) {
      const Status status = Extend(s, std::span(text).subspan(at, std::min(piece, text.size() - at)));
      ASSERT_TRUE(status.ok()) << status.message();
      store_->Remember(s, key, sequences_[s], 2);
    }
  }
  // For all but the last token.
  Result<int32_t> New(std::string_view key, const Tokens& text) {
    const std::span<const int32_t> tokens = std::span(text).first(text.size() - 1);
    const int64_t expected = store_->Reusable(key, tokens);
    TALLY_ASSIGN_OR_RETURN(const int32_t s, store_->NewSequenceFor(key, tokens));
    EXPECT_EQ(store_->Length(s), expected);
    EXPECT_LT(store_->Length(s), static_cast<int64_t>(text.size()));
    sequences_[s] = {text.begin(), text.begin() + store_->Length(s)};
    return s;
  }
  void Free(int32_t s) {
    store_->Free(s);
    sequences_.erase(s);
  }
  // What the next position sees, in every layer; and the counts.
  void Check(int32_t s) {
    const Tokens& all = sequences_.at(s);
    const int64_t length = static_cast<int64_t>(all.size());
    ASSERT_EQ(store_->Length(s), length);
    uint64_t row = 0;
    std::vector<uint64_t> rows;
    for (const int32_t token : all) rows.push_back(row = Next(row, token));
    for (size_t l = 0; l < layers_.size(); ++l) {
      const int64_t window = layers_[l].window;
      if (layers_[l].state_bytes > 0) continue;  // checked by the next step
      for (int64_t at = window > 0 ? std::max<int64_t>(0, length - window + 1) : 0; at < length; ++at) {
        const uint64_t* found = Row(l, s, at);
        ASSERT_NE(found, nullptr) << "sequence " << s << ", layer " << l << ", position " << at << " of " << length;
        ASSERT_EQ(*found, rows[static_cast<size_t>(at)] + l) << "sequence " << s << ", layer " << l << ", position " << at;
      }
    }
  }
  void CheckAll() {
    for (const auto& [s, tokens] : sequences_) ASSERT_NO_FATAL_FAILURE(Check(s));
    const Status verified = store_->Verify();
    ASSERT_TRUE(verified.ok()) << verified.message();
  }
  const uint8_t* BlockOf(size_t layer, int32_t s, int64_t block) {
    return store_->Tables(static_cast<int32_t>(layer))[static_cast<size_t>(s)].blocks[block];
  }

 private:
  static uint64_t Next(uint64_t row, int32_t token) { return SplitMix64(row ^ static_cast<uint64_t>(token)); }
  uint64_t* Row(size_t layer, int32_t s, int64_t at) {
    const KvTable table = store_->Tables(static_cast<int32_t>(layer))[static_cast<size_t>(s)];
    const int64_t positions = layers_[layer].positions;
    if (at / positions >= table.count || table.blocks[at / positions] == nullptr) return nullptr;
    return reinterpret_cast<uint64_t*>(table.blocks[at / positions]) + at % positions;
  }

  // What a recurrent layer does in a step from position `before` on. It finds its state, and no position's row is another's.
  void Recur(size_t layer, int32_t s, int64_t before) {
    const Tokens& all = sequences_.at(s);
    const int64_t end = static_cast<int64_t>(all.size());
    const StateTable& t = store_->States(static_cast<int32_t>(layer))[static_cast<size_t>(s)];
    ASSERT_LE(t.at, before);
    ASSERT_TRUE(t.from != t.to || t.at == before);
    const auto row_of = [&](int64_t at) {
      uint8_t* const block = at / kStateRows < t.count ? t.rows[at / kStateRows] : nullptr;
      return block == nullptr ? nullptr : reinterpret_cast<uint64_t*>(block) + at % kStateRows;
    };
    uint64_t want = layer, state = layer;
    for (int64_t at = 0; at < t.at; ++at) want = Next(want, all[static_cast<size_t>(at)]);
    if (t.from != nullptr) std::memcpy(&state, t.from, sizeof state);
    ASSERT_EQ(state, want) << "sequence " << s << ", layer " << layer << ", state after " << t.at << " of " << before;
    for (int64_t at = t.at; at < before; ++at, ++replayed_) {
      ASSERT_NE(row_of(at), nullptr) << "row " << at << " since " << t.at << ", step from " << before;
      ASSERT_EQ(*row_of(at), static_cast<uint64_t>(all[static_cast<size_t>(at)]) + layer) << "row " << at;
      state = Next(state, all[static_cast<size_t>(at)]);
    }
    for (int64_t at = before; at < end; ++at) {
      if (uint64_t* const row = row_of(at)) *row = static_cast<uint64_t>(all[static_cast<size_t>(at)]) + layer;
      state = Next(state, all[static_cast<size_t>(at)]);
      if (t.mid != nullptr && t.mid_at == at + 1) std::memcpy(t.mid, &state, sizeof state);
    }
    ASSERT_TRUE(t.mid == nullptr || (t.mid_at > before && t.mid_at < end));
    std::memcpy(t.to, &state, sizeof state);
  }

 public:
  int replayed() const { return replayed_; }

 private:
  int replayed_ = 0;
  std::vector<StoreLayer> layers_;
  std::unique_ptr<SequenceStore> store_;
  std::map<int32_t, Tokens> sequences_;
};

// The second of two requests reuses what the first has run, while that is going on and after it has ended.
TEST(SequenceReuse, ThePrefixOfALiveSequenceIsFound) {
  Shared m({Numbers(0), Numbers(128), Numbers(3, 32)}, {8192, 4, 512, 0});
  const Tokens prefix = Text(4000), a = Joined(prefix, Text(300, 5000)), b = Joined(prefix, Text(300, 6000));
  const int32_t first = *m.New("k", a);
  EXPECT_EQ(m.store().Length(first), 0);
  m.Run(first, "k", Tokens(a.begin(), a.begin() + 3000), 512);
  EXPECT_EQ(m.store().Reusable("k", b), 3000);
  EXPECT_EQ(m.store().Reusable("another", b), 0);
  m.Run(first, "k", a, 512);
  const int32_t second = *m.New("k", b);
  EXPECT_EQ(m.store().Length(second), 4000);
  EXPECT_EQ(m.BlockOf(0, second, 30), m.BlockOf(0, first, 30));
  EXPECT_NE(m.BlockOf(0, second, 31), m.BlockOf(0, first, 31));  // the copy of a partial one
  m.Run(second, "k", b, 512);
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
  m.Free(first);
  m.Free(second);
  EXPECT_EQ(m.store().BytesInUse(), 0u);
  EXPECT_GT(m.store().BytesCached(), 0u);
  const int32_t third = *m.New("k", a);
  EXPECT_EQ(m.store().Length(third), 4299);  // all but the last token
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
  EXPECT_EQ(m.store().Reusable("k", Tokens{9, 9}), 0);
  EXPECT_EQ(m.store().Reusable("k", Tokens()), 0);
}

// The next turn of a conversation goes on in the last block itself; a second one at the same time gets a copy.
TEST(SequenceReuse, TheNextTurnGoesOnWhereTheLastEnded) {
  Shared m({Numbers(0), Numbers(100)}, {2048, 3, 128, 0});
  const Tokens turn = Text(200), next = Joined(turn, Text(100, 77));
  const int32_t s = *m.New("", turn);
  m.Run(s, "", turn);
  const uint8_t* const last = m.BlockOf(0, s, 1);
  m.Free(s);
  const int32_t one = *m.New("", next), two = *m.New("", next);
  EXPECT_EQ(m.store().Length(one), 200);
  EXPECT_EQ(m.store().Length(two), 200);
  EXPECT_EQ(m.BlockOf(0, one, 1), last);
  EXPECT_NE(m.BlockOf(0, two, 1), last);
  EXPECT_EQ(m.BlockOf(0, two, 0), m.BlockOf(0, one, 0));
  m.Run(one, "", next);
  m.Run(two, "", Joined(turn, Text(100, 99)));
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
}

// One that goes on otherwise in the middle of a block that nobody uses gets a copy, and the rest is still found.
TEST(SequenceReuse, ABranchLeavesTheRestAsItWas) {
  Shared m({Numbers(0), Numbers(100)}, {2048, 3, 128, 0});
  const Tokens text = Text(400), branch = Joined(Tokens(text.begin(), text.begin() + 170), Text(100, 77));
  const int32_t s = *m.New("", text);
  m.Run(s, "", text);
  m.Free(s);
  const int32_t other = *m.New("", branch);
  EXPECT_EQ(m.store().Length(other), 170);
  m.Run(other, "", branch);
  EXPECT_EQ(m.store().Reusable("", text), 400);
  EXPECT_EQ(m.store().Reusable("", branch), 270);
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
}

// Two that ran the same tokens apart: the second takes the blocks of the first.
TEST(SequenceReuse, EqualBlocksAreKeptOnce) {
  Shared m({Numbers(0)}, {2048, 2, 512, 0});
  const Tokens text = Text(300);
  const int32_t one = *m.New("", text), two = *m.New("", text);
  ASSERT_TRUE(m.Extend(one, text).ok());
  ASSERT_TRUE(m.Extend(two, text).ok());
  EXPECT_EQ(m.store().BytesInUse(), 6 * m.stride());
  m.store().Remember(one, "", text, 2);
  m.store().Remember(two, "", text, 2);
  EXPECT_EQ(m.store().BytesInUse(), 4 * m.stride());  // of the partial ones each has its own
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
}

TEST(SequenceReuse, ChainsAreEvictedFromTheirEndLeastRecentlyUsedFirst) {
  const uint64_t page = SystemPageBytes();
  Shared m({Numbers(0)}, {2048, 4, 256, 10 * page});
  const Tokens a = Text(4 * 128 + 1), b = Text(4 * 128 + 1, 3000), c = Text(5 * 128, 9000);
  for (const Tokens* text : {&a, &b}) {
    const int32_t s = *m.New("", *text);
    m.Run(s, "", Tokens(text->begin(), text->end() - 1));
    m.Free(s);
  }
  EXPECT_EQ(m.store().BytesCached(), 8 * page);
  m.Free(*m.New("", a));  // used again
  const int32_t s = *m.store().NewSequence();
  m.sequences()[s];
  const auto grow = [&](size_t at, size_t n) { ASSERT_TRUE(m.Extend(s, std::span(c).subspan(at, n)).ok()); };
  grow(0, 256);
  EXPECT_EQ(m.store().Reusable("", b), 512);
  grow(256, 128);
  EXPECT_EQ(m.store().Reusable("", b), 384);
  EXPECT_EQ(m.store().Reusable("", a), 512);
  grow(384, 256);
  EXPECT_EQ(m.store().Reusable("", b), 128);
  EXPECT_EQ(m.store().Reusable("", a), 512);
  // What is held is never evicted, and what is not gives way.
  const int32_t holder = *m.New("", a);
  ASSERT_TRUE(m.Extend(s, Text(128, 4)).ok());
  EXPECT_EQ(m.store().Reusable("", b), 0);
  const Status full = m.Extend(s, Text(1, 4));
  EXPECT_EQ(full.code(), StatusCode::kNoRoom);
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
  m.Free(holder);
  ASSERT_TRUE(m.Extend(s, Text(4 * 128, 4)).ok());
  EXPECT_EQ(m.store().Reusable("", a), 0);
  EXPECT_EQ(m.store().BytesCached(), 0u);
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
}

// Blocks that a window has left are cached as well, and evicted alone: a hit needs those of its own window only.
TEST(SequenceReuse, AHitIsAsLongAsEveryGroupHas) {
  const uint64_t page = SystemPageBytes();
  Shared m({Numbers(0), Numbers(128)}, {4096, 3, 128, 24 * page});
  const Tokens a = Text(10 * 128 + 60), other = Text(20 * 128, 5000);
  const int32_t s = *m.New("", a);
  m.Run(s, "", a, 128);
  EXPECT_EQ(m.store().BytesCached(), 8 * page);  // the last three of the window are held
  for (int64_t n : {1, 127, 128, 200, 640, 1000}) {
    EXPECT_EQ(m.store().Reusable("", std::span(a).first(static_cast<size_t>(n))), n) << n;
  }
  // 22 blocks are there, and the next ones evict the oldest of the window.
  const int32_t t = *m.store().NewSequence();
  m.sequences()[t];
  ASSERT_TRUE(m.Extend(t, std::span(other).first(4 * 128)).ok());
  EXPECT_EQ(m.store().BytesCached(), 2 * page);
  EXPECT_EQ(m.store().Reusable("", std::span(a).first(700)), 0);
  EXPECT_EQ(m.store().Reusable("", std::span(a).first(8 * 128)), 8 * 128);  // blocks 6 and 7 of the window are left
  EXPECT_EQ(m.store().Reusable("", a), 10 * 128 + 60);
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
  // One that runs the beginning again gives back what was evicted.
  m.Free(t);
  const int32_t again = *m.New("", Tokens(a.begin(), a.begin() + 500));
  EXPECT_EQ(m.store().Length(again), 0);
  m.Run(again, "", Tokens(a.begin(), a.begin() + 500), 128);
  EXPECT_EQ(m.BlockOf(0, again, 2), m.BlockOf(0, s, 2));
  EXPECT_EQ(m.store().Reusable("", std::span(a).first(384)), 384);
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
}

// A sequence that is rolled back and goes on otherwise must not change what others find.
TEST(SequenceReuse, RollingBackBelowWhatIsRemembered) {
  Shared m({Numbers(0), Numbers(50, 32)}, {2048, 3, 256, 0});
  const Tokens text = Text(250), other = Joined(Tokens(text.begin(), text.begin() + 230), Text(20, 700));
  const int32_t s = *m.New("", text);
  m.Run(s, "", text);
  ASSERT_TRUE(m.store().Truncate(s, 230).ok());
  m.sequences()[s].resize(230);
  EXPECT_EQ(m.store().Reusable("", text), 250);  // nothing is overwritten yet
  ASSERT_TRUE(m.Extend(s, std::span(other).subspan(230)).ok());
  EXPECT_LT(m.store().Reusable("", text), 230);
  const int32_t found = *m.New("", text);
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
  m.store().Remember(s, "", m.sequences()[s], 2);
  EXPECT_EQ(m.store().Reusable("", other), 250);
  // Held by another, it is copied instead.
  m.Run(found, "", text);
  const int32_t fork = *m.store().Fork(found, 250);
  m.sequences()[fork] = m.sequences()[found];
  ASSERT_TRUE(m.store().Truncate(found, 200).ok());
  m.sequences()[found].resize(200);
  ASSERT_TRUE(m.Extend(found, Text(30, 800)).ok());
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
}

// The states that a long step and the prompt's end leave behind are found, and a conversation goes on from them.
TEST(SequenceReuse, StatesAreFoundWhereTheyWereKept) {
  Shared m({Numbers(0), Recurrent(), Recurrent()}, {8192, 4, 512, 0});
  const Tokens prompt = Text(1000);
  const int32_t s = *m.store().NewSequence();
  ASSERT_TRUE(m.Extend(s, std::span(prompt).first(512)).ok());
  m.store().Remember(s, "", m.sequences()[s], 2);
  ASSERT_TRUE(m.Extend(s, std::span(prompt).subspan(512)).ok());
  m.store().Remember(s, "", m.sequences()[s], 2);
  for (int32_t token = 0; token < 100; ++token) {
    ASSERT_TRUE(m.Extend(s, std::vector{token}).ok());
    m.store().Remember(s, "", m.sequences()[s], 0);
  }
  m.store().Remember(s, "", m.sequences()[s], 2);
  const Tokens whole = m.sequences()[s];
  EXPECT_EQ(m.store().Reusable("", whole), 1100);
  EXPECT_EQ(m.store().Reusable("", std::span(whole).first(1099)), 1088);  // the state before the running one
  EXPECT_EQ(m.store().Reusable("", std::span(whole).first(1080)), 1000);  // the prompt
  EXPECT_EQ(m.store().Reusable("", std::span(whole).first(999)), 992);    // and shortly before its end
  EXPECT_EQ(m.store().Reusable("", std::span(whole).first(991)), 512);
  EXPECT_EQ(m.store().Reusable("", std::span(whole).first(511)), 480);
  EXPECT_EQ(m.store().Reusable("", std::span(whole).first(479)), 0);
  // A sequence that starts from a state goes on from it, and cannot come back to before it.
  const int32_t next = *m.New("", Joined({whole.begin(), whole.begin() + 1000}, Text(300, 7)));
  EXPECT_EQ(m.store().Length(next), 1000);
  ASSERT_TRUE(m.Extend(next, Text(300, 7)).ok());
  EXPECT_FALSE(m.store().Truncate(next, 999).ok());
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
  // Both go on, each in memory of its own.
  ASSERT_TRUE(m.Extend(s, Text(5)).ok());
  ASSERT_TRUE(m.Extend(next, Text(5)).ok());
}

// In decoding, the last 32 positions can be given up, and a sequence holds at most three states and two blocks of rows. One that starts
// from a state comes to hold the same.
TEST(SequenceReuse, RecurrentLayersGoBack) {
  Shared m({Recurrent()}, {8192, 2, 512, 0});
  const int32_t s = *m.store().NewSequence();
  m.sequences()[s] = {};
  const uint64_t page = SystemPageBytes();
  for (int32_t n = 1; n <= 300; ++n) {
    ASSERT_TRUE(m.Extend(s, std::vector{n}).ok());
    ASSERT_LE(m.store().BytesInUse(), 5 * page) << n;
    ASSERT_LE(m.store().BytesInUse(), m.store().BytesFor(n)) << n;
    if (n % 7 == 0) {
      const int64_t back = std::min(n, 32);
      const Tokens all = m.sequences()[s];
      ASSERT_TRUE(m.store().Truncate(s, n - back).ok()) << n;
      m.sequences()[s].resize(static_cast<size_t>(n - back));
      const Status again = m.Extend(s, std::span(all).last(static_cast<size_t>(back)));
      ASSERT_TRUE(again.ok()) << again.message();
    }
  }
  EXPECT_GT(m.replayed(), 100);
  ASSERT_NO_FATAL_FAILURE(m.CheckAll());
}

// All that can be done, in any order, with too little memory. Sequences begin as others do, or have done.
TEST(SequenceReuse, RandomUseIsThatOfSequencesThatShareNothing) {
  constexpr uint32_t kSeed = 17;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  constexpr int32_t kSequences = 6;
  const uint64_t page = SystemPageBytes();
  int hits = 0, partial = 0, full = 0, evicted = 0, gone = 0, done = 0;
  // The last one has windows alone.
  const std::vector<std::vector<StoreLayer>> kinds = {
      {Numbers(0), Numbers(50), Numbers(0), Numbers(200), Numbers(3, 32), Numbers(90, 64)},
      {Numbers(0)},
      {Numbers(130), Numbers(40, 32)},
      {Numbers(0), Recurrent(), Numbers(60), Recurrent()},
      {Recurrent()}};
  for (const std::vector<StoreLayer>& layers : kinds) {
    const StoreSize size{1000, kSequences, 96, (layers.size() > 3 ? 90 : 30) * page};
    Shared m(layers, size);
    std::vector<Tokens> texts = {Text(1)};
    std::map<int32_t, std::string> keys;
    for (int step = 0; step < 4000; ++step, ++done) {
      const uint32_t what = random() % 32;
      const uint64_t cached = m.store().BytesCached();
      Status status;
      int32_t s = -1;
      if (what < 5 || m.sequences().empty()) {
        Tokens text = texts[random() % texts.size()];
        if (random() % 2 == 0) text.resize(1 + random() % text.size());
        for (size_t n = random() % 150; n > 0 && text.size() < 990; --n) text.push_back(static_cast<int32_t>(random() % 3));
        (texts.size() < 12 ? texts.emplace_back() : texts[random() % texts.size()]) = text;
        const std::string key = random() % 8 == 0 ? "b" : "a";
        const Result<int32_t> made = m.New(key, text);
        ASSERT_TRUE(made.ok() || m.sequences().size() == kSequences) << made.status().message();
        status = made.status();
        if (made.ok()) {
          s = *made;
          keys[s] = key;
          hits += m.store().Length(s) > 0 ? 1 : 0;
          partial += m.store().Length(s) % kKvBlock != 0 ? 1 : 0;
        }
      } else {
        auto picked = m.sequences().begin();
        std::advance(picked, random() % m.sequences().size());
        s = picked->first;
        Tokens& tokens = picked->second;
        const int64_t length = static_cast<int64_t>(tokens.size());
        if (what < 9) {
          if (random() % 2 == 0) m.store().Remember(s, keys[s], tokens, 2);
          m.Free(s);
          s = -1;
        } else if (what < 11) {
          const int64_t keep =
              random() % 2 == 0 ? static_cast<int64_t>(random() % (length + 1)) : std::max<int64_t>(0, length - random() % 40);
          status = m.store().Truncate(s, keep);
          if (status.ok()) tokens.resize(static_cast<size_t>(keep));
        } else if (what < 14) {
          const int64_t keep =
              std::max<int64_t>(0, length - static_cast<int64_t>(random() % 3 == 0 ? random() % (length + 1) : random() % 60));
          const Result<int32_t> fork = what == 11 ? m.store().Copy(s) : m.store().Fork(s, keep);
          status = fork.status();
          if (fork.ok()) {
            const Tokens all(tokens.begin(), tokens.begin() + (what == 11 ? length : keep));
            keys[*fork] = keys[s];
            m.sequences()[*fork] = all;
          }
        } else if (what < 15) {
          std::vector<uint8_t> bytes;
          ASSERT_TRUE(m.store()
                          .Export(s,
                                  [&](std::span<const uint8_t> out) {
                                    bytes.insert(bytes.end(), out.begin(), out.end());
                                    return Status();
                                  })
                          .ok());
          size_t at = 0;
          const Result<int32_t> same = m.store().Import([&](std::span<uint8_t> in) {
            std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), in.size(), in.begin());
            at += in.size();
            return Status();
          });
          status = same.status();
          if (same.ok()) {
            const Tokens all = tokens;
            keys[*same] = keys[s];
            m.sequences()[*same] = all;
          }
        } else if (what < 21) {
          m.store().Remember(s, keys[s],
                             std::span(tokens).first(random() % 4 == 0 ? random() % (tokens.size() + 1) : tokens.size()), true);
        } else {
          // As a text goes on, or otherwise.
          const Tokens& text = texts[random() % texts.size()];
          Tokens more;
          for (size_t n = 1 + random() % 96; n > 0; --n) {
            const size_t at = tokens.size() + more.size();
            more.push_back(at < text.size() ? text[at] : static_cast<int32_t>(random() % 3));
          }
          if (random() % 16 == 0) status = m.FailToExtend(s, static_cast<int64_t>(more.size()));
          if (status.ok()) status = m.Extend(s, more);
          if (status.ok() && random() % 2 == 0) m.store().Remember(s, keys[s], tokens, 2);
        }
      }
      if (!status.ok()) {
        full += status.code() == StatusCode::kNoRoom ? 1 : 0;
        gone += status.message().find("given up what") != std::string::npos ? 1 : 0;
        ASSERT_TRUE(status.code() == StatusCode::kNoRoom || status.message().find("given up what") != std::string::npos)
            << status.message();
      }
      evicted += m.store().BytesCached() < cached ? 1 : 0;
      ASSERT_LE(m.store().BytesInUse() + m.store().BytesCached(), m.store().Budget());
      if (s >= 0 && m.sequences().contains(s)) m.Check(s);
      if (step % 8 == 0) m.CheckAll();
      const Status verified = m.store().Verify();
      ASSERT_TRUE(verified.ok()) << verified.message() << ", step " << step;
      if (HasFatalFailure()) FAIL() << "step " << step;
    }
    // Nothing is left but what the index keeps, and that gives way.
    while (!m.sequences().empty()) m.Free(m.sequences().begin()->first);
    EXPECT_EQ(m.store().BytesInUse(), 0u);
    const int32_t s = *m.store().NewSequence();
    m.sequences()[s];
    while (m.Extend(s, Text(64)).ok()) {
    }
    ASSERT_NO_FATAL_FAILURE(m.CheckAll());
  }
  // Each of these was met often enough to mean something.
  EXPECT_GT(hits, 200);
  EXPECT_GT(partial, 100);
  EXPECT_GT(full, 200);
  EXPECT_GT(evicted, 200);
  EXPECT_GT(gone, 50);
  EXPECT_EQ(done, 20000);
}

}  // namespace
}  // namespace tally
