// SPDX-License-Identifier: Apache-2.0
#include "engine/app/ranks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/options.h"
#include "engine/machine/communicator.h"

namespace tally::app {
namespace {

constexpr std::array<std::string_view, 7> kOnSeveral = {"run", "chat", "batch", "serve", "logits", "bench", "audit"};

struct State {
  std::unique_ptr<Communicator> group;
  bool silent = false;   // another rank says what is wrong
  bool started = false;  // the others follow
  RankOptions options;
};
State& Shared() {
  static State state;
  return state;
}

// What rank 0 tells: a model to load, whose path follows, or the end.
struct Order {
  uint64_t path_bytes = 0;  // 0: the end
  EngineOptions engine = {};
  bool guard_slices = false;
  Split split = Split::kAuto;
};
static_assert(std::is_trivially_copyable_v<Order>);

Status Send(Order& order, std::string& path) {
  std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(&order), sizeof order);
  TALLY_RETURN_IF_ERROR(Ranks()->Broadcast(bytes, Communicator::Wait::kIdle));
  path.resize(order.path_bytes);
  if (path.empty()) return {};
  return Ranks()->Broadcast({reinterpret_cast<uint8_t*>(path.data()), path.size()}, Communicator::Wait::kStep);
}

// What this rank is to report of a failure: it has the code, and an empty message where another rank says it.
Status BeforeReport(const Status& status) {
  const bool ends_group = Ranks() != nullptr && !Ranks()->status().ok();
  return Shared().silent && !ends_group && !status.ok() ? Status(status.code(), "") : status;
}

}  // namespace

RankOptions& RankOptionsOf() { return Shared().options; }
Communicator* Ranks() { return Shared().group.get(); }
bool IsFollower() { return Ranks() != nullptr && Ranks()->rank() > 0; }

Status StartRanks(const std::string& command) {
  const Launch launch = DetectLaunch();
  if (launch.ranks > 1) SetBeforeReport(BeforeReport);
  if (launch.ranks > 1 && std::ranges::find(kOnSeveral, command) == kOnSeveral.end()) {
    Shared().silent = launch.rank > 0;
    return BadInput("tally " + command + " runs in one process, not in " + std::to_string(launch.ranks) + " of " +
                    launch.launcher);
  }
  TALLY_ASSIGN_OR_RETURN(Shared().group, StartCommunicator({.keep_binding = Shared().options.keep_binding}));
  if (Ranks() == nullptr) return {};
  const std::pair<std::string_view, std::string> facts[] = {{"tally", kTallyVersion}};
  Status same = AgreeOn(*Ranks(), facts);
  Shared().silent = IsFollower();
  Shared().started = same.ok();
  return same;
}

Status TellRanks(const std::string& model, const EngineOptions& engine, const LoadOptions& options) {
  if (Ranks() == nullptr) return {};
  std::string path = model;
  Order order = {path.size(), engine, options.guard_slices, options.split};
  return Send(order, path);
}

Status FollowRanks() {
  while (true) {
    Order order;
    std::string given;
    TALLY_RETURN_IF_ERROR(Send(order, given));
    if (order.path_bytes == 0) return {};
    const Result<std::string> path = ModelPath(given);
    LoadOptions options;
    options.guard_slices = order.guard_slices;
    options.split = order.split;
    options.group = Ranks();
    // A path that is not to be had here fails in LoadModel, which tells all ranks.
    const auto model = LoadModel(path.ok() ? *path : given, order.engine, options);
    if (model.ok()) {
      const Status followed = FollowGroup(*model, order.engine);
      if (!followed.ok()) Ranks()->Fail(followed);
    }
    TALLY_RETURN_IF_ERROR(Ranks()->status());
  }
}

int EndRanks(int code) {
  if (Ranks() == nullptr) return code;
  Order end;
  std::string nothing;
  if (Shared().started && !IsFollower() && Ranks()->status().ok()) (void)Send(end, nothing);
  if (!Ranks()->status().ok()) Ranks()->Abort(code != 0 ? code : 2);
  Shared().group.reset();
  return code;
}

}  // namespace tally::app
