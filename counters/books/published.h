// SPDX-License-Identifier: Apache-2.0
// Compares published parameter counts with the counts under each convention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "counters/books/model_count.h"
#include "engine/base/export.h"

namespace tally::books {

// Figures as a model's makers print them: "20.91B", "3,209M", "7,615,616,512"; empty if not published.
struct PublishedFigures {
  std::string total = {}, active = {}, non_embedding = {};
  std::string source = {};
  // The source says that it counts layers for multi-token prediction, and neither embedding nor head (GLM-4.5).
  bool body_and_prediction = false;
};

// value: "20.91B" is 20,910,000,000. unit: the value of its last digit, 10,000,000. digits: the value of the last digit that is no
// trailing zero of a whole number, since such zeros may be rounded: 10^10 of "230B", 10^8 of "400M", the unit of "4.0B".
struct PrintedNumber {
  uint64_t value = 0, unit = 1, digits = 1;
};
// nullopt if the text is not such a number or does not fit.
TALLY_API std::optional<PrintedNumber> ParsePrinted(std::string_view text);

enum class Agreement : uint8_t { kNo, kExact, kRounded, kTruncated, kRoundedToZeros };
// kRounded: rounding the count to the printed digits gives `printed` (a half may go either way). kTruncated: dropping all further digits
// does. That takes two printed digits or more, since with one digit a count of nearly twice as much would agree. kRoundedToZeros is never
// returned here, but by CheckPublished: rounding to PrintedNumber::digits gives `printed`, and no convention agrees better.
TALLY_API Agreement Agrees(uint64_t count, const PrintedNumber& printed);
// "exact", "rounded", "truncated", "rounded to its zeros", "no".
TALLY_API std::string_view AgreementName(Agreement agreement);

struct ClaimCheck {
  std::string figure = {};  // "total", "active", "non-embedding"
  std::string printed = {};
  struct Convention {
    std::string name = {};  // "active(head)", "active(none) with multi-token prediction"
    uint64_t count = 0;
    Agreement agreement = Agreement::kNo;
  };
  std::vector<Convention> conventions = {};  // all that the figure may follow
  std::string stated = {};                   // the one that the source says it follows; empty: it does not say
  bool holds() const;                        // true if the stated one agrees, or, if none is stated, at least one
};

// One check for each published figure.
TALLY_API std::vector<ClaimCheck> CheckPublished(const Count& count, const PublishedFigures& published);

}  // namespace tally::books
