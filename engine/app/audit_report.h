// SPDX-License-Identifier: Apache-2.0
// What tally audit prints: tables and bars, or a JSON document.
#pragma once

#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/json.h"

namespace tally::app {

// The published figures of the built-in models that this one is; what a decode step touched is one more way to read "active".
struct AuditClaims {
  std::vector<CountedModel> models;
  std::vector<std::vector<books::ClaimCheck>> checks;  // of each
};
AuditClaims ClaimsOf(const AuditReport& report, const Recipe& recipe);

// `claims`: null where they were not asked for. Bars are `width` columns wide.
std::string AuditText(const AuditReport& report, const Model& model, const AuditClaims* claims, int width, bool colour);

// Every row of every step. `name`: as it was asked for.
Json AuditDocument(const std::string& name, const AuditReport& report, const Model& model, const AuditClaims* claims);

}  // namespace tally::app
