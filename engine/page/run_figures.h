// SPDX-License-Identifier: Apache-2.0
// The pictures of a run. Nothing where the run has no data for one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/page/figure.h"
#include "engine/page/report_data.h"

namespace tally::page {

std::optional<Figure> ParametersFigure(const ReportData& run);   // where they live, and which each convention counts
std::optional<Figure> FlopsFigure(const ReportData& run);        // of a token, by component
std::optional<Figure> BytesFigure(const ReportData& run);        // the same
std::optional<Figure> DepthFigure(const ReportData& run);        // bytes of a token over its depth
std::optional<Figure> BandwidthFigure(const ReportData& run);    // bytes a second of each step, under the roof
std::optional<Figure> ExpertsFigure(const ReportData& run);      // tokens routed to each expert of each layer
std::optional<Figure> ExpertUnionFigure(const ReportData& run);  // experts read together, and what uniform routing expects
std::optional<Figure> ExpertReadsFigure(const ReportData& run);  // experts that were not in memory, by layer and step
std::optional<Figure> RooflineFigure(const ReportData& run);
std::optional<Figure> TimeFigure(const ReportData& run);
std::optional<Figure> SpeedFigure(const ReportData& run);  // what `bench` measured

// Means over the steps of a phase. Bytes are packed weights, KV read and KV written.
struct PhaseMeans {
  uint64_t steps = 0, tokens = 0;
  uint64_t shallowest = 0, deepest = 0;      // depths of its steps
  double flops = 0, bytes = 0, seconds = 0;  // of a token
};
PhaseMeans MeansOf(const ReportData& run, std::string_view phase);

// Experts that the steps of a phase chose, all layers together, of a model that reads some from disk; all 0: it does not. An empty phase:
// all steps.
struct ExpertReads {
  uint64_t hits = 0, misses = 0, first_uses = 0;
  double bytes = 0;
  double seconds = 0;  // of the steps, waiting for the disk included
};
ExpertReads ReadsOf(const ReportData& run, std::string_view phase);

// Seconds of ops that are alike, the longest first: component and op, all layers, phases and implementations.
struct OpTime {
  std::string name;
  uint64_t runs = 0;
  double seconds = 0;
};
std::vector<OpTime> TimesByOp(const ReportData& run);

// "decode", or what the run has of steps where it decodes nothing.
std::string MainPhase(const ReportData& run);

// Sum of packed weights, KV read and KV written.
uint64_t MovedBytes(const ReportData& run, const ReportWork& work);

}  // namespace tally::page
