// SPDX-License-Identifier: Apache-2.0
// Pages touched by several threads, exactly those; and what is no touch of a watched page stays what it was.
#include "engine/machine/page_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "engine/machine/machine.h"

namespace tally {
namespace {

struct Watched {
  AnonymousMemory memory;
  std::unique_ptr<PageWatch> watch;
  size_t page = SystemPageBytes();

  explicit Watched(size_t pages) {
    auto allocated = AnonymousMemory::Allocate(pages * page, /*huge=*/false);
    EXPECT_TRUE(allocated.ok());
    memory = std::move(allocated).value();
    memory.RefuseHugePages();
    auto made = PageWatch::New(memory.data(), memory.size());
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) watch = std::move(made).value();
  }
  uint8_t Read(size_t at) const { return static_cast<const volatile uint8_t*>(memory.data())[at]; }
};

void Touch(const Watched& w, const std::vector<size_t>& pages) {
  for (const size_t p : pages) (void)w.Read(p * w.page + p % w.page);
}

TEST(PageWatch, SeesJustTheTouchedPagesAgainAndAgain) {
  Watched w(64);
  ASSERT_NE(w.watch, nullptr);
  EXPECT_EQ(w.watch->page_bytes(), w.page);
  for (size_t i = 0; i < w.memory.size(); ++i) w.memory.data()[i] = static_cast<uint8_t>(i / w.page + 1);
  for (const std::vector<size_t>& pages :
       {std::vector<size_t>{0, 3, 4, 5, 63}, std::vector<size_t>{}, std::vector<size_t>{1, 2, 31, 62}}) {
    ASSERT_TRUE(w.watch->Start().ok());
    for (const size_t p : pages) EXPECT_EQ(w.Read(p * w.page + w.page - 1), p + 1);
    const auto touched = w.watch->Stop();
    ASSERT_TRUE(touched.ok()) << touched.status().message();
    std::vector<bool> expected(64);
    for (const size_t p : pages) expected[p] = true;
    EXPECT_EQ(*touched, expected);
  }
  EXPECT_EQ(w.Read(17 * w.page), 18);  // open, and nobody counts
}

TEST(PageWatch, AReadAcrossTwoPagesTouchesBoth) {
  Watched w(8);
  ASSERT_TRUE(w.watch->Start().ok());
  uint64_t word = 0;
  std::memcpy(&word, w.memory.data() + 3 * w.page - 4, sizeof(word));
  const auto touched = w.watch->Stop();
  ASSERT_TRUE(touched.ok());
  EXPECT_EQ(word, 0u);
  EXPECT_EQ(*touched, (std::vector<bool>{false, false, true, true, false, false, false, false}));
}

TEST(PageWatch, ManyThreadsOnPagesOfTheirOwnAndOnTheSame) {
  constexpr size_t kPages = 600, kThreads = 8;
  Watched w(kPages);
  ASSERT_TRUE(w.watch->Start().ok());
  std::vector<bool> expected(kPages);
  std::vector<std::vector<size_t>> of_thread(kThreads);
  std::mt19937 rng(7);
  for (size_t p = 0; p < kPages; ++p) {
    if (p % 3 == 0) {
      of_thread[rng() % kThreads].push_back(p);
      expected[p] = true;
    } else if (p % 7 == 0) {
      for (std::vector<size_t>& pages : of_thread) pages.push_back(p);
      expected[p] = true;
    }
  }
  std::atomic<size_t> ready{0};
  std::vector<std::thread> threads;
  for (const std::vector<size_t>& pages : of_thread) {
    threads.emplace_back([&] {
      ++ready;
      while (ready < kThreads) {
      }
      Touch(w, pages);
    });
  }
  for (std::thread& t : threads) t.join();
  const auto touched = w.watch->Stop();
  ASSERT_TRUE(touched.ok()) << touched.status().message();
  EXPECT_EQ(*touched, expected);
}

// Two ranges; pages of the second change what they hold, through another view, while they are watched.
TEST(PageWatch, PagesAreTakenAndFilledAgain) {
  const size_t page = SystemPageBytes();
  auto first = AnonymousMemory::Allocate(3 * page, /*huge=*/false);
  auto second = MirroredMemory::Allocate(4 * page);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::vector<std::span<const uint8_t>> ranges = {{first->data(), 2 * page + 1}, {second->mirror(), 4 * page}};
  const auto made = PageWatch::New(ranges);
  ASSERT_TRUE(made.ok()) << made.status().message();
  PageWatch& watch = **made;
  const auto read = [&](size_t p) { return *static_cast<const volatile uint8_t*>(second->mirror() + p * page); };
  EXPECT_FALSE(watch.Take(3, 1).ok());
  EXPECT_FALSE(watch.started());
  ASSERT_TRUE(watch.Start().ok());
  EXPECT_TRUE(watch.started());
  second->data()[page] = 7;
  EXPECT_EQ(read(1), 7);
  EXPECT_EQ(read(3), 0);
  EXPECT_EQ(*watch.Take(3, 2), (std::vector<bool>{false, true}));
  second->data()[page] = 8;
  EXPECT_EQ(*watch.Take(3, 2), (std::vector<bool>{false, false}));
  EXPECT_EQ(read(1), 8);
  (void)*static_cast<const volatile uint8_t*>(first->data());
  for (const auto& [from, count] : {std::pair<size_t, size_t>{2, 2}, {6, 2}, {7, 1}, {SIZE_MAX, 2}}) {
    EXPECT_FALSE(watch.Take(from, count).ok()) << from;
  }
  EXPECT_EQ(*watch.Stop(), (std::vector<bool>{true, false, false, false, true, false, true}));
}

TEST(PageWatch, APrefetchIsNoTouch) {
  Watched w(4);
  ASSERT_TRUE(w.watch->Start().ok());
  for (size_t at = 0; at < w.memory.size(); at += 64) __builtin_prefetch(w.memory.data() + at);
  const auto touched = w.watch->Stop();
  ASSERT_TRUE(touched.ok());
  EXPECT_EQ(*touched, std::vector<bool>(4));
}

TEST(PageWatch, OneAtATime) {
  const Watched w(4);
  EXPECT_EQ(PageWatch::New(w.memory.data(), w.memory.size()).status().code(), StatusCode::kBadInput);
}

TEST(PageWatch, BadRanges) {
  const auto memory = AnonymousMemory::Allocate(4 * SystemPageBytes(), false);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(PageWatch::New(memory->data(), 0).status().code(), StatusCode::kBadInput);
  EXPECT_EQ(PageWatch::New(memory->data() + 64, 100).status().code(), StatusCode::kBadInput);
  const auto watch = PageWatch::New(memory->data(), memory->size());  // neither has left anything behind
  ASSERT_TRUE(watch.ok());
  EXPECT_FALSE((*watch)->Stop().ok());  // not started
}

std::atomic<int> g_seen{0};
uint8_t* g_outside = nullptr;

extern "C" void OpenOutside(int, siginfo_t* info, void*) {
  g_seen += info->si_addr == g_outside ? 1 : 100;
  mprotect(g_outside, SystemPageBytes(), PROT_READ);
}

struct sigaction Handler() {
  struct sigaction now = {};
  sigaction(SIGSEGV, nullptr, &now);
  return now;
}

TEST(PageWatch, FaultsElsewhereGoToThePreviousHandlerWhichComesBack) {
  const auto outside = AnonymousMemory::Allocate(SystemPageBytes(), false);
  ASSERT_TRUE(outside.ok());
  g_outside = outside->data();
  struct sigaction mine = {}, before = {};
  mine.sa_sigaction = OpenOutside;
  mine.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGSEGV, &mine, &before), 0);
  {
    Watched w(2);
    EXPECT_NE(Handler().sa_sigaction, OpenOutside);
    ASSERT_TRUE(w.watch->Start().ok());
    ASSERT_EQ(mprotect(g_outside, SystemPageBytes(), PROT_NONE), 0);
    EXPECT_EQ(*static_cast<volatile uint8_t*>(g_outside), 0);
    EXPECT_EQ(g_seen, 1);
    const auto touched = w.watch->Stop();
    ASSERT_TRUE(touched.ok());
    EXPECT_EQ(*touched, std::vector<bool>(2));
  }
  EXPECT_EQ(Handler().sa_sigaction, OpenOutside);
  ASSERT_EQ(sigaction(SIGSEGV, &before, nullptr), 0);
}

TEST(PageWatch, AStartedWatchThatEndsLeavesItsPagesReadable) {
  auto w = std::make_unique<Watched>(3);
  ASSERT_TRUE(w->watch->Start().ok());
  w->watch.reset();
  EXPECT_EQ(w->Read(w->page), 0);
}

using PageWatchDeathTest = testing::Test;

// Each of these must end the process, and not hang in the handler.
TEST(PageWatchDeathTest, FaultsElsewhereAreFatal) {
  Watched w(2);
  const auto other = AnonymousMemory::Allocate(SystemPageBytes(), false);
  ASSERT_TRUE(other.ok());
  ASSERT_EQ(mprotect(other->data(), SystemPageBytes(), PROT_NONE), 0);
  ASSERT_TRUE(w.watch->Start().ok());
  EXPECT_DEATH((void)*static_cast<volatile uint8_t*>(other->data()), "");
  EXPECT_DEATH(raise(SIGSEGV), "");
  EXPECT_DEATH(
      {
        w.watch.reset();
        (void)*static_cast<volatile uint8_t*>(other->data());
      },
      "");
  ASSERT_TRUE(w.watch->Stop().ok());
}

TEST(PageWatchDeathTest, WritesToWatchedPagesAreFatal) {
  Watched w(2);
  ASSERT_TRUE(w.watch->Start().ok());
  EXPECT_DEATH(*static_cast<volatile uint8_t*>(w.memory.data()) = 1, "");
  ASSERT_TRUE(w.watch->Stop().ok());
  EXPECT_DEATH(*static_cast<volatile uint8_t*>(w.memory.data()) = 1, "");
}

// Every other page: as many mappings as pages.
TEST(PageWatch, TooManyMappingsAreAnErrorThatSaysSo) {
  size_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  if (most == 0 || most > 300'000) GTEST_SKIP() << "vm.max_map_count is unknown or large: " << most;
  const size_t pages = most + 4096;
  Watched w(pages);
  ASSERT_TRUE(w.watch->Start().ok());
  for (size_t p = 0; p < pages; p += 2) EXPECT_EQ(w.Read(p * w.page), 0);
  const auto touched = w.watch->Stop();
  ASSERT_FALSE(touched.ok());
  EXPECT_EQ(touched.status().code(), StatusCode::kNoRoom);
  EXPECT_NE(touched.status().message().find("vm.max_map_count"), std::string::npos) << touched.status().message();
  ASSERT_TRUE(w.watch->Start().ok());  // and again, within the limit
  EXPECT_EQ(w.Read(5 * w.page), 0);
  const auto few = w.watch->Stop();
  ASSERT_TRUE(few.ok());
  EXPECT_TRUE((*few)[5]);
}

}  // namespace
}  // namespace tally
