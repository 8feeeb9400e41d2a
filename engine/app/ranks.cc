// SPDX-License-Identifier: Apache-2.0
#include "engine/app/ranks.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/app/commands.h"
#include "engine/machine/communicator.h"

namespace tally::app {
namespace {

constexpr std::array<std::string_view, 7> kOnSeveral = {"run", "chat", "batch", "serve", "logits", "bench", "audit"};
constexpr const char* kFollowed = "followed";

struct State {
  std::unique_ptr<Communicator> group;
  bool agreed = false;
  RankOptions options;
};
State& Shared() {
  static State state;
  return state;
}

}  // namespace

RankOptions& RankOptionsOf() { return Shared().options; }
Communicator* Ranks() { return Shared().group.get(); }
void RanksAgree() { Shared().agreed = true; }
Status Followed() { return {StatusCode::kInterrupted, kFollowed}; }

Status StartRanks(const std::string& command) {
  const Launch launch = DetectLaunch();
  if (launch.ranks > 1 && std::ranges::find(kOnSeveral, command) == kOnSeveral.end()) {
    if (launch.rank > 0) return Followed();  // rank 0 says it
    return BadInput("tally " + command + " runs in one process, not in " + std::to_string(launch.ranks) + " of " + launch.launcher);
  }
  TALLY_ASSIGN_OR_RETURN(Shared().group, StartCommunicator({.keep_binding = Shared().options.keep_binding}));
  if (Ranks() == nullptr) return {};
  const std::pair<std::string_view, std::string> facts[] = {{"tally", kTallyVersion}};
  const Status same = AgreeOn(*Ranks(), facts);
  if (!same.ok()) RanksAgree();
  return same;
}

Status BeforeReport(const Status& status) {
  Communicator* const group = Ranks();
  if (group == nullptr) return status.message() == kFollowed ? Status() : status;
  if (status.message() == kFollowed) return {};
  Status said = status;
  if (!std::exchange(Shared().agreed, true) && !status.ok() && group->status().ok()) said = Together(*group, status);
  // What all ranks know rank 0 says; what ends the group each says that knows it, and the first to do so ends the others.
  if (group->rank() > 0 && group->status().ok()) return {said.code(), ""};
  return said;
}

int EndRanks(int code) {
  if (Ranks() == nullptr) return code;
  if (!Ranks()->status().ok()) Ranks()->Abort(code != 0 ? code : 2);
  Shared().group.reset();
  return code;
}

}  // namespace tally::app
