// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/marks.h"

#include <algorithm>

namespace tally {

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) + 1 - begin);
}

Fit FitAt(std::string_view text, size_t at, std::string_view mark) {
  const std::string_view rest = text.substr(at, mark.size());
  if (!mark.starts_with(rest)) return Fit::kNo;
  return rest.size() < mark.size() ? Fit::kPart : Fit::kYes;
}

void MarkSet::Add(std::string_view mark) {
  if (!mark.empty() && !Has(mark)) marks_.push_back(mark);
}

bool MarkSet::Has(std::string_view mark) const { return std::ranges::find(marks_, mark) != marks_.end(); }

MarkSet::Hit MarkSet::At(std::string_view text, size_t at) const {
  Hit hit = {Fit::kNo, at};
  for (const std::string_view mark : marks_) {
    const Fit fit = FitAt(text, at, mark);
    if (fit == Fit::kYes) return {fit, at, mark};
    if (fit == Fit::kPart) hit.fit = fit;
  }
  return hit;
}

MarkSet::Hit MarkSet::Find(std::string_view text, size_t from) const {
  for (; from < text.size(); ++from) {
    const Hit hit = At(text, from);
    if (hit.fit != Fit::kNo) return hit;
  }
  return {Fit::kNo, text.size()};
}

}  // namespace tally
