// SPDX-License-Identifier: Apache-2.0
// What is published of models, and under which convention it holds.
#pragma once

#include <string>
#include <vector>

#include "counters/books/published.h"
#include "engine/base/export.h"
#include "engine/studies/audit.h"
#include "engine/studies/count.h"

namespace tally {

// Each figure that is published of a model, under every convention that could be meant.
struct PublishedClaims {
  std::string model = {};
  books::PublishedFigures published = {};
  std::vector<books::ClaimCheck> checks = {};  // none: nothing is published
};
TALLY_API PublishedClaims ClaimsOf(const CountedModel& model);
// Of the built-in models that this one is; what a decode step touched is one more way to read "active".
TALLY_API std::vector<PublishedClaims> AuditClaims(const AuditReport& report, const Recipe& recipe);

// The conventions that are worth naming beside a figure: those that hold, the stated one, and others. Conventions with multi-token
// prediction are named only where they hold; that a total is not one without embedding and head only where none holds.
TALLY_API std::vector<books::ClaimCheck::Convention> NamedConventions(const books::ClaimCheck& check);

}  // namespace tally
