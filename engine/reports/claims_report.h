// SPDX-License-Identifier: Apache-2.0
// What is published of models, and under which convention it holds.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"
#include "engine/render/table.h"
#include "engine/render/value.h"
#include "engine/studies/claims.h"

namespace tally {

// "total 20.91B holds as total; active 3.61B holds as active(head), not as active(all), active(none) (arXiv 2508.10925, Table 1)"
TALLY_API std::string ClaimsSentence(const PublishedClaims& claims);
// All conventions: a table a model in lines of at most `width` columns (0: of any), its source in the title; in Markdown one table.
TALLY_API std::string ClaimsText(std::span<const PublishedClaims> claims, size_t width);
TALLY_API std::string ClaimsMarkdown(std::span<const PublishedClaims> claims);
TALLY_API Table ClaimsTable(std::span<const PublishedClaims> claims);  // all of them
TALLY_API Value ClaimsJson(const PublishedClaims& claims);

}  // namespace tally
