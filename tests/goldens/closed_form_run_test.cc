// SPDX-License-Identifier: Apache-2.0
// Every charge has its formula, on every checkpoint of the repo.
#include <gtest/gtest.h>

#include "tests/goldens/checkpoints.h"
#include "tests/goldens/closed_forms.h"

namespace tally {
namespace {

class ClosedFormRun : public testing::TestWithParam<std::string> {};

TEST_P(ClosedFormRun, EveryChargeHasItsFormula) { closed_forms::ExpectEveryChargeHasItsFormula(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, ClosedFormRun, testing::ValuesIn(CheckpointsOfTheRepo()), CheckpointName);

}  // namespace
}  // namespace tally
