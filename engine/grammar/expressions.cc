// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/expressions.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/mix.h"

namespace tally {
namespace {

constexpr uint32_t kUnset = UINT32_MAX;
constexpr uint32_t kSoon = 64;  // bytes
constexpr size_t kMostRowBytes = size_t{256} << 20;

uint32_t Less(uint32_t count) { return count == 0 || count == Expressions::kUnbounded ? count : count - 1; }

}  // namespace

Expressions::Expressions(size_t limit) : limit_(std::min<size_t>(limit, kUnset - 1)), known_(16, Hash{this}, Equal{this}) {
  nodes_.push_back({.kind = ExprKind::kNone, .life = Life::kDead});
  nodes_.push_back({.kind = ExprKind::kEmpty, .nullable = true, .life = Life::kAlive});
  known_.insert(kNone);
  known_.insert(kEmpty);
}

std::span<const Expr> Expressions::parts(Expr e) const { return std::span(parts_).subspan(nodes_[e].a, nodes_[e].b); }

size_t Expressions::HashOf(Expr e) const {
  const Node& n = nodes_[e];
  uint64_t hash = SplitMix64(static_cast<uint64_t>(n.kind) + (uint64_t{n.min} << 8) + (uint64_t{n.max} << 32));
  if (n.kind == ExprKind::kOr || n.kind == ExprKind::kAnd) {
    for (const Expr part : parts(e)) hash = SplitMix64(hash ^ part);
    return hash;
  }
  return SplitMix64(hash ^ (uint64_t{n.a} << 32) ^ n.b);
}

bool Expressions::IsEqual(Expr x, Expr y) const {
  const Node &m = nodes_[x], &n = nodes_[y];
  if (m.kind != n.kind || m.min != n.min || m.max != n.max) return false;
  if (m.kind == ExprKind::kOr || m.kind == ExprKind::kAnd) return std::ranges::equal(parts(x), parts(y));
  return m.a == n.a && m.b == n.b;
}

// The node's children exist, its kind, a, b, min and max are set.
Expr Expressions::Intern(Node node, std::span<const Expr> parts) {
  Work(1 + parts.size());
  if (is_full_ || nodes_.size() >= limit_) {
    is_full_ = true;
    return kNone;
  }
  const size_t parts_before = parts_.size();
  if (node.kind == ExprKind::kOr || node.kind == ExprKind::kAnd) {
    node.a = static_cast<uint32_t>(parts_before);
    node.b = static_cast<uint32_t>(parts.size());
    parts_.insert(parts_.end(), parts.begin(), parts.end());
  }
  const Expr e = static_cast<Expr>(nodes_.size());
  nodes_.push_back(node);
  const auto [place, is_new] = known_.insert(e);
  if (!is_new) {
    nodes_.pop_back();
    parts_.resize(parts_before);
    return *place;
  }
  Node& n = nodes_.back();
  const auto inherit = [&](Expr of) { n.counted |= nodes_[of].counted; };
  switch (n.kind) {
    case ExprKind::kConcat: inherit(n.a), inherit(n.b); break;
    case ExprKind::kOr:
    case ExprKind::kAnd:
      for (const Expr part : parts) inherit(part);
      break;
    case ExprKind::kNot: break;
    case ExprKind::kRepeat:
      inherit(n.a);
      n.counted |= n.min > 1 || (n.max > 1 && n.max != kUnbounded);
      break;
    default: break;
  }
  n.nullable = NullableOf(n);
  if (finished_) n.life = LifeOf(n);
  return e;
}

bool Expressions::NullableOf(const Node& n) const {
  switch (n.kind) {
    case ExprKind::kNone:
    case ExprKind::kBytes: return false;
    case ExprKind::kEmpty: return true;
    case ExprKind::kConcat: return nodes_[n.a].nullable && nodes_[n.b].nullable;
    case ExprKind::kOr:
    case ExprKind::kAnd: {
      const auto is_nullable = [&](Expr part) { return nodes_[part].nullable; };
      const std::span<const Expr> parts = std::span(parts_).subspan(n.a, n.b);
      return n.kind == ExprKind::kOr ? std::ranges::any_of(parts, is_nullable) : std::ranges::all_of(parts, is_nullable);
    }
    case ExprKind::kNot: return !nodes_[n.a].nullable;
    case ExprKind::kRepeat: return n.min == 0 || nodes_[n.a].nullable;
    case ExprKind::kRule: return rules_[n.a].defined && nodes_[rules_[n.a].body].nullable;
  }
  return false;
}

// As its parts have it; what is to be searched, or has such parts that matter, is unknown.
Expressions::Life Expressions::LifeOf(const Node& n) const {
  if (n.nullable) return Life::kAlive;
  switch (n.kind) {
    case ExprKind::kNone: return Life::kDead;
    case ExprKind::kEmpty:
    case ExprKind::kBytes: return Life::kAlive;
    case ExprKind::kConcat: {
      const Life x = nodes_[n.a].life, y = nodes_[n.b].life;
      if (x == Life::kDead || y == Life::kDead) return Life::kDead;
      return x == Life::kAlive && y == Life::kAlive ? Life::kAlive : Life::kUnknown;
    }
    case ExprKind::kOr: {
      bool all_dead = true;
      for (const Expr part : std::span(parts_).subspan(n.a, n.b)) {
        if (nodes_[part].life == Life::kAlive) return Life::kAlive;
        all_dead &= nodes_[part].life == Life::kDead;
      }
      return all_dead ? Life::kDead : Life::kUnknown;
    }
    case ExprKind::kRepeat: return nodes_[n.a].life;  // min is not 0: it would be nullable
    case ExprKind::kRule: return nodes_[rules_[n.a].body].life;
    case ExprKind::kAnd:
    case ExprKind::kNot: return Life::kUnknown;
  }
  return Life::kUnknown;
}

Expr Expressions::Bytes(const ByteSet& set) {
  if (set.empty()) return kNone;
  const auto [place, is_new] = known_sets_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
  if (is_new) sets_.push_back(set);
  return Intern({.kind = ExprKind::kBytes, .a = place->second});
}

Expr Expressions::Literal(std::string_view text) {
  Expr e = kEmpty;
  for (size_t i = text.size(); i-- > 0;) e = Concat(Bytes(ByteSet::Of(static_cast<uint8_t>(text[i]))), e);
  return e;
}

Expr Expressions::Concat(Expr head, Expr tail) {
  if (head == kNone || tail == kNone) return kNone;
  if (head == kEmpty) return tail;
  std::vector<Expr> heads;  // of a head that is a concatenation itself
  while (nodes_[head].kind == ExprKind::kConcat) {
    heads.push_back(nodes_[head].a);
    head = nodes_[head].b;
  }
  heads.push_back(head);
  Expr e = tail;
  for (size_t i = heads.size(); i-- > 0;) {
    if (e == kEmpty) {
      e = heads[i];
    } else {
      e = Intern({.kind = ExprKind::kConcat, .a = heads[i], .b = e});
    }
  }
  return e;
}

Expr Expressions::Concat(std::initializer_list<Expr> parts) {
  Expr e = kEmpty;
  for (size_t i = parts.size(); i-- > 0;) e = Concat(parts.begin()[i], e);
  return e;
}

Expr Expressions::Flat(ExprKind kind, const std::vector<Expr>& parts) {
  std::vector<Expr> flat;
  for (const Expr part : parts) {
    if (nodes_[part].kind == kind) {
      const std::span<const Expr> inner = this->parts(part);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(part);
    }
  }
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.size() == 1) return flat[0];
  return flat.empty() ? kNone : Intern({.kind = kind}, flat);
}

// Of alternatives that all begin with the same part, for as long as they do: a loop, since texts may have much in common.
Expr Expressions::OrBehind(std::vector<std::pair<Expr, Expr>> alternatives) {
  std::vector<Expr> common;
  const auto may_go_on = [&] {
    const Expr head = alternatives.front().first;
    return std::ranges::all_of(alternatives,
                               [&](const auto& a) { return a.first == head && nodes_[a.second].kind == ExprKind::kConcat; });
  };
  while (may_go_on()) {
    common.push_back(alternatives.front().first);
    for (auto& [head, tail] : alternatives) {
      head = nodes_[tail].a;
      tail = nodes_[tail].b;
    }
  }
  std::vector<Expr> rest;
  if (std::ranges::all_of(alternatives, [&](const auto& a) { return a.first == alternatives.front().first; })) {
    common.push_back(alternatives.front().first);
    for (const auto& [head, tail] : alternatives) rest.push_back(tail);
  } else {
    for (const auto& [head, tail] : alternatives) rest.push_back(Concat(head, tail));
  }
  Expr e = Or(rest);
  for (size_t i = common.size(); i-- > 0;) e = Concat(common[i], e);
  return e;
}

// Alternatives that begin with the same part are one, and so are single bytes before the same tail: words become a tree.
Expr Expressions::Or(const std::vector<Expr>& parts) {
  std::vector<std::pair<Expr, Expr>> alternatives;  // head, tail
  bool empty = false, nullable = false;
  const auto add = [&](Expr part) {
    if (part == kNone) return;
    if (part == kEmpty) {
      empty = true;
    } else if (nodes_[part].kind == ExprKind::kConcat) {
      alternatives.emplace_back(nodes_[part].a, nodes_[part].b);
    } else {
      alternatives.emplace_back(part, kEmpty);
    }
    nullable |= part != kEmpty && nodes_[part].nullable;
  };
  for (const Expr part : parts) {
    if (nodes_[part].kind == ExprKind::kOr) {
      for (const Expr inner : this->parts(part)) add(inner);
    } else {
      add(part);
    }
  }
  Work(alternatives.size());
  std::ranges::sort(alternatives);
  alternatives.erase(std::unique(alternatives.begin(), alternatives.end()), alternatives.end());
  if (alternatives.size() > 1 && !empty && alternatives.front().first == alternatives.back().first) return OrBehind(alternatives);
  std::vector<std::pair<Expr, Expr>> merged;
  std::map<Expr, ByteSet> bytes;  // by tail
  for (size_t i = 0; i < alternatives.size();) {
    const Expr head = alternatives[i].first;
    size_t end = i;
    while (end < alternatives.size() && alternatives[end].first == head) ++end;
    Expr tail = alternatives[i].second;
    if (end - i > 1) {
      std::vector<Expr> tails;
      for (size_t k = i; k < end; ++k) tails.push_back(alternatives[k].second);
      tail = Or(tails);
    }
    if (nodes_[head].kind == ExprKind::kBytes) {
      bytes[tail] |= sets_[nodes_[head].a];
    } else {
      merged.emplace_back(head, tail);
    }
    i = end;
  }
  std::vector<Expr> result;
  for (const auto& [tail, set] : bytes) result.push_back(Concat(Bytes(set), tail));
  for (const auto& [head, tail] : merged) result.push_back(Concat(head, tail));
  if (empty && !nullable) result.push_back(kEmpty);
  return Flat(ExprKind::kOr, result);
}

Expr Expressions::And(const std::vector<Expr>& parts) {
  bool empty = false;
  std::vector<Expr> kept;
  ByteSet set = ByteSet::All();
  bool has_set = false;
  const Expr all = Not(kNone);
  for (const Expr part : parts) {
    if (part == kNone) return kNone;
    if (part == all) continue;
    empty |= part == kEmpty;
    if (nodes_[part].kind == ExprKind::kBytes) {
      set &= sets_[nodes_[part].a];
      has_set = true;
    } else {
      kept.push_back(part);
    }
  }
  if (has_set) {
    if (set.empty()) return kNone;
    kept.push_back(Bytes(set));
  }
  if (empty) {
    return std::ranges::all_of(kept, [&](Expr part) { return nodes_[part].nullable; }) ? kEmpty : kNone;
  }
  if (kept.empty()) return all;
  for (const Expr part : kept) {
    if (nodes_[part].kind == ExprKind::kNot && std::ranges::find(kept, nodes_[part].a) != kept.end()) return kNone;
  }
  return Flat(ExprKind::kAnd, kept);
}

Expr Expressions::Not(Expr part) {
  if (nodes_[part].kind == ExprKind::kNot) return nodes_[part].a;
  return Intern({.kind = ExprKind::kNot, .a = part});
}

Expr Expressions::Repeat(Expr part, uint32_t min, uint32_t max) {
  if (max == 0 || part == kEmpty) return kEmpty;
  if (part == kNone) return min == 0 ? kEmpty : kNone;
  if (min == 1 && max == 1) return part;
  const Node& n = nodes_[part];
  if (n.kind == ExprKind::kRepeat && n.min == 0 && n.max == kUnbounded && max == kUnbounded) return part;  // of a star
  return Intern({.kind = ExprKind::kRepeat, .a = part, .min = min, .max = max});
}

Expr Expressions::NewRule(std::string name) {
  rules_.push_back({.name = std::move(name)});
  return Intern({.kind = ExprKind::kRule, .a = static_cast<uint32_t>(rules_.size() - 1)});
}

void Expressions::Define(Expr rule, Expr body) {
  Rule& r = rules_[nodes_[rule].a];
  r.body = body;
  r.defined = true;
}

Status Expressions::Finish() {
  for (const Rule& rule : rules_) {
    if (!rule.defined) return BadInput("rule " + rule.name + " is not defined");
  }
  if (is_full_) return NoRoom("it is too large: it needs more than " + std::to_string(limit_) + " expressions, or too much work");
  FindNullable();
  most_work_ = work_ + kMostCompileWork;
  TALLY_RETURN_IF_ERROR(CheckRecursion());
  FindClasses();
  finished_ = true;
  FindLife();
  if (is_full_) return NoRoom("it needs too many states");
  BeginText();
  return {};
}

void Expressions::FindClasses() {
  std::map<std::vector<bool>, uint8_t> found;
  for (int b = 0; b < 256; ++b) {
    std::vector<bool> in;
    for (const ByteSet& set : sets_) in.push_back(set.Has(static_cast<uint8_t>(b)));
    const auto [place, is_new] = found.try_emplace(std::move(in), static_cast<uint8_t>(found.size()));
    classes_[static_cast<size_t>(b)] = place->second;
    if (is_new) representatives_.push_back(static_cast<uint8_t>(b));
  }
  class_count_ = representatives_.size();
}

// Children precede those they are part of, except bodies of rules.
void Expressions::FindNullable() {
  for (bool changed = true; changed;) {
    changed = false;
    for (Node& n : nodes_) {
      const bool nullable = NullableOf(n);
      // Not turns back with its part; nothing of rules depends on it.
      changed |= nullable != n.nullable && n.kind != ExprKind::kNot;
      n.nullable = nullable;
    }
  }
}

void Expressions::FindLife() {
  const Expr made = static_cast<Expr>(nodes_.size());  // searching makes more, which are looked at when they are met
  for (bool changed = true; changed && !is_full_;) {
    changed = false;
    for (Expr e = 0; e < made && !is_full_; ++e) {
      if (nodes_[e].life != Life::kUnknown) continue;
      Life life = LifeOf(nodes_[e]);
      if (nodes_[e].kind == ExprKind::kAnd || nodes_[e].kind == ExprKind::kNot) life = Search(e) ? Life::kAlive : Life::kDead;
      nodes_[e].life = life;
      changed |= life == Life::kAlive;
    }
  }
  for (Expr e = 0; e < made; ++e) {  // rules without an end, and what needs them
    if (nodes_[e].life == Life::kUnknown) nodes_[e].life = Life::kDead;
  }
}

// Rules that are reached before a byte is read, from each rule's body.
Status Expressions::CheckRecursion() const {
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<std::vector<uint32_t>> first(rules_.size());
  for (size_t r = 0; r < rules_.size(); ++r) {
    std::vector<Expr> open = {rules_[r].body};
    std::unordered_set<Expr> seen;
    while (!open.empty()) {
      const Expr e = open.back();
      open.pop_back();
      if (!seen.insert(e).second) continue;
      const Node& n = nodes_[e];
      switch (n.kind) {
        case ExprKind::kConcat:
          open.push_back(n.a);
          if (nodes_[n.a].nullable) open.push_back(n.b);
          break;
        case ExprKind::kOr:
        case ExprKind::kAnd: open.insert(open.end(), parts(e).begin(), parts(e).end()); break;
        case ExprKind::kNot:
        case ExprKind::kRepeat: open.push_back(n.a); break;
        case ExprKind::kRule: first[r].push_back(n.a); break;
        default: break;
      }
    }
  }
  std::vector<Mark> marks(rules_.size(), Mark::kNew);
  for (size_t r = 0; r < rules_.size(); ++r) {
    std::vector<std::pair<uint32_t, size_t>> path;  // rule, its next in `first`
    if (marks[r] != Mark::kNew) continue;
    path.emplace_back(static_cast<uint32_t>(r), 0);
    marks[r] = Mark::kOpen;
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      if (next == first[rule].size()) {
        marks[rule] = Mark::kDone;
        path.pop_back();
        continue;
      }
      const uint32_t to = first[rule][next++];
      if (marks[to] == Mark::kOpen) return BadInput("rule " + rules_[to].name + " begins with itself (left recursion)");
      if (marks[to] == Mark::kNew) {
        if (path.size() >= 256) return BadInput("rule " + rules_[to].name + ": more than 256 rules begin one another");
        marks[to] = Mark::kOpen;
        path.emplace_back(to, 0);
      }
    }
  }
  return {};
}

Expr Expressions::Raw(Expr e, uint8_t c) {
  const Node n = nodes_[e];  // a copy: the vector grows
  switch (n.kind) {
    case ExprKind::kNone:
    case ExprKind::kEmpty: return kNone;
    case ExprKind::kBytes: return sets_[n.a].Has(representatives_[c]) ? kEmpty : kNone;
    default: break;
  }
  uint32_t row = n.row;
  if (row == kUnset) {
    if (is_full_ || (rows_.size() + class_count_) * sizeof(Expr) > kMostRowBytes) {
      is_full_ = true;
      return kNone;
    }
    row = static_cast<uint32_t>(rows_.size() / class_count_);
    rows_.resize(rows_.size() + class_count_, kUnset);
    nodes_[e].row = row;
  }
  if (const Expr known = rows_[row * class_count_ + c]; known != kUnset) return known;
  Expr next = kNone;
  switch (n.kind) {
    case ExprKind::kConcat:
      next = Concat(Raw(n.a, c), n.b);
      if (nodes_[n.a].nullable) {
        const Expr other = Raw(n.b, c);
        next = next == kNone ? other : other == kNone ? next : Or({next, other});
      }
      break;
    case ExprKind::kOr:
    case ExprKind::kAnd: {
      std::vector<Expr> of(parts(e).begin(), parts(e).end());
      Work(of.size());
      for (Expr& part : of) part = Raw(part, c);
      next = n.kind == ExprKind::kOr ? Or(of) : And(of);
      break;
    }
    case ExprKind::kNot: next = Not(Raw(n.a, c)); break;
    case ExprKind::kRepeat: next = Concat(Raw(n.a, c), Repeat(n.a, Less(n.min), Less(n.max))); break;
    case ExprKind::kRule: next = Raw(rules_[n.a].body, c); break;
    default: break;
  }
  if (is_full_) return kNone;
  rows_[row * class_count_ + c] = next;
  return next;
}

bool Expressions::IsDead(Expr e) {
  const Node n = nodes_[e];  // a copy: the vector grows
  if (n.life != Life::kUnknown) return n.life == Life::kDead;
  bool dead = false;
  switch (n.kind) {
    case ExprKind::kConcat: dead = IsDead(n.a) || IsDead(n.b); break;
    case ExprKind::kOr: {
      const std::vector<Expr> of(parts(e).begin(), parts(e).end());
      dead = std::ranges::all_of(of, [&](Expr part) { return IsDead(part); });
      break;
    }
    case ExprKind::kRepeat: dead = IsDead(n.a); break;
    case ExprKind::kRule: dead = IsDead(rules_[n.a].body); break;
    default: dead = !Search(e); break;
  }
  nodes_[e].life = dead ? Life::kDead : Life::kAlive;
  return dead;
}

// Whether a text is in `from`. Its states are finitely many where its rules recur at their ends alone; else the work is bounded.
bool Expressions::Search(Expr from) {
  std::vector<std::pair<Expr, size_t>> path;  // state, its next class
  std::vector<Expr> tried;
  std::unordered_set<Expr> seen;
  bool found = false;
  const auto enter = [&](Expr e) {
    if (!seen.insert(e).second) return;
    if (nodes_[e].nullable || nodes_[e].life == Life::kAlive) {
      found = true;
    } else if (nodes_[e].life != Life::kDead) {
      path.emplace_back(e, 0);
      tried.push_back(e);
    }
  };
  enter(from);
  while (!found && !path.empty() && !is_full_) {
    auto& [e, next] = path.back();
    if (next == class_count_) {
      path.pop_back();
    } else {
      enter(Raw(e, static_cast<uint8_t>(next++)));
    }
  }
  if (is_full_) return false;
  if (found) {  // of those on the path it is known; the others may reach one that was left
    for (const auto& [e, next] : path) nodes_[e].life = Life::kAlive;
  } else {
    for (const Expr e : tried) nodes_[e].life = Life::kDead;
  }
  return found;
}

Expr Expressions::Step(Expr e, uint8_t c) {
  const Expr next = Raw(e, c);
  return is_full_ || IsDead(next) ? kNone : next;
}

Expr Expressions::Read(Expr state, std::string_view text) {
  for (const char c : text) {
    if (state == kNone) break;
    state = Next(state, static_cast<uint8_t>(c));
  }
  return state;
}

bool Expressions::IsNone(Expr e) { return IsDead(e); }

const ByteSet& Expressions::FirstBytes(Expr state) {
  state = Clipped(state, 1);  // of states that differ in counts alone they are found once
  if (nodes_[state].first == kUnset) {
    std::array<bool, 256> alive = {};
    for (size_t c = 0; c < class_count_; ++c) alive[c] = Step(state, static_cast<uint8_t>(c)) != kNone;
    ByteSet set;
    for (int b = 0; b < 256; ++b) {
      if (alive[classes_[static_cast<size_t>(b)]]) set.Add(static_cast<uint8_t>(b));
    }
    nodes_[state].first = static_cast<uint32_t>(first_bytes_.size());
    first_bytes_.push_back(set);
  }
  return first_bytes_[nodes_[state].first];
}

Expr Expressions::Clipped(Expr e, uint32_t bytes) { return ClippedCounts(e, bytes, /*least=*/true); }

// `least`: the least of a count too.
Expr Expressions::ClippedCounts(Expr e, uint32_t bytes, bool least) {
  if (!nodes_[e].counted) return e;
  const uint64_t key = uint64_t{bytes} << 33 | uint64_t{least} << 32 | e;
  if (const auto known = clipped_.find(key); known != clipped_.end()) return known->second;
  const Node n = nodes_[e];
  Expr clipped = e;
  switch (n.kind) {
    case ExprKind::kConcat: {
      std::vector<Expr> heads;
      Expr tail = e;
      for (; nodes_[tail].kind == ExprKind::kConcat && nodes_[tail].counted; tail = nodes_[tail].b)
        heads.push_back(nodes_[tail].a);
      clipped = nodes_[tail].kind == ExprKind::kConcat ? tail : ClippedCounts(tail, bytes, least);
      for (size_t i = heads.size(); i-- > 0;) clipped = Concat(ClippedCounts(heads[i], bytes, least), clipped);
      break;
    }
    case ExprKind::kOr: {
      std::vector<Expr> of(parts(e).begin(), parts(e).end());
      for (Expr& part : of) part = ClippedCounts(part, bytes, least);
      clipped = Or(of);
      break;
    }
    case ExprKind::kAnd: {
      // A text that begins one of the clipped parts' must have an end that no count forbids: one that comes soon.
      std::vector<Expr> of(parts(e).begin(), parts(e).end());
      for (Expr& part : of) part = ClippedCounts(part, bytes + kSoon, /*least=*/false);
      const Expr loose = And(of);
      if (EndsSoon(loose)) clipped = loose;
      break;
    }
    case ExprKind::kRepeat:
      clipped = Repeat(ClippedCounts(n.a, bytes, least), least ? std::min(n.min, bytes + 1) : n.min,
                       n.max > bytes ? kUnbounded : n.max);
      break;
    default: break;
  }
  clipped_[key] = clipped;
  return clipped;
}

// Whether any text that begins one of `e` has an end of at most kSoon bytes. False also where that would take long to find.
bool Expressions::EndsSoon(Expr e) {
  const auto [known, is_new] = ends_soon_.try_emplace(e);
  if (!is_new) return known->second;
  constexpr size_t kMostStates = 256;
  std::vector<Expr> states = {e};
  std::unordered_map<Expr, size_t> places = {{e, 0}};
  std::vector<std::vector<size_t>> before(1);
  for (size_t i = 0; i < states.size(); ++i) {
    for (size_t c = 0; c < class_count_; ++c) {
      const Expr next = Step(states[i], static_cast<uint8_t>(c));
      if (next == kNone) continue;
      const auto [place, is_new_state] = places.try_emplace(next, states.size());
      if (is_new_state) {
        if (states.size() == kMostStates) return false;
        states.push_back(next);
        before.emplace_back();
      }
      before[place->second].push_back(i);
    }
  }
  std::vector<size_t> reached;
  std::vector<bool> is_reached(states.size());
  const auto reach = [&](size_t i) {
    if (!is_reached[i]) reached.push_back(i);
    is_reached[i] = true;
  };
  for (size_t i = 0; i < states.size(); ++i) {
    if (MayEnd(states[i])) reach(i);
  }
  for (size_t begin = 0, distance = 0; distance < kSoon && begin < reached.size(); ++distance) {
    for (const size_t end = reached.size(); begin < end; ++begin) {
      for (const size_t i : before[reached[begin]]) reach(i);
    }
  }
  return ends_soon_[e] = reached.size() == states.size() && !is_full_;
}

uint64_t Expressions::bytes() const {
  return nodes_.capacity() * sizeof(Node) + parts_.capacity() * sizeof(Expr) + rows_.capacity() * sizeof(Expr) +
         known_.size() * 4 * sizeof(void*) + first_bytes_.capacity() * sizeof(ByteSet);
}

}  // namespace tally
