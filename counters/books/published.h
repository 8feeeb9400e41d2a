// Published parameter counts against the conventions they may hold under.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "counters/books/model_count.h"
#include "engine/base/export.h"

namespace tally::books {

// What a model's makers print: "20.91B", "3,209M", "7,615,616,512"; empty where they say nothing.
struct PublishedFigures {
  std::string total, active, non_embedding;
  std::string source;
  bool from_memory = false;  // the text was not seen again when this was written: no evidence
};

// A printed number: its value, and what its last digit is worth ("20.91B": 20,910,000,000 and 10,000,000).
struct PrintedNumber {
  uint64_t value = 0, unit = 1;
};
// nullopt where the text is no number of this kind, or does not fit.
TALLY_API std::optional<PrintedNumber> ParsePrinted(std::string_view text);

enum class Agreement : uint8_t { kNo, kExact, kRounded, kTruncated };
// Whether a count, brought to the printed number's digits, is that number: to the nearest (a half either way), else towards 0.
TALLY_API Agreement Agrees(uint64_t count, const PrintedNumber& printed);

struct ClaimCheck {
  std::string figure;  // "total", "active", "non-embedding"
  std::string printed;
  struct Convention {
    std::string name;  // "active(head)", "active(none) with multi-token prediction"
    uint64_t count = 0;
    Agreement agreement = Agreement::kNo;
  };
  std::vector<Convention> conventions;  // all that could be meant
  bool holds() const;                   // under at least one
};

// One check for each figure that is printed.
TALLY_API std::vector<ClaimCheck> CheckPublished(const Count& count, const PublishedFigures& published);

}  // namespace tally::books
