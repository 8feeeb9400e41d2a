// SPDX-License-Identifier: Apache-2.0
// What is said of a model that several processes run: the books by rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/render/value.h"
#include "engine/session/engine.h"
#include "engine/studies/audit.h"

namespace tally {

// By rank and in sum: what each holds and did, and what is copied, named. Empty: one process. `per`: the work is divided by it: the
// number of decoded tokens, or 1.
struct RankBooks {
  // All bytes to and from other ranks so far: until the engine was there; of the gathers that the ledger has; and what rank 0 tells the
  // others to do and they answer.
  struct Traffic {
    ProcessBooks::Traffic start = {}, model = {}, commands = {};
    uint64_t books = 0;  // of the message that brought these figures to rank 0
  };
  std::vector<AuditReport::Rank> ranks = {};
  double per = 1;
  std::string work_of = {};           // "of all steps", "a decoded token"
  std::vector<Traffic> traffic = {};  // by rank; may be empty
};

// Of an engine of several processes: the work of a decoded token; of one process: no ranks.
Result<RankBooks> RankBooksOf(Engine& engine);

std::string RanksText(const RankBooks& books, size_t width);
Value RanksJson(const RankBooks& books);

// The same of an audit, with what is done and held more than once.
std::string AuditRanksText(const AuditReport& report, size_t width);
Value AuditRanksJson(const AuditReport& report);

}  // namespace tally
