// SPDX-License-Identifier: Apache-2.0
// The communicator of ranks that a launcher has started, over a plug-in's transport. communicator.cc makes it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/machine/communicator.h"
#include "engine/machine/communicator_plugin.h"
#include "engine/machine/cores.h"

namespace tally {

// Rank 0's values hold for all ranks.
struct TransportSettings {
  double timeout = 30;     // seconds
  double delay = 0;        // seconds
  double bytes_per_s = 0;  // 0: no limit
  bool slower() const { return delay > 0 || bytes_per_s > 0; }
};

// Seconds that a rank waits before it reports a failure. Others see the same failure soon after; the first report ends them before they
// speak. mpirun takes a second for that, two with several hosts.
double SpeaksAfter(int rank);

// The cores that the ranks of a host divide: those that the launcher's daemon may use, or under Slurm those that this rank may use.
CoreSet CoresToDivide(const Launch& launch);

class PluginCommunicator : public Communicator {
 public:
  PluginCommunicator(const TallyTransport& transport, const TransportSettings& settings)
      : transport_(transport), settings_(settings) {}
  PluginCommunicator(const PluginCommunicator&) = delete;
  PluginCommunicator& operator=(const PluginCommunicator&) = delete;
  ~PluginCommunicator() override;

  Status Start(const Launch& launch, const CommunicatorOptions& options);

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::string Place(int rank) const override;
  int Host(int rank) const override { return nodes_[static_cast<size_t>(rank)]; }

  Status AllGather(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) override;
  Status Gather(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) override;
  Status Broadcast(std::span<uint8_t> data, Wait wait) override;
  Status AwaitAll() override;
  Traffic traffic() const override { return traffic_; }
  const Status& status() const override { return failure_; }
  void Fail(const Status& why) override {
    if (failure_.ok() && !why.ok()) failure_ = {why.code(), Place(rank_) + ": " + why.message()};
  }
  [[noreturn]] void Abort(int exit_code) override;

 private:
  Status Join();
  struct Greeting;  // what a rank tells all others first
  Status DivideCores(std::span<const Greeting> greetings, const CommunicatorOptions& options);
  void CopyOwn(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) const;

  // A call's name, for messages, and the bytes that it brings this rank.
  struct Call {
    const char* name;
    Wait wait = Wait::kStep;
    uint64_t received = 0;
    double begun = 0;
  };
  // Begins transfers; errors are kept until Finish.
  void Send(int to, const void* data, uint64_t bytes);
  void Receive(int from, void* data, uint64_t bytes);
  Status Finish(const Call& call);
  bool Await(const Call& call);  // false: failure_ says why
  void Fail(std::string message);

  // Imitates a slower network on one machine, whose ranks read the same clock. With a latency L and a bandwidth B, a call that brings this
  // rank n bytes returns L + n / B after the last rank whose bytes they are has called, or when it is done, if that is later. So each rank
  // also sends the time at which it calls: 8 bytes, which the traffic does not count. A call that brings nothing is not delayed.
  void StampSend(int to);
  void StampReceive(int from);
  void Delay(const Call& call) const;

  const TallyTransport& transport_;
  TransportSettings settings_;
  bool started_ = false;
  bool crowded_ = false;  // more ranks on this host than cores
  int rank_ = 0, ranks_ = 1, node_ = 0;
  std::vector<std::string> hosts_;
  std::vector<int> nodes_;
  Status failure_;
  bool broken_ = false;  // a transfer could not begin
  Traffic traffic_;
  double stamp_ = 0;            // when this rank called
  std::vector<double> stamps_;  // when the others did
};

}  // namespace tally
