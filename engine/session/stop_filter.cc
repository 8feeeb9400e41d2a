// SPDX-License-Identifier: Apache-2.0
#include "engine/session/stop_filter.h"

#include <algorithm>
#include <utility>

namespace tally {

StopFilter::StopFilter(std::vector<std::string> stops, std::vector<std::string> shown)
    : stops_(std::move(stops)), shown_(std::move(shown)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

std::string StopFilter::Push(std::string_view text) {
  if (stopped_) return {};
  pending_ += text;
  size_t cut = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = pending_.find(stop);
    if (at >= cut) continue;
    cut = at;
    stop_ = stop;
  }
  if (cut != std::string::npos) {
    stopped_ = true;
    if (std::ranges::find(shown_, stop_) != shown_.end()) cut += stop_.size();
    std::string out = pending_.substr(0, cut);
    pending_.clear();
    return out;
  }
  size_t held = 0;  // the longest end of the text that begins a stop string
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > held; --n) {
      if (std::string_view(stop).substr(0, n) == std::string_view(pending_).substr(pending_.size() - n)) held = n;
    }
  }
  std::string out = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, pending_.size() - held);
  return out;
}

std::string StopFilter::PushThrough(std::string_view text) {
  if (stopped_) return {};
  return std::exchange(pending_, {}).append(text);
}

std::string StopFilter::Finish() { return std::exchange(pending_, {}); }

}  // namespace tally
