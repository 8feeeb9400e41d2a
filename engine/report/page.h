// SPDX-License-Identifier: Apache-2.0
// Reports as files: a page, and its pictures. Equal data gives equal bytes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/report/report_data.h"

namespace tally::report {

// One HTML file that asks for no other: pictures, tables, and a little script that adds pointing, sorting and filtering. Of several
// runs each part is shown side by side, and a table has the differences from the first one.
std::string RenderPage(std::span<const ReportData> runs);

struct NamedSvg {
  std::string name;  // "roofline"
  std::string svg;
};
// The pictures as files of their own.
std::vector<NamedSvg> RenderFigures(const ReportData& run);

}  // namespace tally::report
