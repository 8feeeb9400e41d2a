// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/parallel.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/machine/machine.h"
#include "tests/support/sanitizers.h"

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
    const char* const limit = std::getenv("OMP_THREAD_LIMIT");  // parallel_few_threads; a team on plain threads has none
    if (team.threads() != threads) {
      ASSERT_NE(limit, nullptr);
      ASSERT_EQ(team.threads(), std::min(threads, std::atoi(limit)));
    }
    ASSERT_EQ(Record(team, team.threads(), 0).size(), static_cast<size_t>(team.threads())) << "as many as it says";
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

TEST(Team, SharesAreContiguousEvenAndNeverEmpty) {
  Team team(4);
  for (int64_t tasks : {2, 4, 5, 7, 103}) {
    const std::vector<Call> calls = Record(team, tasks, 0);
    for (const Call& c : calls) {
      EXPECT_LT(c.begin, c.end);
      EXPECT_GE(c.end - c.begin, tasks / 4);
      EXPECT_LE(c.end - c.begin, tasks / 4 + 1);
      EXPECT_TRUE(c.thread >= 0 && c.thread < 4);
    }
    EXPECT_EQ(calls.size(), static_cast<size_t>(std::min<int64_t>(tasks, 4)));
  }
}

TEST(Team, EachThreadOnce) {
  for (int threads : {1, 2, 7}) {
    Team team(threads);
    std::mutex mutex;
    std::multiset<int> called;
    auto body = [&](int thread, int64_t begin, int64_t end) {
      std::lock_guard lock(mutex);
      EXPECT_EQ(begin, thread);
      EXPECT_EQ(end, thread + 1);
      called.insert(thread);
    };
    team.RunEach(body);
    EXPECT_EQ(called.size(), static_cast<size_t>(team.threads()));
    EXPECT_EQ(std::set<int>(called.begin(), called.end()).size(), called.size());
  }
}

// Steps of several callers do not mix.
TEST(Team, TurnsAreOfOneCallerAtATime) {
  std::atomic<int> inside{0};
  std::atomic<bool> alone{true};
  auto step = [&] {
    Team team(3);
    for (int i = 0; i < 100; ++i) {
      const Team::Turn turn(team);
      if (inside.fetch_add(1) != 0) alone = false;
      auto body = [](int, int64_t, int64_t) {};
      team.Run(20, 1, body);
      team.Run(20, 0, body);
      inside.fetch_sub(1);
    }
  };
  std::thread other(step), third(step);
  step();
  other.join();
  third.join();
  EXPECT_TRUE(alone);
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

TEST(Team, EveryChunkIsTakenOnceUnderContention) {
  for (int threads : {2, 5, 16}) {  // more than there are cores: stopped between any two instructions
    Team team(threads);
    for (int pass = 0; pass < 300; ++pass) {
      const int64_t tasks = 2 + pass * 7 % 1500, chunk = 1 + pass % 4;
      std::vector<std::atomic<int>> taken(static_cast<size_t>(tasks));
      std::atomic<bool> fits{true};
      auto body = [&](int thread, int64_t begin, int64_t end) {
        if (thread < 0 || thread >= threads || begin % chunk != 0 || end != std::min(begin + chunk, tasks)) fits = false;
        for (int64_t i = begin; i < end; ++i) taken[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
        if ((begin / chunk + thread) % 64 == 0) std::this_thread::yield();
      };
      team.Run(tasks, chunk, body);
      ASSERT_TRUE(fits.load());
      for (const std::atomic<int>& t : taken) ASSERT_EQ(t.load(), 1);
    }
  }
}

TEST(Team, FewerChunksThanThreads) {
  Team team(7);
  for (int64_t tasks : {2, 3, 6, 7, 8}) {
    for (int64_t chunk : {int64_t{1}, tasks - 1, tasks, tasks + 1, INT64_MAX}) {
      std::vector<Call> calls = Record(team, tasks, chunk);
      std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
      int64_t next = 0;
      for (const Call& c : calls) {
        ASSERT_EQ(c.begin, next);
        ASSERT_EQ(c.end - c.begin, std::min(chunk, tasks - c.begin));
        next = c.end;
      }
      ASSERT_EQ(next, tasks);
    }
  }
}

// What a thread reads follows on in memory, and a thread that is held up (the machine's other users) keeps nobody waiting: all
// wait in their first chunk until each has one, then thread 1 goes on alone and takes its own chunks from the front, then those
// of others from the end.
TEST(Team, OwnChunksAscendStolenOnesDescend) {
  constexpr int kThreads = 4;
  constexpr int64_t kChunks = 40, kShare = kChunks / kThreads;
  Team team(kThreads);
  std::atomic<int> arrived{0};
  std::atomic<int64_t> done{0};
  std::array<std::vector<int64_t>, kThreads> taken;
  auto body = [&](int thread, int64_t begin, int64_t) {
    std::vector<int64_t>& mine = taken[static_cast<size_t>(thread)];
    mine.push_back(begin);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto until = [&](auto ready) {
      while (!ready() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    };
    if (mine.size() == 1) {
      arrived.fetch_add(1);
      until([&] { return arrived.load() == kThreads; });
      if (thread != 1) until([&] { return done.load() >= kChunks - kThreads + 1; });
    }
    done.fetch_add(1);
  };
  team.Run(kChunks, 1, body);
  std::vector<int64_t> expected;
  for (int64_t c = kShare; c < 2 * kShare; ++c) expected.push_back(c);
  for (int64_t victim : {2, 3, 0}) {
    for (int64_t c = (victim + 1) * kShare - 1; c > victim * kShare; --c) expected.push_back(c);
  }
  EXPECT_EQ(taken[1], expected);
  for (int t : {0, 2, 3}) EXPECT_EQ(taken[static_cast<size_t>(t)], std::vector<int64_t>{t * kShare});
}

TEST(Team, TwoTeamsInTwoThreads) {
  std::array<std::atomic<int64_t>, 2> sums{};
  auto work = [&](size_t which) {
    Team team(3);
    auto body = [&](int, int64_t begin, int64_t end) { sums[which].fetch_add(end - begin); };
    for (int pass = 0; pass < 200; ++pass) team.Run(100, 1 + pass % 3, body);
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  for (const std::atomic<int64_t>& s : sums) EXPECT_EQ(s.load(), 200 * 100);
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

// While it lives, the process may map no more than `bytes` beyond what it has.
class LittleAddressSpace {
 public:
  explicit LittleAddressSpace(uint64_t bytes) {
    uint64_t kib = 0;
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmSize:")) kib = std::stoull(line.substr(7));
    }
    EXPECT_GT(kib, 0u);
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    rlimit less = before_;
    less.rlim_cur = std::min<rlim_t>(less.rlim_cur, kib * 1024 + bytes);
    EXPECT_EQ(setrlimit(RLIMIT_AS, &less), 0);
  }
  LittleAddressSpace(const LittleAddressSpace&) = delete;
  LittleAddressSpace& operator=(const LittleAddressSpace&) = delete;
  ~LittleAddressSpace() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }

 private:
  rlimit before_ = {};
};
constexpr uint64_t kFewStacks = uint64_t{48} << 20;  // six of 8 MiB, and five more that glibc may have kept

void ExpectEveryTaskOnce(Team& team) {
  for (int64_t tasks : {1, 2, 100, 1001}) {
    for (int64_t chunk : {0, 1, 7}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      auto body = [&](int, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) runs[static_cast<size_t>(i)].fetch_add(1);
      };
      team.Run(tasks, chunk, body);
      for (const std::atomic<int>& r : runs) ASSERT_EQ(r.load(), 1) << tasks << " tasks, chunk " << chunk;
    }
  }
}

TEST(Team, ThreadsThatTheSystemRefuses) {
#if defined(TALLY_SHADOW_MEMORY)
  GTEST_SKIP() << "the sanitizer's own memory does not fit";
#endif
  std::thread caller([] {
    {
      const LittleAddressSpace little(kFewStacks);
      Team team(512);
      ASSERT_FALSE(team.status().ok());
      EXPECT_EQ(team.status().code(), StatusCode::kNoRoom);
      EXPECT_NE(team.status().message().find("refuses to start 512 threads"), std::string::npos) << team.status().message();
      EXPECT_EQ(team.threads(), 1);
      ExpectEveryTaskOnce(team);
    }
    Team team(5);  // nothing has stayed of it
    EXPECT_TRUE(team.status().ok()) << team.status().message();
    EXPECT_EQ(team.threads(), 5);
    ExpectEveryTaskOnce(team);
  });
  caller.join();
}

// A team that was given its threads has them for every caller.
TEST(Team, ACallerThatIsRefusedTheThreadsOfATeam) {
#if defined(TALLY_SHADOW_MEMORY)
  GTEST_SKIP() << "the sanitizer's own memory does not fit";
#endif
  Team team(64);
  ASSERT_TRUE(team.status().ok()) << team.status().message();
  ASSERT_EQ(team.threads(), 64);
  std::thread caller([&] {
    {
      const LittleAddressSpace little(kFewStacks);
      ExpectEveryTaskOnce(team);
    }
    ExpectEveryTaskOnce(team);
    EXPECT_EQ(Record(team, 64, 0).size(), 64u);  // where nothing is refused, they are all there
  });
  caller.join();
  EXPECT_TRUE(team.status().ok());
  EXPECT_EQ(Record(team, 64, 0).size(), 64u);
}

// Teams of any size have the same helpers.
TEST(Team, ThreadsAreKept) {
  Team a(2), b(3);
  std::mutex mutex;
  std::set<pid_t> ids;
  auto body = [&](int, int64_t, int64_t) {
    std::lock_guard lock(mutex);
    ids.insert(static_cast<pid_t>(syscall(SYS_gettid)));
  };
  for (int pass = 0; pass < 50; ++pass) {
    a.Run(2, 0, body);
    b.Run(2, 0, body);
  }
  EXPECT_LE(ids.size(), 3u);
}

TEST(Team, SeveralTeamsTakeTurns) {
  Team a(2), b(3);
  for (int pass = 0; pass < 20; ++pass) {
    EXPECT_FALSE(Record(a, 10, 0).empty());
    EXPECT_FALSE(Record(b, 10, 1).empty());
  }
}

TEST(RunBeside, ReturnsWhenAllHaveEnded) {
  for (const int threads : {0, 1, 3}) {
    std::atomic<int> worked{0};
    int told = -1;
    RunBeside(
        threads, [&] { ++worked; }, [&](int started) { told = started; });
    EXPECT_EQ(worked.load(), told);
    EXPECT_EQ(told, threads);
  }
}

}  // namespace
}  // namespace tally
