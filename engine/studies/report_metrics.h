// SPDX-License-Identifier: Apache-2.0
// The metrics of a run that papers name; internal to the studies.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/page/report_data.h"
#include "engine/studies/fit.h"

namespace tally {

// Steps of one phase.
struct MetricInput {
  std::string phase = {};
  double seconds = 0;     // time in the ops
  uint64_t moved = 0;     // bytes: packed weights that the steps read, each once a step, and KV read and written
  uint64_t dense = 0;     // the same if each step had read all weights
  double palm_flops = 0;  // sum over rows of 2 N + 4 L H Q T: N all parameters, T positions; 0: unknown
  std::array<uint64_t, kFitUnits> useful = {}, executed = {};  // FLOPs by FitUnit
};

// Operations per second of this mix of FLOPs if each kind ran at its peak: sum / sum(FLOPs / peak). bf16 without a peak runs as f32.
// 0: a peak is unknown, or there are no FLOPs.
double PeakOfMix(const std::array<uint64_t, kFitUnits>& flops, const ReportRoofs& roofs);
// "int8 97.0 %, f32 3.0 %", largest first; of a single kind its name.
std::string MixName(const std::array<uint64_t, kFitUnits>& flops);

// S-MBU, MBU, S-MFU, MFU and HFU, those that can be defined.
std::vector<ReportMetric> Metrics(const MetricInput& input, const ReportRoofs& roofs);

}  // namespace tally
