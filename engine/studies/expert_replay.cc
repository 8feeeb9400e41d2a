// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/expert_replay.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <variant>

namespace tally {
namespace {

std::string Listed(const std::vector<int64_t>& experts) {
  std::string text;
  for (const int64_t e : experts) text += (text.empty() ? "" : " ") + std::to_string(e);
  return text.empty() ? "none" : text;
}

// One layer's experts in memory.
class LeastRecentlyUsed {
 public:
  struct Decisions {
    std::vector<int64_t> missed;  // ascending
    uint64_t first_uses = 0;
  };

  Decisions Run(const ExpertStep& s) {
    slots_ = static_cast<size_t>(s.slots);
    ++step_;
    Decisions out;
    std::vector<Use> order;  // by last row
    for (size_t i = 0; i < s.experts.size(); ++i) order.push_back({step_, s.last_rows[i], s.experts[i]});
    for (const Use& use : order) {
      if (Held(use.expert)) continue;
      out.missed.push_back(use.expert);
      out.first_uses += ever_.insert(use.expert).second ? 1 : 0;
    }
    std::ranges::sort(order);
    if (order.size() <= slots_) {
      for (const Use& use : order) {
        std::erase_if(list_, [&](const Use& held) { return held.expert == use.expert; });
        list_.push_back(use);
      }
      if (list_.size() > slots_) list_.erase(list_.begin(), list_.end() - static_cast<std::ptrdiff_t>(slots_));
    } else {
      Pass(order);
    }
    return out;
  }

 private:
  struct Use {
    uint64_t step = 0;
    int64_t row = 0, expert = 0;
    auto operator<=>(const Use&) const = default;
  };

  bool Held(int64_t expert) const { return std::ranges::find(list_, expert, &Use::expert) != list_.end(); }

  // More experts than slots. The most recent ones are to stay; the others come and go in the order of their last rows. While experts that
  // were in memory are computed, their slots are not given away.
  void Pass(const std::vector<Use>& order) {
    struct Place {
      Use use;
      bool stays = false, in_use = false;
    };
    std::vector<Use> all, come;
    std::vector<Place> places;
    for (const Use& held : list_) {
      const auto again = std::ranges::find(order, held.expert, &Use::expert);
      all.push_back(again != order.end() ? *again : held);
      places.push_back({all.back(), false, again != order.end()});
    }
    for (const Use& use : order) {
      if (!Held(use.expert)) come.push_back(use);
    }
    all.insert(all.end(), come.begin(), come.end());
    std::ranges::sort(all);
    const std::set<Use> stay(all.end() - static_cast<std::ptrdiff_t>(std::min(all.size(), slots_)), all.end());
    for (Place& place : places) place.stays = stay.contains(place.use);

    size_t begun = 0, done = 0;
    const auto begin = [&] {
      for (; begun < come.size(); ++begun) {
        const Place next{come[begun], stay.contains(come[begun]), true};
        if (places.size() < slots_) {
          places.push_back(next);
          continue;
        }
        Place* gone = nullptr;
        for (Place& p : places) {
          // Two are always on their way.
          if (p.in_use || (p.stays && begun - done >= 2)) continue;
          if (gone == nullptr || std::tie(p.stays, p.use) < std::tie(gone->stays, gone->use)) gone = &p;
        }
        if (gone == nullptr) return;
        *gone = next;
      }
    };
    begin();
    for (Place& p : places) p.in_use = p.in_use && std::ranges::find(come, p.use) != come.end();
    begin();
    for (; done < come.size();) {
      for (Place& p : places) {
        if (p.use == come[done]) p.in_use = false;
      }
      ++done;
      begin();
    }
    list_.clear();
    for (const Place& p : places) list_.push_back(p.use);
    std::ranges::sort(list_);
  }

  std::vector<Use> list_;  // the least recently used first
  std::set<int64_t> ever_;
  size_t slots_ = 0;
  uint64_t step_ = 0;
};

}  // namespace

bool IsExpertStep(const OpRecord& record) {
  return std::ranges::any_of(record.description.settings, [](const auto& setting) { return setting.first == "experts"; });
}

Result<ExpertStep> ReadExpertStep(const OpRecord& record) {
  ExpertStep s{.step = record.step, .phase = record.phase, .layer = record.site.layer};
  s.disk_bytes = record.useful.Bytes(ByteKind::kWeightsDisk);
  std::set<std::string_view> found;
  for (const auto& [name, value] : record.description.settings) {
    found.insert(name);
    if (const auto* const list = std::get_if<std::vector<int64_t>>(&value)) {
      if (name == "experts") s.experts = *list;
      if (name == "last_rows") s.last_rows = *list;
      if (name == "missed") s.missed = *list;
    }
    if (const auto* const number = std::get_if<int64_t>(&value); number != nullptr && *number >= 0) {
      if (name == "slots") s.slots = *number;
      if (name == "first_uses") s.first_uses = static_cast<uint64_t>(*number);
      if (name == "record_bytes") s.record_bytes = static_cast<uint64_t>(*number);
    }
  }
  const auto ascending = [](const std::vector<int64_t>& list) {
    return std::ranges::adjacent_find(list, std::ranges::greater_equal()) == list.end() && (list.empty() || list[0] >= 0);
  };
  const bool good = s.slots > 0 && s.record_bytes > 0 && s.experts.size() == s.last_rows.size() && ascending(s.experts) &&
                    ascending(s.missed) && std::ranges::includes(s.experts, s.missed) && s.first_uses <= s.missed.size();
  if (!good) {
    return BadInput("step " + std::to_string(s.step) + ", layer " + std::to_string(s.layer) +
                    ": the experts are not listed as a run lists them");
  }
  return s;
}

ExpertReplay ReplayExperts(std::span<const ExpertStep> steps) {
  ExpertReplay replay;
  std::map<int32_t, std::pair<LeastRecentlyUsed, ExpertReplay::Layer>> layers;
  for (const ExpertStep& s : steps) {
    auto& [list, layer] = layers[s.layer];
    const LeastRecentlyUsed::Decisions made = list.Run(s);
    const ExpertUses uses{s.experts.size() - made.missed.size(), made.missed.size(), made.first_uses,
                          made.missed.size() * s.record_bytes};
    layer.layer = s.layer;
    layer.slots = s.slots;
    ++layer.steps;
    layer.recorded += s.uses();
    layer.replayed += uses;
    ++replay.compared;
    if (made.missed == s.missed && uses == s.uses()) continue;
    ++layer.differing;
    ++replay.differing;
    if (!replay.first.empty()) continue;
    replay.first = "step " + std::to_string(s.step) + ", layer " + std::to_string(s.layer) + ": ";
    replay.first += made.missed != s.missed ? "read " + Listed(s.missed) + ", by the replay " + Listed(made.missed)
                                            : "first uses or bytes differ";
  }
  for (auto& [number, layer] : layers) replay.layers.push_back(layer.second);
  return replay;
}

}  // namespace tally
