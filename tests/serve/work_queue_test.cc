// SPDX-License-Identifier: Apache-2.0
// Whose work is done next, and how much of it at once.
#include "engine/serve/work_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace tally {
namespace {

// Work that goes on until it is let go.
class Works {
 public:
  std::function<void()> Item(const std::string& name) {
    return [this, name] {
      std::unique_lock lock(mutex_);
      begun_.push_back(name);
      changed_.notify_all();
      changed_.wait(lock, [&] { return let_go_ > 0; });
      --let_go_;
    };
  }
  void LetGo(int items = 1) {
    const std::lock_guard lock(mutex_);
    let_go_ += items;
    changed_.notify_all();
  }
  // What has begun, once there are so many.
  std::vector<std::string> Begun(size_t items) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return begun_.size() >= items; });
    return begun_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> begun_;
  int let_go_ = 0;
};

using Names = std::vector<std::string>;

// A client with a lot of work leaves a thread to the others, who take turns.
TEST(WorkQueue, OneClientNeverHasAllThreads) {
  Works works;
  WorkQueue queue(100, 1);
  for (const char* name : {"a1", "a2", "a3"}) ASSERT_TRUE(queue.Add("a", works.Item(name)));
  ASSERT_TRUE(queue.Start(2).ok());
  EXPECT_EQ(works.Begun(1), (Names{"a1"}));
  for (const char* name : {"b1", "b2", "c1"}) ASSERT_TRUE(queue.Add(std::string(1, name[0]), works.Item(name)));
  EXPECT_EQ(works.Begun(2), (Names{"a1", "b1"}));
  works.LetGo(6);
  Names begun = works.Begun(6);
  std::ranges::sort(begun);
  EXPECT_EQ(begun, (Names{"a1", "a2", "a3", "b1", "b2", "c1"}));
}

TEST(WorkQueue, WhatWaitsIsBoundedAndDoneAtTheEnd) {
  Works works;
  works.LetGo(100);
  WorkQueue queue(4);
  for (const bool fits : {true, true, false}) EXPECT_EQ(queue.Add("a", works.Item("a")), fits);
  for (const char* client : {"b", "c"}) EXPECT_TRUE(queue.Add(client, works.Item(client)));
  EXPECT_FALSE(queue.Add("d", works.Item("d")));
  EXPECT_TRUE(queue.AddAgain("d", works.Item("d")));
  queue.Stop();
  EXPECT_EQ(works.Begun(5), (Names{"a", "b", "c", "d", "a"}));
  EXPECT_FALSE(queue.Add("a", works.Item("a")));
  EXPECT_FALSE(queue.AddAgain("a", works.Item("a")));
}

}  // namespace
}  // namespace tally
