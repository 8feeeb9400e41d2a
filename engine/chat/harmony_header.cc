// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/harmony_header.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/chat/marks.h"

namespace tally {
namespace {

using Opener = HarmonySection::Opener;
using Follows = HarmonySection::Follows;

constexpr std::string_view kTo = "to=", kAssistant = "assistant", kBrowser = "browser.";
constexpr std::array<std::string_view, 3> kChannels = {"analysis", "commentary", "final"};
constexpr std::array<std::string_view, 6> kRoles = {kAssistant, "user", "system", "developer", "tool", "python"};
constexpr std::array<std::string_view, 3> kContentTypes = {"json", "code", "text"};
constexpr std::array<std::string_view, 5> kNobody = {"", kAssistant, "user", "all", "developer"};  // recipients that are no tools
// Longer sections are no headers; so little is held back at most.
constexpr size_t kLongestSection = 256;

bool HasWord(const auto& list, std::string_view word) { return std::find(list.begin(), list.end(), word) != list.end(); }

bool BeginsWord(const auto& list, std::string_view part) {
  return std::any_of(list.begin(), list.end(), [&](std::string_view word) { return word.starts_with(part); });
}

// The name of the role goes before other words without a space, or twice, where a token between them is missing.
std::string_view WithoutRole(std::string_view word) {
  while (word.size() > kAssistant.size() && word.starts_with(kAssistant)) word.remove_prefix(kAssistant.size());
  return word;
}

bool NamesTool(std::string_view word) { return word.starts_with(kHarmonyFunctions) || word.starts_with(kBrowser); }

bool IsHeaderWord(std::string_view word) {
  word = WithoutRole(word);
  return word.starts_with(kTo) || NamesTool(word) || HasWord(kChannels, word) || HasWord(kRoles, word) ||
         HasWord(kContentTypes, word);
}

bool MayBecomeHeaderWord(std::string_view part) {
  part = WithoutRole(part);
  return IsHeaderWord(part) || kTo.starts_with(part) || kHarmonyFunctions.starts_with(part) || kBrowser.starts_with(part) ||
         BeginsWord(kChannels, part) || BeginsWord(kRoles, part) || BeginsWord(kContentTypes, part);
}

class SectionReader {
 public:
  explicit SectionReader(const HarmonySection& section)
      : section_(section), text_(section.text), opened_(section.opener != Opener::kPrompt && section.opener != Opener::kStop) {
    if (text_.size() > kLongestSection) {
      too_long_ = true;
      text_ = text_.substr(0, kLongestSection);
      section_.follows = Follows::kMore;
    }
  }

  size_t Read(HarmonyHeader* header) {
    if (!opened_ && section_.follows == Follows::kEnd)
      return text_.find_first_not_of(kWhiteSpace) == text_.npos ? text_.size() : 0;
    for (size_t at = 0;;) {
      const size_t begin = std::min(text_.find_first_not_of(kWhiteSpace, at), text_.size());
      const size_t end = std::min(text_.find_first_of(kWhiteSpace, begin), text_.size());
      if (begin == text_.size() && section_.follows != Follows::kMore) return text_.size();
      switch (Judge(begin, end)) {
        case Verdict::kHeader: break;
        case Verdict::kOpen: return too_long_ ? BodyAt(at) : text_.size();
        case Verdict::kBody: return BodyAt(begin);
      }
      Take(text_.substr(begin, end - begin), begin, header);
      at = end;
    }
  }

 private:
  enum class Verdict : uint8_t { kHeader, kBody, kOpen };

  // Without a token before it, text that is no header is none from its beginning.
  size_t BodyAt(size_t at) const { return opened_ ? at : 0; }

  // Of the word from `begin` to `end`.
  Verdict Judge(size_t begin, size_t end) const {
    const std::string_view word = text_.substr(begin, end - begin);
    if (end < text_.size()) return IsHeaderWord(word) ? Verdict::kHeader : JudgeName(begin, end);
    if (section_.follows == Follows::kMore) return opened_ || MayBecomeHeaderWord(word) ? Verdict::kOpen : Verdict::kBody;
    if (IsHeaderWord(word)) return Verdict::kHeader;
    const bool belongs = section_.follows == Follows::kToken || MayBecomeHeaderWord(word);  // cut short, in the latter case
    return opened_ && belongs ? Verdict::kHeader : Verdict::kBody;
  }

  // Of an unknown word before white space: an author or a channel may have any name where a recipient or a token comes next.
  Verdict JudgeName(size_t begin, size_t end) const {
    const bool named = section_.opener == Opener::kStart || section_.opener == Opener::kChannel;
    if (!named || !IsFirst(begin)) return Verdict::kBody;
    const std::string_view rest = text_.substr(std::min(text_.find_first_not_of(kWhiteSpace, end), text_.size()));
    if (rest.starts_with(kTo)) return Verdict::kHeader;
    if (section_.follows == Follows::kMore) return kTo.starts_with(rest) ? Verdict::kOpen : Verdict::kBody;
    return rest.empty() && section_.follows == Follows::kToken ? Verdict::kHeader : Verdict::kBody;
  }

  bool IsFirst(size_t begin) const { return text_.find_first_not_of(kWhiteSpace) == begin; }

  void Take(std::string_view word, size_t begin, HarmonyHeader* header) {
    word = WithoutRole(word);
    const bool author = IsFirst(begin) && (section_.opener == Opener::kStart || section_.opener == Opener::kStop);
    const bool any_channel = IsFirst(begin) && section_.opener == Opener::kChannel && header->channel.empty();
    if (word.starts_with(kTo)) {
      word.remove_prefix(kTo.size());
      if (!HasWord(kNobody, word)) header->recipient = word;
    } else if (NamesTool(word)) {
      if (!author) header->recipient = word;
    } else if (any_channel || HasWord(kChannels, word)) {
      header->channel = word;
    }
  }

  HarmonySection section_;
  std::string_view text_;
  bool opened_;  // by a token
  bool too_long_ = false;
};

}  // namespace

size_t HarmonyHeaderBytes(const HarmonySection& section, HarmonyHeader* header) {
  HarmonyHeader said = *header;
  const size_t bytes = SectionReader(section).Read(&said);
  const bool undecided = section.follows == Follows::kMore && bytes == section.text.size();
  if (bytes > 0 && !undecided) *header = std::move(said);
  return bytes;
}

}  // namespace tally
