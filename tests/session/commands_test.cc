// SPDX-License-Identifier: Apache-2.0
// The table of what the first process of a group makes the others do.
#include "engine/session/commands.h"

#include <gtest/gtest.h>

#include <set>

namespace tally {
namespace {

const CommandRow& RowOf(Command command) { return kCommands[static_cast<size_t>(command)]; }

TEST(Commands, ARowAVerb) {
  std::set<std::string_view> names;
  for (const CommandRow& row : kCommands) EXPECT_TRUE(names.insert(row.name).second) << row.name;
  EXPECT_EQ(RowOf(Command::kNewEngine).name, "NewEngine");
  EXPECT_EQ(RowOf(Command::kStep).name, "Step");
  EXPECT_EQ(RowOf(Command::kStep).ranks, CommandRanks::kTogether);
  EXPECT_EQ(RowOf(Command::kFork).ranks, CommandRanks::kAlone);
}

TEST(Commands, ArgumentsComeBackAsTheyWere) {
  const std::vector<int32_t> tokens = {3, 1, 4};
  CommandWriter out;
  CallOf<Command::kRemember>::Write(out, 7, 2, "key", tokens, 1);
  CommandReader in(out.text());
  EXPECT_EQ(in.Get<int32_t>(), 7);
  EXPECT_EQ(in.Get<int32_t>(), 2);
  EXPECT_EQ(CommandArgument<std::string_view>::Get(in), "key");
  EXPECT_EQ(CommandArgument<std::span<const int32_t>>::Get(in), tokens);
  EXPECT_EQ(in.Get<int32_t>(), 1);
  EXPECT_TRUE(in.empty());
}

TEST(Commands, AnEngineThatIsNone) {
  Follower follower(nullptr, {});
  CommandWriter out;
  CallOf<Command::kFree>::Write(out, 7, 2);
  CommandReader in(out.text());
  EXPECT_FALSE(RowOf(Command::kFree).make(follower, in));
  CommandReader none(std::string_view{});
  EXPECT_TRUE(RowOf(Command::kEnd).make(follower, none));
}

}  // namespace
}  // namespace tally
