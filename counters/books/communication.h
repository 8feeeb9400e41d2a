// SPDX-License-Identifier: Apache-2.0
// Closed forms of what the ranks that run one model send each other. They share no code with the planner, so that a mistake in one shows as
// a difference.
//
//   Z        ranks
//   own(n)   elements that this rank computes, of a row's n
//   R_o      rows of the step whose embedding this rank has
//   M        rows routed to this rank's experts
//
// A gather gives every rank the whole: each sends its part to each other rank, and receives the parts of all others. Logits go to rank 0
// alone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "counters/books/closed_form.h"

namespace tally {
struct Shard;
enum class Role : uint8_t;
}  // namespace tally

namespace tally::books {

// The rows of a step that a rank has. They depend on the tokens and on routing.
struct RankRows {
  uint64_t embedded = 0;              // R_o
  std::vector<uint64_t> routed = {};  // M of each layer; may be empty without Shard::own_experts
};

// The format in which a matrix's input is gathered. If every rank has whole blocks, it is the packed format: `bytes` for each `block`
// elements of a row. Else, and by default, it is f32. Quantised weights read blocks of int8: 32 codes, a scale, and 8 bytes for each of a
// block's sums.
struct GatheredBytes {
  uint64_t block = 1, bytes = 4;
};
using GatheredBytesOf = std::function<GatheredBytes(Role role, int32_t layer)>;

// One gather, as a rank sees it.
struct CommunicationForm {
  int32_t layer = -1;
  Component component{};
  Form sent, received;             // bytes
  uint64_t messages_sent = 0;      // 0 if this rank's part is empty
  uint64_t messages_received = 0;  // one from each other rank that has a part
  bool to_first = false;           // only rank 0 waits for it
};
// In the order of a forward pass. `rows`: of every rank.
TALLY_API std::vector<CommunicationForm> CommunicationForms(const Recipe& recipe, const Shard& shard, const Workload& work,
                                                            std::span<const RankRows> rows, const GatheredBytesOf& gathered = {});

// Rows of a step, tokens, whose embedding each rank has.
TALLY_API std::vector<RankRows> EmbeddedRows(const Recipe& recipe, int32_t ranks, std::span<const int32_t> tokens);

// Sums over the gathers of a step.
struct Communication {
  uint64_t sent = 0, received = 0, messages_sent = 0, messages_received = 0;
  uint64_t gathers = 0;  // that this rank waits for
};
TALLY_API Communication SumOf(std::span<const CommunicationForm> forms);

}  // namespace tally::books
