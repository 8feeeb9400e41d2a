// SPDX-License-Identifier: Apache-2.0
// Ranks under mpirun: what ranks.cc does, seen from outside.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tally {
namespace {

#ifndef TALLY_RANKS
TEST(Mpi, IsNotHere) { GTEST_SKIP() << "ranks under mpirun, which is not here, or tests with sanitizers"; }
#else

namespace fs = std::filesystem;

struct Ended {
  int code = -1;
  double seconds = 0;
  std::string text;  // standard output and error
  int errors() const {
    int n = 0;
    for (size_t at = text.find("error: "); at != text.npos; at = text.find("error: ", at + 1)) ++n;
    return n;
  }
};

// `environment`: "NAME=value ".
Ended Shell(const std::string& environment, const std::string& command) {
  const auto begun = std::chrono::steady_clock::now();
  Ended ended;
  FILE* const pipe = ::popen(("TALLY_MPI_PLUGIN=" TALLY_PLUGIN " " + environment + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ended;
  char piece[4096];
  while (const size_t n = std::fread(piece, 1, sizeof piece, pipe)) ended.text.append(piece, n);
  const int status = ::pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return ended;
}

// The last argument of ranks: whose they are.
std::string Id() { return "test" + std::to_string(::getpid()); }

Ended Ranks(int n, const std::string& scenario, const std::string& environment = "", const std::string& before = "") {
  return Shell(environment, "timeout 60 " TALLY_MPIRUN " -q --allow-run-as-root --oversubscribe -n " + std::to_string(n) + " " +
                                before + TALLY_RANKS " " + scenario + " " + Id());
}

// Ranks that run; those that have ended and are not waited for yet do not.
std::string Left() {
  std::string left;
  for (int tries = 0; tries < 30; ++tries) {
    left = Shell("", "ps -e -o stat=,args= | grep '^[^Z].*" TALLY_RANKS " .* " + Id() + "$' | grep -v 'grep'").text;
    if (left.empty()) break;
    ::usleep(100'000);
  }
  return left;
}

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(fs::temp_directory_path() / ("tally_mpi_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// ranks.cc compares the bytes, and the traffic of each call with the ledger's definitions; here the witness has counted the same.
TEST(Mpi, CollectivesBringTheBytesThatTheWitnessSaw) {
  const TemporaryFolder folder;
  for (const int n : {2, 3, 7}) {
    const std::string file = (folder.path() / std::to_string(n)).string();
    const Ended ended = Ranks(n, "collectives", "TALLY_WITNESS=" + file + " ", "env LD_PRELOAD=" TALLY_WITNESS_LIBRARY " ");
    ASSERT_EQ(ended.code, 0) << n << ": " << ended.text;
    static const std::regex line(R"(traffic (\d+) (\d+) (\d+))");
    int ranks = 0;
    for (std::sregex_iterator it(ended.text.begin(), ended.text.end(), line), end; it != end; ++it, ++ranks) {
      std::ifstream in(file + "." + (*it)[1].str());
      std::string rank, sent, received;
      in >> rank >> sent >> received;
      EXPECT_EQ(rank + " " + sent + " " + received, (*it)[1].str() + " " + (*it)[2].str() + " " + (*it)[3].str());
      EXPECT_GT(std::stoull(sent), 1'000'000u);
    }
    EXPECT_EQ(ranks, n) << ended.text;
  }
}

TEST(Mpi, LargeTransfersGoInPieces) {
  const Ended ended = Ranks(4, "collectives", "TALLY_MPI_PLUGIN=" TALLY_PIECES " ");
  EXPECT_EQ(ended.code, 0) << ended.text;
}

TEST(Mpi, OneRankNeedsNoPlugIn) {
  const Ended ended = Ranks(1, "collectives", "TALLY_MPI_PLUGIN=/none ");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.text, "alone\n");
}

TEST(Mpi, OneRankSaysWhatKeepsThemFromStarting) {
  const Ended ended = Ranks(3, "cores", "TALLY_MPI_PLUGIN=/none ");
  EXPECT_EQ(ended.code, 2) << ended.text;
  EXPECT_TRUE(std::regex_match(ended.text, std::regex(R"(error: rank 0 on \S+: one of 3 ranks of Open MPI: .* libopenmpi3.*\n)")))
      << ended.text;
}

// Disjoint shares that cover what mpirun may use, beyond mpirun's binding; where there are more ranks than cores, one each.
TEST(Mpi, RanksDivideTheCores) {
  const auto cores = [](const Ended& ended) {
    std::multiset<int> all;
    std::istringstream lines(ended.text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream rest(line.substr(std::min(line.find(": "), line.size() - 1) + 1));
      for (int core; rest >> core;) all.insert(core);
    }
    return all;
  };
  const std::multiset<int> all = cores(Shell("", TALLY_RANKS " cores"));
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(cores(Ranks(1, "cores")), all);
  for (const int n : {2, 3}) {
    const Ended ended = Ranks(n, "cores");
    const std::multiset<int> shares = cores(ended);
    EXPECT_EQ(std::set<int>(shares.begin(), shares.end()), std::set<int>(all.begin(), all.end())) << ended.text;
    EXPECT_EQ(shares.size(), std::max(all.size(), static_cast<size_t>(n))) << ended.text;
  }
  const Ended kept = Ranks(2, "binding");
  EXPECT_NE(kept.text.find("host of rank 1 is that of 0"), std::string::npos) << kept.text;
  EXPECT_EQ(cores(kept).size(), 2u) << kept.text;  // mpirun binds two ranks to a core each
}

TEST(Mpi, ADifferenceIsOneLine) {
  EXPECT_EQ(Ranks(3, "agree -1").code, 0);
  struct Case {
    const char* scenario;
    const char* message;
  };
  for (const Case& c :
       {Case{"agree 2",
             R"(error: rank 2 on \S+ has instruction set SSE4, rank 0 on \S+ has AVX2: all ranks must run the same\n)"},
        Case{"agree 0", R"(error: rank 1 on \S+ has instruction set AVX2, rank 0 on \S+ has SSE4: .* \(1 more rank differs\)\n)"},
        Case{"agree 101", R"(error: rank 1 on \S+: 8 GiB are missing\n)"}}) {
    const Ended ended = Ranks(3, c.scenario);
    EXPECT_EQ(ended.code, 2) << c.scenario;
    EXPECT_TRUE(std::regex_match(ended.text, std::regex(c.message))) << ended.text;
  }
}

// hosts.sh: a namespace a host, with mpirun's daemons started by it.
Ended Hosts(const std::string& options, const std::string& scenario) {
  return Shell("TALLY_MPI_TIMEOUT=1 TALLY_MPIRUN=" TALLY_MPIRUN " ",
               "timeout 60 " TALLY_SOURCE_DIR "/tests/mpi/hosts.sh -x TALLY_MPI_PLUGIN -x TALLY_MPI_TIMEOUT " + options +
                   " " TALLY_RANKS " " + scenario);
}

TEST(Mpi, EveryRankEndsWithOne) {
  // Meanwhile: a host that can no longer be reached.
  std::future<Ended> cut = std::async(std::launch::async, [] { return Hosts("-n 3 -t 7", "cut 1"); });
  struct Case {
    const char* scenario;
    int code;
    const char* message;
  };
  for (const Case& c : {Case{"kill 2", 137, ""},  // mpirun says so without -q
                        Case{"abort 1", 7, ""}, Case{"exit 1", 2, R"(error: rank 1 on \S+: no room\n)"},
                        Case{"stop 1", 2, R"(error: rank 0 on \S+: rank 1 on \S+ has been silent for 1 s \(all-gather\): .*\n)"},
                        Case{"stop 0", 2, R"(error: rank 1 on \S+: rank 0 on \S+ has been silent for 1 s .*\n)"},
                        Case{"late 2", 2, R"(error: rank 0 on \S+: other ranks have not come for 1 s: .*\n)"}}) {
    const Ended ended = Ranks(3, c.scenario, c.code == 2 ? "TALLY_MPI_TIMEOUT=1 " : "");
    EXPECT_EQ(ended.code, c.code) << c.scenario << ": " << ended.text;
    EXPECT_TRUE(std::regex_match(ended.text, std::regex(c.message))) << c.scenario << ": " << ended.text;
    EXPECT_LT(ended.seconds, 10) << c.scenario;
    EXPECT_EQ(Left(), "") << c.scenario;
  }
  const Ended ended = cut.get();
  if (ended.code == 77) GTEST_SKIP() << ended.text.substr(ended.text.find(": ") + 2);
  EXPECT_EQ(ended.errors(), 1) << ended.text;
  EXPECT_NE(ended.text.find("has been silent for 1 s"), std::string::npos) << ended.text;
  EXPECT_EQ(ended.text.find("left on"), std::string::npos) << ended.text;
}

TEST(Mpi, NothingIsLeftWhenMpirunIsKilled) {
  const TemporaryFolder folder;  // for what mpirun had no time to remove
  const std::string path = folder.path().string();
  Shell("", "timeout -s KILL 1 " TALLY_MPIRUN " -q --allow-run-as-root --oversubscribe --mca orte_tmpdir_base " + path +
                " --mca btl_vader_backing_directory " + path + " -n 2 " TALLY_RANKS " forever 0 " + Id());
  EXPECT_EQ(Left(), "");
}

TEST(Mpi, IdleRanksLeaveTheirCore) {
  const Ended ended = Ranks(2, "idle");
  ASSERT_EQ(ended.text.find("idle "), 0u) << ended.text;
  EXPECT_LT(std::stod(ended.text.substr(5)), .05) << "seconds of a core, in half a second";
}

// 100 MB/s and 1 ms: an all-gather of 16,384 bytes takes 1,163.84 microseconds.
TEST(Mpi, ASlowerNetworkIsAsSlowAsItSays) {
  const Ended ended = Ranks(2, "link", "TALLY_MPI_DELAY_US=1000 TALLY_MPI_BANDWIDTH=100MB/s ");
  static const std::regex line(R"(link (\S+) us (\S+) GB/s; 16 KB (\S+) us\n)");
  std::smatch found;
  ASSERT_TRUE(std::regex_match(ended.text, found, line)) << ended.text;
  // Other programs make it slower still.
  EXPECT_NEAR(std::stod(found[1]), 1000, 300);
  EXPECT_NEAR(std::stod(found[2]), .1, .03);
  EXPECT_GE(std::stod(found[3]), 1163.84);
  EXPECT_LT(std::stod(found[3]), 1.5 * 1163.84);
}

TEST(Mpi, RanksOfSeveralHosts) {
  const Ended ended = Hosts("-n 3 -r 1gbit", "collectives");
  if (ended.code == 77) GTEST_SKIP() << ended.text.substr(ended.text.find(": ") + 2);
  EXPECT_EQ(ended.code, 0) << ended.text;
  // Alone on its host, each has all cores.
  const Ended cores = Hosts("-n 2", "cores");
  const std::string alone = Shell("", TALLY_RANKS " cores").text;
  const std::string all = alone.substr(std::min(alone.find(" of "), alone.size()));
  EXPECT_NE(cores.text.find("cores 0" + all), std::string::npos) << cores.text;
  EXPECT_NE(cores.text.find("cores 1" + all), std::string::npos) << cores.text;
  EXPECT_NE(cores.text.find("host of rank 1 is that of 1"), std::string::npos) << cores.text;
}

#endif

}  // namespace
}  // namespace tally
