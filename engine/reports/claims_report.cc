// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/claims_report.h"

#include <algorithm>

#include "engine/base/format.h"
#include "engine/render/table.h"
#include "engine/render/words.h"
#include "engine/studies/claims.h"

namespace tally {
namespace {

using books::Agreement;
using books::AgreementName;
using books::ClaimCheck;

// "no: 16.00 % more": how far the count is from the printed number, if it does not agree.
std::string HoldsText(const ClaimCheck& check, const ClaimCheck::Convention& c) {
  const auto printed = books::ParsePrinted(check.printed);
  if (c.agreement != Agreement::kNo || !printed || printed->value == 0) return std::string(AgreementName(c.agreement));
  const uint64_t distance = std::max(c.count, printed->value) - std::min(c.count, printed->value);
  return "no: " + Share(distance, printed->value) + (c.count > printed->value ? " more" : " less");
}

std::string ClaimText(const ClaimCheck& check) {
  std::string holds, fails;
  for (const ClaimCheck::Convention& c : NamedConventions(check)) {
    std::string& names = c.agreement != Agreement::kNo ? holds : fails;
    const bool loosely = c.agreement == Agreement::kTruncated || c.agreement == Agreement::kRoundedToZeros;
    names += (names.empty() ? "" : ", ") + c.name + (loosely ? " (" + std::string(AgreementName(c.agreement)) + ")" : "");
  }
  if (holds.empty()) return check.figure + " " + check.printed + " holds under no convention: not as " + fails;
  if (!check.holds()) {
    return check.figure + " " + check.printed + " does not hold as " + check.stated +
           ", which its source counts; it would hold as " + holds;
  }
  return check.figure + " " + check.printed + " holds as " + holds + (fails.empty() ? "" : ", not as " + fails);
}

}  // namespace

std::string ClaimsSentence(const PublishedClaims& claims) {
  std::string text;
  for (const ClaimCheck& check : claims.checks) text += (text.empty() ? "" : "; ") + ClaimText(check);
  return text + " (" + claims.published.source + ")";
}

std::string ClaimsText(std::span<const PublishedClaims> claims, size_t width) {
  std::string text;
  for (const PublishedClaims& one : claims) {
    Table t{one.model + ": published figures (" + one.published.source + ")",
            {"figure", "printed", "convention", "count", "holds"},
            {},
            {true, false, true, false, true}};
    for (const books::ClaimCheck& check : one.checks) {
      for (const auto& c : check.conventions) {
        t.rows.push_back({check.figure, check.printed, c.name, WithThousands(c.count), HoldsText(check, c)});
      }
    }
    text += (text.empty() ? "" : "\n") + Render(t, TableFormat::kText, width);
    for (const ClaimCheck& check : one.checks) text += Paragraph("", ClaimText(check), width, 2);
  }
  return text;
}

Table ClaimsTable(std::span<const PublishedClaims> claims) {
  Table t{"published figures",
          {"model", "figure", "printed", "convention", "count", "holds", "source"},
          {},
          {true, true, false, true, false, true, true}};
  for (const PublishedClaims& one : claims) {
    for (const books::ClaimCheck& check : one.checks) {
      for (const auto& c : check.conventions) {
        t.rows.push_back(
            {one.model, check.figure, check.printed, c.name, WithThousands(c.count), HoldsText(check, c), one.published.source});
      }
    }
  }
  return t;
}

std::string ClaimsMarkdown(std::span<const PublishedClaims> claims) {
  return Render(ClaimsTable(claims), TableFormat::kMarkdown);
}

Value ClaimsJson(const PublishedClaims& of) {
  const Value claims = Value::ListOf(of.checks, [](const ClaimCheck& check) -> Value {
    const Value conventions = Value::ListOf(check.conventions, [](const ClaimCheck::Convention& x) -> Value {
      return {{"convention", x.name}, {"count", x.count}, {"holds", AgreementName(x.agreement)}};
    });
    return {{"figure", check.figure},
            {"printed", check.printed},
            {"holds", check.holds()},
            {"stated", check.stated.empty() ? Value() : Value(check.stated)},
            {"conventions", conventions}};
  });
  return {{"source", of.published.source}, {"claims", claims}};
}

}  // namespace tally
