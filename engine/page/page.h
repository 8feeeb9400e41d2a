// SPDX-License-Identifier: Apache-2.0
// The page of a report: one HTML document that needs nothing else, and its pictures as SVG. No call fails.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/base/export.h"
#include "engine/page/report_data.h"

namespace tally {

// One run, or several beside one another: UTF-8. It begins with "<!doctype html>", and `kReportMark` is in its first 1,024 bytes. Text out
// of `runs` is escaped, and bytes that are no UTF-8 become U+FFFD.
TALLY_API std::string RenderPage(std::span<const ReportData> runs);
inline constexpr const char* kReportMark = "<meta name=\"generator\" content=\"tally report\">";

struct ReportFigure {
  std::string name;  // of its file, without ".svg": letters, digits and hyphens, unique in the report
  std::string svg;   // a document of its own
};
// The pictures that there is something to show in.
TALLY_API std::vector<ReportFigure> RenderFigures(const ReportData& run);

}  // namespace tally
