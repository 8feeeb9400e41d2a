// SPDX-License-Identifier: Apache-2.0
// The ledger of each of several processes that run one model, in one place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "counters/ledger/ledger.h"

namespace tally {

struct SiteAccount {
  Phase phase{};
  Site site = {};
  Account account = {};
};

// Sums since Reset. What is `copied` a process of a lower rank has, or does, too: useful less copied, summed over the processes, is what
// one process alone would have; but for activations, of which each process reads what it needs.
struct ProcessBooks {
  std::string process = {};  // "rank 2 on alpha"
  std::vector<SiteAccount> accounts = {};
  uint64_t parameters = 0, copied_parameters = 0;  // held
  uint64_t stored_bytes = 0, packed_bytes = 0;     // of them
  std::vector<WeightInfo> weights = {};
  std::vector<uint64_t> touched = {};  // elements of each of them in the last step
  std::vector<uint64_t> expert_rows =
      {};                    // of each weight of experts, one weight after another: rows routed to each of its slices then
  uint64_t bad_touches = 0;  // TouchSet::bad()
  // Bytes to and from other processes since the group began: until the engine was there, and until now. What is in neither that nor the
  // accounts tells the others what to do.
  struct Traffic {
    uint64_t sent = 0, received = 0;
  };
  Traffic start = {}, all = {};
  uint64_t message_bytes = 0;  // of these books, as they come from another process

  Cost Useful() const {
    Cost sum;
    for (const SiteAccount& a : accounts) sum += a.account.useful;
    return sum;
  }
};

// Of one process.
TALLY_API ProcessBooks BooksOf(const Ledger& ledger, std::string process);
// Useful less copied.
TALLY_API Cost WithoutCopies(const Account& account);

}  // namespace tally
