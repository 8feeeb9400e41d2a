// SPDX-License-Identifier: Apache-2.0
// Which published figures hold, and under which convention: docs/claims.md, and its sections one by one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/render/table.h"
#include "engine/render/value.h"

namespace tally {

struct ClaimsSection {
  std::string name = {};   // "texts"
  std::string title = {};  // "Course texts"
  std::string text = {};   // what stands before the table, one paragraph
  Table table = {};        // every column has a name
  std::string note = {};   // behind it; may be empty
};
// The names of the sections, in the order of the page.
std::vector<std::string_view> ClaimsSectionNames();
// Those of these names, in the order of the page; none named: all. Counts every model that they name, about a second for all.
std::vector<ClaimsSection> ClaimsSections(const std::vector<std::string>& names = {});

// docs/claims.md, of all sections.
std::string ClaimsPage(const std::vector<ClaimsSection>& sections);
// For a terminal, in lines of at most `width` columns (0: of any).
std::string ClaimsPageText(const std::vector<ClaimsSection>& sections, size_t width);
// {"sections": [{"name", "title", "rows": [{column: cell}]}]}
Value ClaimsPageJson(const std::vector<ClaimsSection>& sections);
// One table of all sections, as RFC 4180: section, subject (a text or a model), claim, printed, counted, verdict, convention, remark,
// source.
std::string ClaimsPageCsv(const std::vector<ClaimsSection>& sections);

}  // namespace tally
