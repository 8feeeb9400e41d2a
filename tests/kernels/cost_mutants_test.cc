// SPDX-License-Identifier: Apache-2.0
// Useful charges that are off by one, each in turn: the check that cost_test makes finds every one of them. The kernels' sources are
// compiled a second time for it, with a mutant at every charge (mutate.h).
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/kernels/cost_check.h"
#include "tests/kernels/mutate.h"

namespace tally {
namespace {

std::vector<std::string> places;
std::set<int> reached;
int active = -1;

}  // namespace

int RegisterMutant(const char* file, int line) {
  const std::string path(file);
  places.push_back(path.substr(path.rfind('/') + 1) + ":" + std::to_string(line));
  return static_cast<int>(places.size()) - 1;
}

uint64_t MutantExtra(int mutant) {
  reached.insert(mutant);
  return mutant == active ? 1 : 0;
}

namespace {

TEST(CostMutants, EveryOneIsFound) {
  CheckCosts(
      [](const std::string& what) {
        ADD_FAILURE() << "without a mutant: " << what;
        return true;
      },
      false);
  const std::set<int> mutants = reached;
  ASSERT_EQ(mutants.size(), 129u)
      << "charges that Useful() makes over the sweep: an op that leaves it must not take its mutants along";
  for (const int m : mutants) {
    active = m;
    bool found = false;
    CheckCosts(
        [&](const std::string&) {
          found = true;
          return false;
        },
        false);
    EXPECT_TRUE(found) << "one more at " << places[static_cast<size_t>(m)] << " is not noticed";
  }
  active = -1;
  std::printf("%zu mutants\n", mutants.size());
}

}  // namespace
}  // namespace tally
