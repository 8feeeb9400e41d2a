#include "engine/machine/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "engine/machine/machine.h"

namespace tally {
namespace {

struct Call {
  int thread;
  int64_t begin, end;
};

std::vector<Call> Record(Team& team, int64_t tasks, int64_t chunk) {
  std::mutex mutex;
  std::vector<Call> calls;
  auto body = [&](int thread, int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    calls.push_back({thread, begin, end});
  };
  team.Run(tasks, chunk, body);
  return calls;
}

TEST(Team, RunsEveryTaskExactlyOnce) {
  for (int threads : {1, 2, 3, 7}) {
    Team team(threads);
    ASSERT_EQ(team.threads(), threads);
    for (int64_t tasks : {0, 1, 2, 3, 6, 7, 8, 100, 1001}) {
      for (int64_t chunk : {0, 1, 2, 5, 64, 100000}) {
        std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
        auto body = [&](int, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) runs[static_cast<size_t>(i)].fetch_add(1);
        };
        team.Run(tasks, chunk, body);
        for (int64_t i = 0; i < tasks; ++i) {
          ASSERT_EQ(runs[static_cast<size_t>(i)].load(), 1)
              << "task " << i << " of " << tasks << ", chunk " << chunk << ", " << threads << " threads";
        }
      }
    }
  }
}

TEST(Team, StaticSharesAreContiguousEvenAndNeverEmpty) {
  Team team(4);
  for (int64_t tasks : {2, 4, 5, 7, 103}) {
    const std::vector<Call> calls = Record(team, tasks, 0);
    std::set<int> threads;
    for (const Call& c : calls) {
      EXPECT_LT(c.begin, c.end);
      EXPECT_GE(c.end - c.begin, tasks / 4);
      EXPECT_LE(c.end - c.begin, tasks / 4 + 1);
      EXPECT_TRUE(threads.insert(c.thread).second) << "thread " << c.thread << " was called twice";
      EXPECT_TRUE(c.thread >= 0 && c.thread < 4);
    }
    EXPECT_EQ(calls.size(), static_cast<size_t>(std::min<int64_t>(tasks, 4)));
  }
}

TEST(Team, ChunksAreAsAskedFor) {
  Team team(3);
  int64_t short_chunks = 0;
  for (const Call& c : Record(team, 100, 8)) {
    EXPECT_EQ(c.begin % 8, 0);
    if (c.end - c.begin != 8) {
      EXPECT_EQ(c.end, 100);
      ++short_chunks;
    }
  }
  EXPECT_EQ(short_chunks, 1);
}

// What a thread reads follows on in memory: its own chunks in order, from the front; then others', from their ends.
TEST(Team, AThreadTakesItsOwnChunksInOrderThenTheLastOnesOfOthers) {
  constexpr int kThreads = 3;
  constexpr int64_t kChunk = 8, kTasks = 1000, kChunks = 125;
  Team team(kThreads);
  for (int pass = 0; pass < 20; ++pass) {
    int64_t own[kThreads], taken_front[kThreads] = {}, taken_back[kThreads] = {};
    for (int t = 0; t < kThreads; ++t) own[t] = kChunks * t / kThreads;
    auto owner = [&](int64_t chunk) { return chunk < own[1] ? 0 : (chunk < own[2] ? 1 : 2); };
    bool stole[kThreads] = {};
    std::vector<int64_t> stolen[kThreads];  // by victim
    for (const Call& c : Record(team, kTasks, kChunk)) {
      const int64_t chunk = c.begin / kChunk;
      const int of = owner(chunk);
      if (of == c.thread) {
        EXPECT_FALSE(stole[c.thread]) << "thread " << c.thread << " stole before its own share was done";
        EXPECT_EQ(chunk, own[of] + taken_front[of]++);
      } else {
        stole[c.thread] = true;
        ++taken_back[of];
        stolen[of].push_back(chunk);
      }
    }
    for (int t = 0; t < kThreads; ++t) {
      const int64_t end = t + 1 < kThreads ? own[t + 1] : kChunks;
      EXPECT_EQ(taken_front[t] + taken_back[t], end - own[t]);
      for (int64_t chunk : stolen[t]) EXPECT_GE(chunk, end - taken_back[t]);
    }
  }
}

// A thread that is held up (the machine's other users) keeps nobody waiting: what is left of its share is taken.
TEST(Team, OthersTakeTheChunksOfAThreadThatIsHeldUp) {
  constexpr int kThreads = 2;
  constexpr int64_t kChunks = 40;
  for (int slow = 0; slow < kThreads; ++slow) {
    Team team(kThreads);
    std::atomic<int64_t> done{0};
    std::atomic<int> of_slow{0};
    std::atomic<bool> alone{false};
    auto body = [&](int thread, int64_t, int64_t) {
      if (thread == slow && of_slow.fetch_add(1) == 0) {  // until all else is done
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (done.load() < kChunks - 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        alone = done.load() == kChunks - 1;
      }
      done.fetch_add(1);
    };
    team.Run(kChunks, 1, body);
    EXPECT_EQ(done.load(), kChunks);
    // The slow thread may come so late that the other has done everything.
    EXPECT_TRUE(alone.load() || of_slow.load() == 0);
    EXPECT_LE(of_slow.load(), 1);
  }
}

TEST(Team, HugeCountsDoNotOverflow) {
  Team team(2);
  std::atomic<int64_t> sum{0};
  auto body = [&](int, int64_t begin, int64_t end) { sum.fetch_add(end - begin); };
  team.Run(INT64_MAX / 2, 0, body);
  EXPECT_EQ(sum.load(), INT64_MAX / 2);
  sum = 0;
  team.Run(INT64_MAX / 2, INT64_MAX / 4, body);
  EXPECT_EQ(sum.load(), INT64_MAX / 2);
  sum = 0;
  team.Run(INT64_MAX, INT64_MAX / 1000, body);
  EXPECT_EQ(sum.load(), INT64_MAX);
}

TEST(Team, OneTaskRunsOnTheCaller) {
  Team team(4);
  const std::vector<Call> calls = Record(team, 1, 0);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].thread, 0);
}

// What one run wrote, the caller and the next run read without a lock of their own: the thread sanitizer
// watches.
TEST(Team, RunsAreOrdered) {
  Team team(4);
  std::vector<int> values(1000, 0);
  for (int pass = 0; pass < 200; ++pass) {
    auto body = [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += 1;
    };
    team.Run(static_cast<int64_t>(values.size()), pass % 3, body);
    ASSERT_EQ(values[static_cast<size_t>(pass)], pass + 1);
  }
  for (int v : values) ASSERT_EQ(v, 200);
}

TEST(Team, DefaultIsTheMachinesCores) {
  Team team(0);
  EXPECT_EQ(team.threads(), AvailableCores());
  EXPECT_EQ(Team(-3).threads(), AvailableCores());
}

TEST(Team, SeveralTeamsTakeTurns) {
  Team a(2), b(3);
  for (int pass = 0; pass < 20; ++pass) {
    EXPECT_FALSE(Record(a, 10, 0).empty());
    EXPECT_FALSE(Record(b, 10, 1).empty());
  }
}

}  // namespace
}  // namespace tally
