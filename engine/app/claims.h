// SPDX-License-Identifier: Apache-2.0
// What is published of models, and under which convention it holds.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/json.h"

namespace tally::app {

// "total 20.91B holds as total; active 3.61B holds as active(head), not as active(all), active(none) (arXiv 2508.10925, Table 1)"
std::string ClaimsSentence(const PublishedClaims& claims);
// All conventions: a table a model in lines of at most `width` columns (0: of any), its source in the title; in Markdown one table.
std::string ClaimsText(std::span<const PublishedClaims> claims, size_t width);
std::string ClaimsMarkdown(std::span<const PublishedClaims> claims);
Json ClaimsJson(const PublishedClaims& claims);

}  // namespace tally::app
