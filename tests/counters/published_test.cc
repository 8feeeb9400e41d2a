// SPDX-License-Identifier: Apache-2.0
#include "counters/books/published.h"

#include <gtest/gtest.h>

#include "tests/counters/recipes.h"

namespace tally::books {
namespace {

TEST(Published, Numbers) {
  struct Case {
    const char* text;
    uint64_t value, unit;
  };
  for (const Case& c : {Case{"20.91B", 20'910'000'000, 10'000'000},
                        {"3,209M", 3'209'000'000, 1'000'000},
                        {"7,615,616,512", 7'615'616'512, 1},
                        {"1.04T", 1'040'000'000'000, 10'000'000'000},
                        {"671B", 671'000'000'000, 1'000'000'000},
                        {"103.680K", 103'680, 1}}) {
    const auto n = ParsePrinted(c.text);
    ASSERT_TRUE(n.has_value()) << c.text;
    EXPECT_EQ(n->value, c.value) << c.text;
    EXPECT_EQ(n->unit, c.unit) << c.text;
  }
  for (const char* bad :
       {"", "B", ".5B", "1.2.3B", "-1B", "1e9", "1.2345K", "1.5", "99999999999999999999", "99999999999T", "about 3B"}) {
    EXPECT_FALSE(ParsePrinted(bad).has_value()) << bad;
  }
}

TEST(Published, Agreement) {
  const PrintedNumber n = *ParsePrinted("3.61B");
  EXPECT_EQ(Agrees(3'608'307'264, n), Agreement::kRounded);
  EXPECT_EQ(Agrees(3'605'000'000, n), Agreement::kRounded);
  EXPECT_EQ(Agrees(3'604'999'999, n), Agreement::kNo);
  EXPECT_EQ(Agrees(3'615'000'000, n), Agreement::kRounded);
  EXPECT_EQ(Agrees(3'619'999'999, n), Agreement::kTruncated);
  EXPECT_EQ(Agrees(3'620'000'000, n), Agreement::kNo);
  EXPECT_EQ(Agrees(124'439'808, *ParsePrinted("124,439,808")), Agreement::kExact);
  EXPECT_EQ(Agrees(124'439'807, *ParsePrinted("124,439,808")), Agreement::kNo);
  EXPECT_EQ(Agrees(2'730'702'848, *ParsePrinted("2B")), Agreement::kNo);  // one digit is rounded only
  EXPECT_EQ(Agrees(2'499'999'999, *ParsePrinted("2B")), Agreement::kRounded);
  EXPECT_EQ(Agrees(590'000'000, *ParsePrinted("0.5B")), Agreement::kNo);
  EXPECT_EQ(Agrees(1'090'000'000, *ParsePrinted("1.0B")), Agreement::kTruncated);
  EXPECT_EQ(Agrees(30'990'000'000, *ParsePrinted("30B")), Agreement::kTruncated);
  for (const auto& [text, digits] : std::initializer_list<std::pair<const char*, uint64_t>>{
           {"230B", 10'000'000'000}, {"400M", 100'000'000}, {"4.0B", 100'000'000}, {"103,680", 1}, {"1T", 1'000'000'000'000}}) {
    EXPECT_EQ(ParsePrinted(text)->digits, digits) << text;
  }
}

TEST(Published, GptOssHoldsUnderTheCardsConvention) {
  const Count count = CountRecipe(GptOss(24, 32), {}).value();
  const auto checks = CheckPublished(count, {.total = "20.91B", .active = "3.61B", .non_embedding = "", .source = "card"});
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_TRUE(checks[0].holds());
  EXPECT_EQ(checks[0].conventions[0].agreement, Agreement::kRounded);
  ASSERT_EQ(checks[1].conventions.size(), 3u);
  EXPECT_EQ(checks[1].conventions[0].agreement, Agreement::kNo);       // all: 4.19B
  EXPECT_EQ(checks[1].conventions[1].agreement, Agreement::kRounded);  // head
  EXPECT_EQ(checks[1].conventions[2].agreement, Agreement::kNo);       // none: 3.03B
  EXPECT_FALSE(
      CheckPublished(count, {.total = "21.51B", .active = "", .non_embedding = "", .source = ""})[0].holds());  // scales counted
}

// Zeros that end a whole number claim nothing where no convention holds with them.
TEST(Published, ZerosAreNoDigitsWhereNothingElseHolds) {
  const Count count = CountRecipe(GptOss(24, 32), {}).value();  // 20,914,757,184; active 4.187, 3.608, 3.029 B
  const auto of = [&](const char* total, const char* active) {
    return CheckPublished(count, {.total = total, .active = active});
  };
  EXPECT_EQ(of("21B", "")[0].conventions[0].agreement, Agreement::kRounded);
  EXPECT_EQ(of("20B", "")[0].conventions[0].agreement, Agreement::kTruncated);
  EXPECT_EQ(of("10B", "")[0].conventions[0].agreement, Agreement::kNo);
  EXPECT_EQ(of("", "4000M")[0].conventions[0].agreement, Agreement::kRoundedToZeros);
  EXPECT_EQ(of("", "4000M")[0].conventions[2].agreement, Agreement::kNo);
  EXPECT_EQ(of("", "4.0B")[0].conventions[0].agreement, Agreement::kNo);
  EXPECT_TRUE(of("", "4000M")[0].holds());
}

// A source that says what it counts is held to it.
TEST(Published, TheStatedConventionDecides) {
  const Count count = CountRecipe(DeepSeekV3(), {}).value();
  PublishedFigures figures{.total = "671B", .active = "", .non_embedding = "", .source = ""};
  EXPECT_TRUE(CheckPublished(count, figures)[0].holds());
  figures.body_and_prediction = true;
  const ClaimCheck stated = CheckPublished(count, figures)[0];
  EXPECT_EQ(stated.stated, "total without embedding and head with multi-token prediction");
  EXPECT_FALSE(stated.holds());
  EXPECT_EQ(stated.conventions[0].agreement, Agreement::kRounded);
}

TEST(Published, PredictionLayersMayBeMeant) {
  const Count count = CountRecipe(DeepSeekV3(), {}).value();
  const auto checks = CheckPublished(count, {.total = "671B", .active = "37B", .non_embedding = "", .source = ""});
  ASSERT_EQ(checks[0].conventions.size(), 4u);
  EXPECT_EQ(checks[0].conventions[0].agreement, Agreement::kRounded);
  EXPECT_EQ(checks[0].conventions[2].name, "total with multi-token prediction");
  EXPECT_EQ(checks[0].conventions[2].agreement, Agreement::kNo);
  EXPECT_EQ(checks[1].conventions[1].agreement, Agreement::kRounded);    // head: 36.6B
  EXPECT_EQ(checks[1].conventions[0].agreement, Agreement::kTruncated);  // all: 37.55B
}

}  // namespace
}  // namespace tally::books
