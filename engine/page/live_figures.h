// SPDX-License-Identifier: Apache-2.0
// What a server shows of its engine while it runs: plain figures, which the caller fills after a step, and the event of GET /live.
//
// Names are the ledger's: classes of work ("linear"), kinds of bytes ("weights packed", "KV read"), types of arithmetic ("int8"). Amounts
// are those of useful work. Nothing here fails; what is 0 or empty is not known and not shown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/page/report_data.h"

namespace tally {

struct LiveAmount {
  std::string name;
  uint64_t amount = 0;
};

// One step of the engine, or the mean of the last ones, all rows of a step together. A token's figures are a step's, divided by its rows.
struct LiveStep {
  uint64_t number = 0;  // steps since the server began
  uint64_t steps = 1;   // of which this is the mean
  double rows = 0;
  double seconds = 0;
  std::vector<LiveAmount> flops_by_class = {};
  std::vector<LiveAmount> flops_by_type = {};  // the same FLOPs
  std::vector<LiveAmount> bytes_by_kind = {};  // weights, KV and states are shown; activations and the weights as stored are not
  uint64_t parameters_touched = 0;
};

// One of the steps before, and the last one.
struct LiveMoment {
  uint64_t step = 0;  // its number
  double rows = 0;
  double seconds = 0;
  uint64_t bytes = 0;  // weights, KV and states
};

// A sparse layer.
struct LiveExperts {
  int32_t layer = 0;
  std::vector<uint64_t> step = {};   // rows that the last step routed to each expert
  std::vector<uint64_t> total = {};  // the same since the server began
};

struct LiveFigures {
  std::string model = {};
  uint64_t parameters = 0, active_parameters = 0;  // active(all)
  uint64_t tokens = 0;                             // drawn since the server began
  LiveStep step = {};
  std::vector<LiveMoment> recent = {};  // by step; the last 64 or so
  ReportRoofs roofs = {};
  uint64_t kv_bytes = 0, state_bytes = 0, budget_bytes = 0;  // in use, in use, for both
  uint64_t running = 0, waiting = 0;                         // requests
  std::vector<LiveExperts> experts = {};
};

enum class LiveParts : uint8_t {
  kAll,      // a client's first event
  kChanging  // without the frame of the experts' picture
};

// "event: step\ndata: {...}\n\n". One line of JSON:
//   model, tokens, running, waiting, parameters {total, active, touched}, memory {kv, state, budget},
//   step {number, steps, rows, seconds, flops, bytes, flops_by_class, flops_by_type, bytes_by_kind}, token {seconds, flops, bytes},
//   roofs {read, flops {TYPE}, read_seconds, flops_seconds}: the token's time at either roof,
//   experts: a letter for each expert of each layer (page::HeatLevels),
//   pictures {parameters, time, recent, bytes, flops, roofline, memory, experts}: <svg> elements; those that there is something to show
//   in.
std::string LiveEvent(const LiveFigures& figures, LiveParts parts);

}  // namespace tally
