// SPDX-License-Identifier: Apache-2.0
// The states and rows that a store keeps of a sequence for recurrent layers.
//
// A step starts at the last state. It overwrites that state if an earlier state, with the rows since, still leads back. States at multiples
// of kStateRows stay, with the rows from the first of them on. A long step also stores one state between its ends, and the rows from there
// on. A step with drafts also stores the state after its first row, which is never taken back. So a sequence has at most three states.
#include <algorithm>

#include "engine/graph/sequence_store.h"

namespace tally {
namespace {

// A long step keeps a state at least so far before its end: the last tokens of a prompt may differ in the next turn of a conversation.
constexpr int64_t kBeforeEnd = 8;

}  // namespace

std::span<const StateTable> SequenceStore::States(int32_t layer) const { return layers_[static_cast<size_t>(layer)].states; }

// States that remain when the sequence is cut to `length`; 0: no step could start from them.
size_t SequenceStore::StatesAt(const Sequence& s, int64_t length) {
  const auto beyond = std::ranges::find_if(s.states, [&](const State& state) { return state.at > length; });
  const size_t left = static_cast<size_t>(beyond - s.states.begin());
  if (left == 0) return 0;
  const int64_t at = s.states[left - 1].at;
  return at == length || at >= s.RowsFrom(length) ? left : 0;
}

// Keeps the first `kept` of a sequence's states.
void SequenceStore::DropStates(Sequence& s, size_t kept) {
  for (size_t i = kept; i < s.states.size(); ++i) {
    if (s.states[i].id >= 0) Drop(state_group(), s.states[i].id);
  }
  s.states.resize(std::min(kept, s.states.size()));
}

SequenceStore::StatePlan SequenceStore::PlanStates(const Sequence& s, int64_t n, bool keep_first) const {
  StatePlan plan;
  if (!recurrent()) return plan;
  const int64_t end = s.length + n;
  const State last = s.states.back();
  // The rows that are kept begin at most two blocks before the end.
  const int64_t first = (end + kStateRows - 1) / kStateRows * kStateRows - 2 * kStateRows;
  const auto before_last = std::span(s.states).first(s.states.size() - 1);
  const auto useful = [&](const State& state) { return state.at >= std::max(s.rows_from, first); };
  const bool whole = std::ranges::any_of(before_last, [&](const State& x) { return useful(x) && x.at % kStateRows == 0; });
  const bool alone = last.id >= 0 && pool_->references(state_group(), last.id) == 1 && pool_->holder(state_group(), last.id) < 0;
  const bool can_move = last.at == s.length && last.at % kStateRows != 0 && alone;
  if (keep_first && n > 1) {
    plan.mid_at = s.length + 1;
    for (const State& state : before_last) {
      if (can_move && useful(state) && state.at % kStateRows == 0) plan.kept = {state};
    }
    plan.in_place = !plan.kept.empty();
    plan.kept.push_back(last);
    plan.rows_from = plan.rows_from_then = std::max(s.rows_from, plan.kept.front().at);
    return plan;
  }
  const int64_t mid = (end - kBeforeEnd) / kStateRows * kStateRows;
  plan.mid_at = mid > s.length ? mid : 0;
  for (const State& state : before_last) {
    if (plan.mid_at > 0 && last.at == s.length) break;  // the last state alone is enough to go back to
    if (useful(state) && (whole ? state.at % kStateRows == 0 : plan.kept.empty())) plan.kept.push_back(state);
  }
  plan.in_place = !plan.kept.empty() && can_move;
  if (!plan.in_place && plan.kept.size() > 1) plan.kept.erase(plan.kept.begin());
  plan.kept.push_back(last);
  plan.rows_from = std::max(s.rows_from, plan.kept.front().at);
  plan.rows_from_then = plan.mid_at > 0 && plan.rows_from < first ? plan.mid_at : plan.rows_from;
  return plan;
}

// Blocks of rows that Extend takes.
uint64_t SequenceStore::RowBlocksToTake(const Sequence& s, size_t group, int64_t n, const StatePlan& plan) const {
  const int64_t first = std::max(plan.rows_from_then / kStateRows, (s.length + kStateRows - 1) / kStateRows);
  uint64_t blocks = static_cast<uint64_t>(std::max<int64_t>(0, groups_[group].BlocksFor(s.length + n) - first));
  if (s.length % kStateRows != 0) {
    const bool wanted = plan.rows_from_then / kStateRows <= s.length / kStateRows;
    blocks += WritesShared(s, group) || (wanted && s.held[group].ids.back() < 0) ? 1 : 0;
  }
  return blocks;
}

// Blocks for the rows that the step keeps. Called before the sequence's length changes.
void SequenceStore::ExtendRows(size_t group, int32_t sequence, int64_t n, const StatePlan& plan) {
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const std::vector<int32_t>& ids = s.held[group].ids;
  const size_t first = static_cast<size_t>(plan.rows_from_then / kStateRows);
  if (WritesShared(s, group)) {
    CopyLast(group, sequence);
  } else if (s.length % kStateRows != 0 && ids.back() < 0 && ids.size() > first) {
    Put(group, sequence, ids.size() - 1, Take(group).id);
  }
  const size_t blocks = static_cast<size_t>(groups_[group].BlocksFor(s.length + n));
  while (ids.size() < blocks) Append(group, sequence, ids.size() < first ? -1 : Take(group).id);
  for (const size_t l : groups_[group].layers) {
    StateTable& table = layers_[l].states[static_cast<size_t>(sequence)];
    table.rows = layers_[l].pointers[static_cast<size_t>(sequence)].data();
    table.count = static_cast<int64_t>(ids.size());
  }
}

void SequenceStore::ExtendStates(int32_t sequence, int64_t n, const StatePlan& plan) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  for (const State& state : s.states) {
    const bool kept = std::ranges::any_of(plan.kept, [&](const State& k) { return k.at == state.at; });
    if (!kept && state.id >= 0) Drop(state_group(), state.id);
  }
  s.states = plan.kept;
  s.rows_from = plan.rows_from_then;
  s.before = s.length;
  s.rows_from_before = plan.rows_from;
  const State from = s.states.back();
  const State mid{plan.mid_at, plan.mid_at > 0 ? Take(state_group()).id : -1};
  const State to{s.length + n, plan.in_place ? from.id : Take(state_group()).id};
  if (plan.in_place) s.states.pop_back();
  if (mid.at > 0) s.states.push_back(mid);
  s.states.push_back(to);
  for (Layer& layer : layers_) {
    if (groups_.empty() || !groups_[layer.group].rows || layer.bytes == 0) continue;
    const auto data = [&](const State& state) { return state.id < 0 ? nullptr : StateOf(state.id) + layer.state_offset; };
    StateTable& table = layer.states[static_cast<size_t>(sequence)];
    table.from = data(from);
    table.at = from.at;
    table.to = data(to);
    table.mid = data(mid);
    table.mid_at = mid.at;
  }
}

// From now on the index finds the last `states` of the sequence's states that lie within `tokens`.
void SequenceStore::RememberStates(const Sequence& s, std::string_view key, std::span<const int32_t> tokens, int32_t states) {
  int32_t kept = 0;
  for (size_t i = s.states.size(); i > 0 && kept < states; --i) {
    const State& state = s.states[i - 1];
    if (state.id < 0 || state.at > static_cast<int64_t>(tokens.size())) continue;
    ++kept;
    const PrefixIndex::Path path = index_.Find(key, tokens.first(static_cast<size_t>(state.at)));
    const bool known = std::ranges::any_of(path.states, [&](const PrefixIndex::State& k) { return k.at == state.at; });
    if (known || path.length != state.at || pool_->holder(state_group(), state.id) >= 0) continue;
    index_.AddState(path.nodes.back(), state.at, state.id);
    pool_->Hold(state_group(), state.id, path.nodes.back());
  }
}

}  // namespace tally
