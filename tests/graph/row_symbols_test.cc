// SPDX-License-Identifier: Apache-2.0
// Rows that are more than tokens, as the prefix index knows them.
#include "engine/graph/row_symbols.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally {
namespace {

using Tokens = std::vector<int32_t>;

PrefixRow Embedded(int64_t index, int32_t row, RowSpan span = {}) {
  return {.index = index, .embedding = true, .identity = {1, 2, row}, .position = {}, .both_ways = span};
}

TEST(RowSymbols, PositionsGoOnAfterTheLargest) {
  std::vector<SequenceRow> rows;
  EXPECT_EQ(NextPosition(rows, 7), 7);
  AddRow({.index = 3, .position = {3, 5, 9}}, 1, rows);
  AddRow({.index = 4, .position = {10}}, 1, rows);  // what it has anyway: a plain token
  AddRow({.index = 6, .position = {2, 2, 2}}, 1, rows);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(NextPosition(rows, 3), 3);
  EXPECT_EQ(NextPosition(rows, 4), 10);
  EXPECT_EQ(NextPosition(rows, 6), 12);
  EXPECT_EQ(NextPosition(rows, 7), 12);
  EXPECT_EQ(NextPosition(rows, 9), 14);
}

TEST(RowSymbols, EqualRowsHaveEqualSymbols) {
  RowSymbols symbols;
  const Tokens tokens = {5, 6, 7, 8, 9};
  const auto of = [&](std::vector<PrefixRow> rows, bool make = true, int64_t from = 0) {
    std::vector<SequenceRow> own = RowsOfPrefix(tokens, rows);
    return symbols.Of(tokens, own, from, make);
  };
  EXPECT_EQ(of({}), tokens);
  EXPECT_EQ(of({Embedded(2, 0)}, false), (Tokens{5, 6})) << "not known yet";
  const Tokens one = of({Embedded(2, 0)});
  ASSERT_EQ(one.size(), 5u);
  EXPECT_LT(one[2], 0);
  EXPECT_EQ(of({Embedded(2, 0)}, false), one);
  EXPECT_EQ(of({Embedded(2, 0)}, false, 2), (Tokens{one[2], 8, 9}));
  EXPECT_NE(of({Embedded(2, 1)})[2], one[2]);
  EXPECT_EQ(of({{.index = 2, .embedding = true}}), (Tokens{5, 6})) << "without an identity";
  // Rows that see one another: whole or not at all, and another last row makes all of them others.
  const RowSpan span{1, 4};
  const Tokens three = of({Embedded(1, 0, span), Embedded(2, 1, span), Embedded(3, 2, span)});
  ASSERT_EQ(three.size(), 5u);
  const Tokens other = of({Embedded(1, 0, span), Embedded(2, 1, span), Embedded(3, 3, span)});
  EXPECT_NE(other[1], three[1]);
  EXPECT_EQ(of({Embedded(1, 0, span), Embedded(2, 1, span)}), (Tokens{5}));
  EXPECT_EQ(of({Embedded(3, 2, span), Embedded(2, 1, span), Embedded(1, 0, span)}, false, 2), (Tokens{three[2], three[3], 9}));
  EXPECT_EQ(symbols.size(), 4u);
  const Tokens used = {three[3]};
  symbols.KeepOnly(used);
  EXPECT_EQ(symbols.size(), 1u);
  EXPECT_EQ(of({Embedded(1, 0, span), Embedded(2, 1, span), Embedded(3, 2, span)}, false), three);
  EXPECT_EQ(of({Embedded(2, 0)}, false), (Tokens{5, 6}));
}

TEST(RowSymbols, CutsWithinSpans) {
  const Tokens tokens(8, 1);
  const RowSpan span{2, 5};
  const std::vector<SequenceRow> rows =
      RowsOfPrefix(tokens, std::vector<PrefixRow>{Embedded(2, 0, span), Embedded(3, 1, span), Embedded(4, 2, span)});
  for (const int64_t length : {0, 1, 2, 5, 8}) EXPECT_TRUE(SpanAround(rows, length).empty()) << length;
  for (const int64_t length : {3, 4}) EXPECT_EQ(SpanAround(rows, length), span) << length;
}

}  // namespace
}  // namespace tally
