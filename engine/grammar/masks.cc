// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/masks.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_set>
#include <utility>

namespace tally {
namespace {

constexpr uint64_t kMostBytes = uint64_t{64} << 20;  // beyond it, masks are found again

void Allow(std::vector<uint64_t>& mask, int32_t token) { mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64); }
bool Allows(const std::vector<uint64_t>& mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

}  // namespace

VocabularyMasks::VocabularyMasks(Expressions& e, std::shared_ptr<const Vocabulary> vocabulary)
    : e_(e), vocabulary_(std::move(vocabulary)), path_(vocabulary_->longest() + 1) {}

// Adds the tokens below a node, which `state` has read.
void VocabularyMasks::Walk(uint32_t node, Expr state, Mask& mask) {
  const Vocabulary::Node* const nodes = vocabulary_->nodes().data();
  const uint32_t base = nodes[node].depth, end = node + nodes[node].size;
  Expr* const states_read = path_.data();
  Expressions::Reader reader(e_);
  states_read[base] = state;
  size_t steps = 1;
  for (uint32_t i = node + 1; i < end && !e_.is_full();) {
    const Vocabulary::Node& n = nodes[i];
    const Expr next = reader.Next(states_read[n.depth - 1u], n.byte);
    if (next == Expressions::kNone) {
      i += n.size;
      continue;
    }
    if (n.token >= 0) Allow(mask, n.token);
    states_read[n.depth] = next;
    ++i;
    ++steps;
  }
  e_.Walked(steps);
}

const VocabularyMasks::Part& VocabularyMasks::PartOf(Expr part) {
  const auto [place, is_new] = parts_.try_emplace(part);
  Part& kept = place->second;
  if (!is_new) return kept;
  const std::span<const Vocabulary::Node> nodes = vocabulary_->nodes();
  // The parts that a text has begun, by its state; none: it cannot be told.
  const uint32_t most = vocabulary_->longest() + 1;
  const auto begun = [&](Expr state) -> std::optional<uint32_t> {
    while (e_.kind(state) == ExprKind::kConcat) state = e_.tail(state);
    if (e_.kind(state) == ExprKind::kRepeat && e_.part(state) == part) return most - e_.most(state);
    return std::nullopt;
  };
  Expr* const states_read = path_.data();
  states_read[0] = e_.Repeat(part, 0, most);
  kept.is_counted = !e_.MayEnd(part);
  for (uint32_t i = 1; i < nodes.size() && kept.is_counted;) {
    const Vocabulary::Node& n = nodes[i];
    const Expr before = states_read[n.depth - 1u];
    if (e_.MayEnd(before)) kept.ends[n.byte].push_back({i, *begun(before)});
    const Expr next = e_.Next(before, n.byte);
    states_read[n.depth] = next;
    if (next == Expressions::kNone) {
      i += n.size;
      continue;
    }
    const std::optional<uint32_t> count = begun(next);
    kept.is_counted = count.has_value();
    if (count && n.token >= 0) {
      if (kept.tokens.size() <= *count) kept.tokens.resize(*count + 1);
      kept.tokens[*count].push_back(n.token);
    }
    ++i;
  }
  if (!kept.is_counted) {
    kept = Part();
    kept.is_counted = false;
  }
  for (const auto& of_byte : kept.ends) bytes_ += of_byte.size() * sizeof(Part::Node);
  return kept;
}

const VocabularyMasks::Mask& VocabularyMasks::Within(Part& part, uint32_t most) {
  most = std::min(most, static_cast<uint32_t>(part.tokens.size()));
  const auto [place, is_new] = part.within.try_emplace(most);
  if (!is_new) return place->second;
  Mask& mask = place->second;
  mask.resize(vocabulary_->words());
  uint32_t from = 0;
  if (place != part.within.begin()) {
    mask = std::prev(place)->second;
    from = std::prev(place)->first + 1;
  }
  for (uint32_t count = from; count <= most && count < part.tokens.size(); ++count) {
    for (const int32_t token : part.tokens[count]) Allow(mask, token);
  }
  bytes_ += mask.size() * sizeof(uint64_t);
  return mask;
}

// Of a part that is counted between bounds, and what follows it. False: its texts do not say how many parts they are.
bool VocabularyMasks::AddCounted(Expr repeat, Expr tail, Mask& mask) {
  if (!PartOf(e_.part(repeat)).is_counted) return false;
  Part& part = parts_.at(e_.part(repeat));
  const uint32_t least = e_.least(repeat), most = e_.most(repeat);
  const Mask& within = Within(part, most);
  for (size_t w = 0; w < mask.size(); ++w) mask[w] |= within[w];
  const std::span<const Vocabulary::Node> nodes = vocabulary_->nodes();
  const ByteSet first = e_.FirstBytes(tail);
  for (int byte = 0; byte < 256; ++byte) {
    if (!first.Has(static_cast<uint8_t>(byte))) continue;
    const Expr next = e_.Next(tail, static_cast<uint8_t>(byte));
    for (const auto& [node, count] : part.ends[static_cast<size_t>(byte)]) {
      if (count < least || count > most) continue;
      if (nodes[node].token >= 0) Allow(mask, nodes[node].token);
      if (nodes[node].size > 1) Walk(node, next, mask);
    }
  }
  return true;
}

void VocabularyMasks::Add(Expr state, Mask& mask) {
  if (e_.kind(state) == ExprKind::kOr) {
    const std::vector<Expr> parts(e_.parts(state).begin(), e_.parts(state).end());
    for (const Expr part : parts) {
      if (!e_.IsNone(part)) Add(part, mask);
    }
    return;
  }
  if (e_.kind(state) != ExprKind::kConcat || e_.kind(e_.head(state)) == ExprKind::kBytes) {
    Walk(0, state, mask);
    return;
  }
  const Expr tail = e_.tail(state), head = e_.Clipped(e_.head(state), vocabulary_->longest());
  const bool has_bounds = e_.kind(head) == ExprKind::kRepeat && (e_.least(head) > 0 || e_.most(head) != Expressions::kUnbounded);
  if (has_bounds && AddCounted(head, tail, mask)) return;
  const ByteSet first = e_.FirstBytes(tail);
  const Expr set = sets_.try_emplace(first, static_cast<Expr>(sets_.size())).first->second;
  const auto [place, is_new] = heads_.try_emplace({head, set});
  Head& kept = place->second;
  const std::span<const Vocabulary::Node> nodes = vocabulary_->nodes();
  if (is_new) {
    kept.within.resize(vocabulary_->words());
    Expr* const states_read = path_.data();
    Expressions::Reader reader(e_);
    states_read[0] = head;
    for (uint32_t i = 1; i < nodes.size();) {
      const Vocabulary::Node& n = nodes[i];
      const Expr before = states_read[n.depth - 1u];
      if (reader.MayEnd(before) && first.Has(n.byte)) kept.leaving.push_back(i);
      const Expr next = reader.Next(before, n.byte);
      states_read[n.depth] = next;
      if (next == Expressions::kNone) {
        i += n.size;
        continue;
      }
      if (n.token >= 0) Allow(kept.within, n.token);
      ++i;
    }
    bytes_ += kept.within.size() * sizeof(uint64_t) + kept.leaving.size() * sizeof(uint32_t);
  }
  for (size_t w = 0; w < mask.size(); ++w) mask[w] |= kept.within[w];
  for (const uint32_t i : kept.leaving) {
    const Expr next = e_.Next(tail, nodes[i].byte);
    if (next == Expressions::kNone) continue;
    if (nodes[i].token >= 0) Allow(mask, nodes[i].token);
    if (nodes[i].size > 1) Walk(i, next, mask);
  }
}

TokenMask VocabularyMasks::Of(Expr state) {
  const Expr key = e_.Clipped(state, vocabulary_->longest());
  if (const auto place = states_.find(key); place != states_.end()) return place->second;
  if (bytes_ > kMostBytes) {
    states_.clear();
    heads_.clear();
    parts_.clear();
    bytes_ = 0;
  }
  auto mask = std::make_shared<Mask>(vocabulary_->words());
  Add(key, *mask);
  for (const int32_t first : vocabulary_->repeated()) {
    if (!Allows(*mask, first)) continue;
    for (int32_t token = vocabulary_->Same(first); token >= 0; token = vocabulary_->Same(token)) Allow(*mask, token);
  }
  for (const int32_t end : vocabulary_->ends()) {
    if (end < 0 || static_cast<size_t>(end) >= vocabulary_->size()) continue;
    if (e_.MayEnd(state)) {
      Allow(*mask, end);
    } else if (!vocabulary_->IsNamed(end)) {  // else the grammar may have it as a mark
      (*mask)[static_cast<size_t>(end) / 64] &= ~(uint64_t{1} << (end % 64));
    }
  }
  if (e_.is_full()) std::ranges::fill(*mask, 0);  // states are missing: no token rather than a wrong one
  bytes_ += mask->size() * sizeof(uint64_t);
  states_[key] = mask;
  return mask;
}

// States in the order in which texts reach them; where texts differ only by one string's characters they are few.
void VocabularyMasks::Prepare(Expr root) {
  if (std::exchange(prepared_, true)) return;
  constexpr size_t kMostStates = 400;
  constexpr std::chrono::milliseconds kMostTime(25);
  const auto end = std::chrono::steady_clock::now() + kMostTime;
  std::vector<Expr> order = {root};
  std::unordered_set<Expr> seen = {root};
  for (size_t i = 0; i < order.size() && i < kMostStates && std::chrono::steady_clock::now() < end; ++i) {
    e_.BeginStep();
    Of(order[i]);
    const ByteSet first = e_.FirstBytes(order[i]);
    for (int byte = 0; byte < 256; ++byte) {
      if (!first.Has(static_cast<uint8_t>(byte))) continue;
      const Expr next = e_.Next(order[i], static_cast<uint8_t>(byte));
      if (seen.insert(next).second) order.push_back(next);
    }
  }
}

}  // namespace tally
