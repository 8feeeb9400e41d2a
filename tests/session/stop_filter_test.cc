// SPDX-License-Identifier: Apache-2.0
#include "engine/session/stop_filter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tally {
namespace {

TEST(StopFilter, NoStopsPassEverything) {
  for (StopFilter f : {StopFilter({}), StopFilter({""})}) {
    EXPECT_EQ(f.Push("abc"), "abc");
    EXPECT_EQ(f.Finish(), "");
    EXPECT_FALSE(f.stopped());
  }
}

TEST(StopFilter, CutsBeforeTheStop) {
  StopFilter f({"END"});
  EXPECT_EQ(f.Push("one ENtwo END three"), "one ENtwo ");
  EXPECT_TRUE(f.stopped());
  EXPECT_EQ(f.Push("more"), "");
  EXPECT_EQ(f.Finish(), "");
}

TEST(StopFilter, HoldsBackABeginning) {
  StopFilter f({"\nUser:"});
  EXPECT_EQ(f.Push("hi\nUs"), "hi");
  EXPECT_EQ(f.Push("e"), "");
  EXPECT_EQ(f.Push("d"), "\nUsed");
  EXPECT_EQ(f.Push(".\nUser"), ".");
  EXPECT_EQ(f.Finish(), "\nUser");
  EXPECT_FALSE(f.stopped());
}

TEST(StopFilter, TheEarliestOfSeveralWins) {
  StopFilter f({"world", "lo w"});
  EXPECT_EQ(f.Push("hello world"), "hel");
  EXPECT_TRUE(f.stopped());
}

TEST(StopFilter, AWholeStopIsFoundBehindAHeldBeginning) {
  StopFilter f({"abc", "bd"});
  EXPECT_EQ(f.Push("ab"), "");
  EXPECT_EQ(f.Push("d"), "a");  // "ab" was held for "abc"; "bd" begins inside it
  EXPECT_TRUE(f.stopped());
}

// However the text is cut, what comes out is the text before the first stop string.
TEST(StopFilter, AnyWayOfCuttingGivesTheSame) {
  const std::string text = "aabaabaaabab and aabaaab";
  const std::vector<std::string> stops = {"aabaaab", "abab "};
  const std::string expected = text.substr(0, std::min(text.find(stops[0]), text.find(stops[1])));
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    StopFilter f(stops);
    std::string out;
    for (size_t i = 0; i < text.size(); i += piece) out += f.Push(std::string_view(text).substr(i, piece));
    out += f.Finish();
    EXPECT_EQ(out, expected) << piece;
    EXPECT_TRUE(f.stopped());
  }
}

}  // namespace
}  // namespace tally
