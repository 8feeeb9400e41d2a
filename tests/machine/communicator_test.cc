// SPDX-License-Identifier: Apache-2.0
// What needs no launcher; tests/mpi has the rest.
#include "engine/machine/communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine/machine/cores.h"
#include "engine/machine/kept_file.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"

namespace tally {
namespace {

// NOLINTBEGIN(concurrency-mt-unsafe): one thread
// The environment of a launcher, while this lives, and nothing of another's.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& set) {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "PMIX_RANK",
          "PMI_RANK", "PMI_SIZE", "TALLY_MPI_PLUGIN", "TALLY_MPI_TIMEOUT"}) {
      const char* const value = std::getenv(name);
      if (value != nullptr) before_[name] = value;
      ::unsetenv(name);
    }
    for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
    for (const auto& [name, value] : set) names_.push_back(name);
  }
  ~Environment() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> before_;
  std::vector<std::string> names_;
};

// NOLINTEND(concurrency-mt-unsafe)

TEST(Launch, IsSeenInTheEnvironment) {
  struct Case {
    std::map<std::string, std::string> set;
    const char* launcher;
    int rank, ranks;
  };
  for (const Case& c : {
           Case{{}, "", 0, 1},
           Case{{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "2"}}, "Open MPI", 2, 4},
           Case{{{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"PMIX_RANK", "3"}}, "Slurm", 3, 8},
           Case{{{"SLURM_PROCID", "1"},
                 {"SLURM_NTASKS", "8"},
                 {"SLURM_STEP_NUM_TASKS", "2"},
                 {"PMI_RANK", "1"},
                 {"PMI_SIZE", "2"}},
                "Slurm",
                1,
                2},
           Case{{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, "", 0, 1},  // a batch script
           Case{{{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}, "MPICH", 1, 3},
           Case{{{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, "", 0, 1},
           Case{{{"OMPI_COMM_WORLD_RANK", "one"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, "", 0, 1},
       }) {
    const Environment environment(c.set);
    const Launch launch = DetectLaunch();
    EXPECT_EQ(launch.launcher, c.launcher);
    EXPECT_EQ(launch.rank, c.rank);
    EXPECT_EQ(launch.ranks, c.ranks);
  }
}

TEST(Launch, OneProcessHasNoCommunicator) {
  const Environment environment({});
  const Result<std::unique_ptr<Communicator>> started = StartCommunicator();
  ASSERT_TRUE(started.ok());
  EXPECT_EQ(*started, nullptr);
}

TEST(Launch, SeveralRanksNeedThePlugIn) {
  std::map<std::string, std::string> set = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  for (const auto& [file, remedy] :
       std::map<std::string, std::string>{{"", "scripts/install_deps.sh --mpi"}, {"/none", "/none: cannot open"}}) {
    if (!file.empty()) set["TALLY_MPI_PLUGIN"] = file;
    const Environment environment(set);
    const Result<std::unique_ptr<Communicator>> started = StartCommunicator();
    ASSERT_EQ(started.status().code(), StatusCode::kBadInput);
    EXPECT_NE(started.status().message().find("rank 0 on " + HostName() + ": one of 2 ranks of Open MPI: "), std::string::npos);
    EXPECT_NE(started.status().message().find(remedy), std::string::npos) << started.status().message();
  }
}

TEST(Launch, VariablesAreChecked) {
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"TALLY_MPI_TIMEOUT", "soon"}, {"TALLY_MPI_DELAY_US", "-1"}, {"TALLY_MPI_BANDWIDTH", "fast"}}) {
    const Environment environment({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {name, value}});
    const std::string message = StartCommunicator().status().message();
    EXPECT_NE(message.find(name + "=" + value + ": a"), std::string::npos) << message;
  }
}

CoreSet SetOf(const std::vector<int>& cores) {
  CoreSet set;
  for (const int core : cores) set.Add(core);
  return set;
}

TEST(Cores, SharesAreWholeCoresWhereThereAreEnough) {
  const PhysicalCores four = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(ShareOfCores(four, 0, 1), SetOf({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(ShareOfCores(four, 1, 2), SetOf({2, 3, 6, 7}));
  EXPECT_EQ(ShareOfCores(four, 0, 3), SetOf({0, 4}));
  EXPECT_EQ(ShareOfCores(four, 2, 3), SetOf({2, 3, 6, 7}));
  EXPECT_EQ(ShareOfCores(four, 0, 8), SetOf({0}));
  EXPECT_EQ(ShareOfCores(four, 1, 8), SetOf({4}));
  EXPECT_EQ(ShareOfCores({{3}, {9}}, 2, 4), SetOf({9}));  // crowded
  for (int n = 1; n <= 20; ++n) {
    CoreSet all;
    for (int k = 0; k < n; ++k) {
      const CoreSet share = ShareOfCores(four, k, n);
      EXPECT_GE(share.count(), 1);
      for (const int core : share.cores()) all.Add(core);
    }
    EXPECT_EQ(all.count(), 8) << n;
  }
  EXPECT_EQ(ShareOfCores({}, 0, 2).count(), 0);
}

TEST(Cores, AreThoseOfTheSystem) {
  const CoreSet own = OwnCores();
  ASSERT_GT(own.count(), 0);
  std::vector<int> all;
  for (const std::vector<int>& core : PhysicalCoresOf(own)) all.insert(all.end(), core.begin(), core.end());
  EXPECT_EQ(SetOf(all), own);
  const CoreSet allowed = CoresOfLauncher({});
  EXPECT_EQ(OwnCores(), own) << "asking changes nothing";
  for (const int core : own.cores()) EXPECT_TRUE(allowed.has(core));
  ASSERT_TRUE(UseCores(SetOf({own.cores().front()})).ok());
  EXPECT_EQ(AvailableCores(), 1);
  ASSERT_TRUE(UseCores(own).ok());
  const int before = AvailableCores();
  LimitAvailableCores(1);
  EXPECT_EQ(AvailableCores(), 1);
  LimitAvailableCores(0);
  EXPECT_EQ(AvailableCores(), before);
  EXPECT_FALSE(UseCores(CoreSet()).ok());
}

TEST(RunWithin, WaitsForSoLong) {
  int n = 0;
  EXPECT_TRUE(RunWithin(60, [&] { n = 1; }));
  EXPECT_EQ(n, 1);
  EXPECT_FALSE(RunWithin(.01, [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }));
}

}  // namespace
}  // namespace tally
