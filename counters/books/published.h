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
  bool from_memory = false;  // quoted from memory; the source was not checked
};

// "20.91B": value 20,910,000,000; unit, the value of the last digit, 10,000,000.
struct PrintedNumber {
  uint64_t value = 0, unit = 1;
};
// nullopt if the text is not such a number or does not fit.
TALLY_API std::optional<PrintedNumber> ParsePrinted(std::string_view text);

enum class Agreement : uint8_t { kNo, kExact, kRounded, kTruncated };
// kRounded: rounding the count to the printed digits gives `printed` (a half may go either way). kTruncated: dropping the others does,
// and two digits or more are printed: with one digit, nearly twice as much would still hold.
TALLY_API Agreement Agrees(uint64_t count, const PrintedNumber& printed);

struct ClaimCheck {
  std::string figure = {};  // "total", "active", "non-embedding"
  std::string printed = {};
  struct Convention {
    std::string name = {};  // "active(head)", "active(none) with multi-token prediction"
    uint64_t count = 0;
    Agreement agreement = Agreement::kNo;
  };
  std::vector<Convention> conventions = {};  // all that the figure may follow
  bool holds() const;                        // true if at least one agrees
};

// One check for each published figure.
TALLY_API std::vector<ClaimCheck> CheckPublished(const Count& count, const PublishedFigures& published);

}  // namespace tally::books
