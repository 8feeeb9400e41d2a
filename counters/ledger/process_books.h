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

// Sums since Reset. `copied`: what a process of a lower rank has or does too. Useful less copied, summed over the processes, is what a
// single process would have. Activations are the exception: each process reads those that it needs.
struct ProcessBooks {
  std::string process = {};  // "rank 2 on alpha"
  std::vector<SiteAccount> accounts = {};
  uint64_t parameters = 0, copied_parameters = 0;  // held
  uint64_t stored_bytes = 0, packed_bytes = 0;     // of these parameters
  std::vector<WeightInfo> weights = {};
  std::vector<uint64_t> touched = {};  // touched elements of each weight in the last step
  std::vector<uint64_t> expert_rows =
      {};                    // of each weight of experts, one weight after another: rows routed to each of its slices then
  uint64_t bad_touches = 0;  // TouchSet::bad()
  // Bytes to and from other processes since the group began. `start`: until the engine was made; `all`: until now. Bytes that are neither
  // in `start` nor in the accounts are commands.
  struct Traffic {
    uint64_t sent = 0, received = 0;
  };
  Traffic start = {}, all = {};
  uint64_t message_bytes = 0;  // bytes that these books took to arrive from another process

  Cost Useful() const {
    Cost sum;
    for (const SiteAccount& a : accounts) sum += a.account.useful;
    return sum;
  }
};

TALLY_API ProcessBooks BooksOf(const Ledger& ledger, std::string process);
// Useful less copied.
TALLY_API Cost WithoutCopies(const Account& account);

}  // namespace tally
