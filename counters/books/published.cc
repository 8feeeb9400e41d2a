// SPDX-License-Identifier: Apache-2.0
#include "counters/books/published.h"

#include <algorithm>
#include <utility>

namespace tally::books {

std::optional<PrintedNumber> ParsePrinted(std::string_view text) {
  PrintedNumber n;
  uint64_t scale = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'T': scale = 1'000'000'000'000; break;
      case 'B': scale = 1'000'000'000; break;
      case 'M': scale = 1'000'000; break;
      case 'K': scale = 1'000; break;
      default: break;
    }
  }
  if (scale > 1) text.remove_suffix(1);
  bool point = false, digits = false;
  n.unit = scale;
  for (const char c : text) {
    if (c == ',' && digits && !point) continue;
    if (c == '.' && digits && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    digits = true;
    if (point) {
      if (n.unit % 10 != 0) return std::nullopt;  // a fraction of a parameter
      n.unit /= 10;
    }
    if (__builtin_mul_overflow(n.value, uint64_t{10}, &n.value)) return std::nullopt;
    if (__builtin_add_overflow(n.value, static_cast<uint64_t>(c - '0'), &n.value)) return std::nullopt;
  }
  if (!digits || __builtin_mul_overflow(n.value, n.unit, &n.value)) return std::nullopt;
  n.digits = n.unit;
  while (!point && scale > 1 && n.value > 0 && n.value / n.digits % 10 == 0) n.digits *= 10;
  return n;
}

Agreement Agrees(uint64_t count, const PrintedNumber& printed) {
  if (printed.unit == 1) return count == printed.value ? Agreement::kExact : Agreement::kNo;
  const uint64_t distance = std::max(count, printed.value) - std::min(count, printed.value);
  if (2 * distance <= printed.unit) return Agreement::kRounded;
  const bool digits = printed.value / printed.unit >= 10;
  return digits && count >= printed.value && distance < printed.unit ? Agreement::kTruncated : Agreement::kNo;
}

std::string_view AgreementName(Agreement agreement) {
  switch (agreement) {
    case Agreement::kExact: return "exact";
    case Agreement::kRounded: return "rounded";
    case Agreement::kTruncated: return "truncated";
    case Agreement::kRoundedToZeros: return "rounded to its zeros";
    case Agreement::kNo: break;
  }
  return "no";
}

bool ClaimCheck::holds() const {
  return std::any_of(conventions.begin(), conventions.end(), [this](const Convention& c) {
    return c.agreement != Agreement::kNo && (stated.empty() || c.name == stated);
  });
}

std::vector<ClaimCheck> CheckPublished(const Count& count, const PublishedFigures& published) {
  uint64_t non_embedding = 0, prediction_active = 0;
  for (const ParameterForm& p : count.tensors) {
    if (p.apart()) {
      prediction_active += p.active.value();
    } else if (p.kind == WeightInfo::Kind::kBlock) {
      non_embedding += p.count.value();
    }
  }
  std::vector<ClaimCheck> checks;
  using Candidates = std::vector<std::pair<std::string, uint64_t>>;
  auto check = [&](const char* figure, const std::string& printed, Candidates candidates, uint64_t with_prediction) {
    if (printed.empty()) return;
    ClaimCheck c{figure, printed};
    const std::optional<PrintedNumber> number = ParsePrinted(printed);
    if (count.prediction > 0) {
      const size_t n = candidates.size();
      for (size_t i = 0; i < n; ++i) {
        candidates.emplace_back(candidates[i].first + " with multi-token prediction", candidates[i].second + with_prediction);
      }
      if (published.body_and_prediction) c.stated = candidates.back().first;  // the last is without embedding and head
    }
    for (auto& [name, value] : candidates) {
      c.conventions.push_back({std::move(name), value, number ? Agrees(value, *number) : Agreement::kNo});
    }
    const auto agrees = [](const ClaimCheck::Convention& of) { return of.agreement != Agreement::kNo; };
    if (number && number->digits > number->unit && std::ranges::none_of(c.conventions, agrees)) {
      const PrintedNumber coarse{number->value, number->digits, number->digits};
      for (ClaimCheck::Convention& of : c.conventions) {
        if (Agrees(of.count, coarse) == Agreement::kRounded) of.agreement = Agreement::kRoundedToZeros;
      }
    }
    checks.push_back(std::move(c));
  };
  const ParameterCounts& p = count.parameters;
  check("total", published.total, {{"total", p.total}, {"total without embedding and head", non_embedding}}, count.prediction);
  check("active", published.active,
        {{"active(all)", p.active_all}, {"active(head)", p.active_head}, {"active(none)", p.active_none}}, prediction_active);
  check("non-embedding", published.non_embedding, {{"total without embedding and head", non_embedding}}, count.prediction);
  return checks;
}

}  // namespace tally::books
