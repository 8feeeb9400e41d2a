// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

namespace tally {
namespace {

// Seconds of a core that a process has had.
double CpuSeconds(pid_t pid) {
  clockid_t clock = 0;
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return -1;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(BusyProcess, TakesACoreWhileItRuns) {
  pid_t pid = -1;
  {
    Result<BusyProcess> busy = BusyProcess::Start();
    ASSERT_TRUE(busy.ok()) << busy.status().message();
    pid = busy->pid();
    for (int turn = 0; turn < 2; ++turn) {
      const double stopped = CpuSeconds(pid);
      usleep(20'000);
      EXPECT_EQ(CpuSeconds(pid), stopped) << "it rests until it is resumed";
      ASSERT_TRUE(busy->Resume().ok());
      for (int i = 0; i < 500 && CpuSeconds(pid) <= stopped; ++i) usleep(10'000);  // other tests may have the cores
      EXPECT_GT(CpuSeconds(pid), stopped);
      ASSERT_TRUE(busy->Pause().ok());
    }
    const BusyProcess moved = std::move(busy).value();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0) << "it ends with the object";
}

TEST(BusyProcess, SaysWhereItHasEnded) {
  Result<BusyProcess> busy = BusyProcess::Start();
  ASSERT_TRUE(busy.ok());
  kill(busy->pid(), SIGKILL);
  EXPECT_EQ(busy->Resume().code(), StatusCode::kBadInput);
}

TEST(ChildProcess, IsSpokenToByLines) {
  Result<ChildProcess> cat = ChildProcess::Start({"/bin/cat"});
  ASSERT_TRUE(cat.ok()) << cat.status().message();
  ASSERT_TRUE(cat->WriteLine("one").ok());
  ASSERT_TRUE(cat->WriteLine("two").ok());
  EXPECT_EQ(*cat->ReadLine(nullptr), "one");
  EXPECT_EQ(*cat->ReadLine(nullptr), "two");
  int polls = 0;
  EXPECT_EQ(cat->ReadLine([&] { return ++polls > 1; }).status().code(), StatusCode::kInterrupted);
}

TEST(ChildProcess, EndsAndRefusals) {
  Result<ChildProcess> ended = ChildProcess::Start({"/bin/true"});
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(ended->ReadLine(nullptr).status().code(), StatusCode::kBadInput);
  const auto none = ChildProcess::Start({"/nowhere/program"});
  EXPECT_EQ(none.status().code(), StatusCode::kBadInput);
  EXPECT_NE(none.status().message().find("/nowhere/program cannot be started"), std::string::npos);
}

}  // namespace
}  // namespace tally
