// SPDX-License-Identifier: Apache-2.0
// The pictures of a run. Nothing where the run has no data for one.
#pragma once

#include <optional>
#include <vector>

#include "engine/report/figure.h"
#include "engine/report/report_data.h"

namespace tally::report {

std::optional<Figure> ParametersFigure(const ReportData& run);    // where they live, and which are active by each convention
std::optional<Figure> FlopsFigure(const ReportData& run);         // of a decode token, by component
std::optional<Figure> BytesFigure(const ReportData& run);         // the same
std::optional<Figure> DepthFigure(const ReportData& run);         // bytes of a decode token over its position
std::optional<Figure> BandwidthFigure(const ReportData& run);     // bytes a second of each decode step, under the roof
std::optional<Figure> ExpertsFigure(const ReportData& run);       // tokens routed to each expert of each layer
std::optional<Figure> ExpertUnionFigure(const ReportData& run);   // experts that a step reads, and what uniform routing expects
std::optional<Figure> RooflineFigure(const ReportData& run);
std::optional<Figure> TimeFigure(const ReportData& run);

// All of them, in the page's order.
std::vector<Figure> AllFigures(const ReportData& run);

// Means over the decode steps, of one token. 0 where there are none.
struct DecodeMeans {
  double tokens = 0, flops = 0, bytes = 0, seconds = 0;
};
DecodeMeans MeansOfDecode(const ReportData& run);

// Seconds of ops that are alike, the longest first: component and op, all layers, phases and implementations.
struct OpTime {
  std::string name;
  uint64_t calls = 0;
  double seconds = 0;
};
std::vector<OpTime> TimesByOp(const ReportData& run);

}  // namespace tally::report
