// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/claims.h"

#include <algorithm>
#include <utility>

namespace tally {

using books::ClaimCheck;

PublishedClaims ClaimsOf(const CountedModel& m) { return {m.name, m.published, books::CheckPublished(m.count, m.published)}; }

std::vector<PublishedClaims> AuditClaims(const AuditReport& report, const Recipe& recipe) {
  std::optional<uint64_t> touched;
  for (const AuditReport::Step& step : report.steps) {
    for (const books::AuditRow& r : step.audit) {
      if (IsDecode(step) && r.account == books::AuditAccount::kTouchedSet) touched = r.ledger;
    }
  }
  std::vector<PublishedClaims> all;
  for (const CountedModel& m : KnownModelsLike(recipe)) {
    PublishedClaims claims = ClaimsOf(m);
    if (claims.checks.empty()) continue;
    for (books::ClaimCheck& check : claims.checks) {
      const auto printed = books::ParsePrinted(check.printed);
      if (check.figure != "active" || !touched || !printed) continue;
      check.conventions.push_back({"touched by a decode step, measured", *touched, books::Agrees(*touched, *printed)});
    }
    all.push_back(std::move(claims));
  }
  return all;
}

std::vector<ClaimCheck::Convention> NamedConventions(const ClaimCheck& check) {
  const auto holds = [](const ClaimCheck::Convention& c) { return c.agreement != books::Agreement::kNo; };
  const bool none = std::ranges::none_of(check.conventions, holds);
  std::vector<ClaimCheck::Convention> named;
  for (const ClaimCheck::Convention& c : check.conventions) {
    const bool aside = c.name.ends_with("with multi-token prediction") || (c.name == "total without embedding and head" && !none);
    if (holds(c) || c.name == check.stated || !aside) named.push_back(c);
  }
  return named;
}

}  // namespace tally
