// SPDX-License-Identifier: Apache-2.0
// How a model is best divided among the processes of a group, by the speed of the network and of the memories.
#pragma once

#include <span>
#include <string>

#include "counters/books/communication.h"
#include "counters/cost/site.h"
#include "engine/base/communicator.h"
#include "engine/base/status.h"
#include "engine/machine/parallel.h"
#include "engine/recipe/recipe.h"
#include "engine/session/model.h"

namespace tally {

// The estimated cost of decoding one token: bytes of weights that the slowest process reads, gathers, and bytes that it receives in them.
struct SplitEstimate {
  double weight_bytes = 0, gathers = 0, received_bytes = 0;
  double Seconds(double memory_bytes_per_s, double latency_s, double network_bytes_per_s) const {
    return weight_bytes / memory_bytes_per_s + gathers * latency_s + received_bytes / network_bytes_per_s;
  }
};
// `weights`: of the whole model (books/weight_table.h). `split`: kAll or kExperts.
SplitEstimate EstimateSplit(const Recipe& recipe, std::span<const WeightInfo> weights, int ranks, Split split);

// How the inputs of a matrix of this type are gathered, by machines with or without a bf16 dot product.
books::GatheredBytes GatheredAs(DType weight, ActivationMode activations, bool bf16_dots);

struct ChosenSplit {
  Split split = Split::kAll;
  std::string why =
      {};  // "every matrix is divided: 3.1 ms a token expected, 4.0 with whole experts (28 us, 2.1 GB/s between processes; ...)"
};
// All processes of the group call it; the same on all. A dense model's matrices are always divided. Errors of the group.
Result<ChosenSplit> ChooseSplit(Communicator& group, Team& team, const Recipe& recipe, std::span<const WeightInfo> weights,
                                Split wanted);

}  // namespace tally
