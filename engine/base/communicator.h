// SPDX-License-Identifier: Apache-2.0
// The communication of processes that run one model together. machine/communicator.h starts it under a launcher (mpirun, srun).
//
// Every rank makes the same calls in the same order with the same sizes. Calls come from one thread at a time, and a call returns when this
// rank has what it asked for. A failure ends the group: status() keeps the first one, and later calls return it at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/status.h"

namespace tally {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // of this process, in [0, ranks())
  virtual int ranks() const = 0;
  virtual std::string Place(int rank) const = 0;  // "rank 2 on alpha"
  virtual int Host(int rank) const { return 0; }  // the lowest rank on the same host, whose memory and cores they share

  // Rank r gives bytes[r] bytes. `all` receives those of all ranks in order. `own` may lie in its place in `all`.
  virtual Status AllGather(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) = 0;
  // The same to rank 0 alone; elsewhere `all` is not used.
  virtual Status Gather(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) = 0;
  // From rank 0 to all. kStep: within the time that a step may take; kIdle: the others wait for ever, which costs them no core.
  enum class Wait : uint8_t { kStep, kIdle };
  virtual Status Broadcast(std::span<uint8_t> data, Wait wait) = 0;

  // Returns when every rank has come here, however long that takes; waiting costs no core. No payload.
  virtual Status AwaitAll() { return {}; }

  // Bytes of payload that all calls so far have sent to other ranks and received from them, those at start included. An all-gather
  // sends own bytes x (ranks - 1); a broadcast from rank 0 sends bytes x (ranks - 1).
  struct Traffic {
    uint64_t sent = 0, received = 0;
  };
  virtual Traffic traffic() const { return {}; }

  // The first failure; ok: none.
  virtual const Status& status() const = 0;
  // Reports a failure of this process alone, which cannot continue with the others. It becomes status(); the others find this rank missing.
  virtual void Fail(const Status& why) {}
  // Ends every rank with this exit code. The caller has said why.
  [[noreturn]] virtual void Abort(int exit_code) = 0;
};

}  // namespace tally
