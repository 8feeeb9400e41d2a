// SPDX-License-Identifier: Apache-2.0
// Threads of one process as the processes that run a model together. Parts are given by copying.
#pragma once

#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/communicator.h"

namespace tally {

class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks) : barrier_(ranks), given_(static_cast<size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r) members_.push_back(std::make_unique<Member>(*this, r));
  }
  int ranks() const { return static_cast<int>(members_.size()); }
  Communicator* member(int rank) { return members_[static_cast<size_t>(rank)].get(); }
  // Bytes that went to other ranks and came from them.
  uint64_t sent(int rank) const { return members_[static_cast<size_t>(rank)]->sent; }
  uint64_t received(int rank) const { return members_[static_cast<size_t>(rank)]->received; }

 private:
  class Member final : public Communicator {
   public:
    Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int ranks() const override { return group_.ranks(); }
    std::string Place(int rank) const override { return "rank " + std::to_string(rank); }
    Status AllGather(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) override {
      return Copy(bytes, own, all, true, static_cast<uint64_t>(ranks() - 1));
    }
    Status Gather(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) override {
      return Copy(bytes, own, all, rank_ == 0, rank_ == 0 ? 0 : 1);
    }
    Status Broadcast(std::span<uint8_t> data, Wait) override {
      group_.given_[static_cast<size_t>(rank_)] = data.data();
      group_.barrier_.arrive_and_wait();
      if (rank_ > 0) std::memcpy(data.data(), group_.given_[0], data.size());
      (rank_ > 0 ? received : sent) += data.size() * (rank_ > 0 ? 1 : static_cast<uint64_t>(ranks() - 1));
      group_.barrier_.arrive_and_wait();
      return {};
    }
    Status AwaitAll() override {
      group_.barrier_.arrive_and_wait();
      return {};
    }
    const Status& status() const override { return status_; }
    [[noreturn]] void Abort(int) override { std::abort(); }

    uint64_t sent = 0, received = 0;

   private:
    Status Copy(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all, bool receives, uint64_t receivers) {
      group_.given_[static_cast<size_t>(rank_)] = own;
      group_.barrier_.arrive_and_wait();
      sent += bytes[static_cast<size_t>(rank_)] * receivers;
      for (size_t r = 0; receives && r < bytes.size(); ++r) {
        if (bytes[r] > 0 && all != group_.given_[r]) std::memcpy(all, group_.given_[r], bytes[r]);
        all += bytes[r];
        if (static_cast<int>(r) != rank_) received += bytes[r];
      }
      group_.barrier_.arrive_and_wait();
      return {};
    }

    ThreadGroup& group_;
    const int rank_;
    Status status_;
  };

  std::barrier<> barrier_;
  std::vector<const uint8_t*> given_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace tally
