// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/grammar.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/base/format.h"
#include "engine/grammar/calls.h"
#include "engine/grammar/expressions.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"

namespace tally {

namespace {

// What a message quotes of a grammar may be anything.
Status OneLineOf(const Status& status) { return {status.code(), Printable(status.message(), 1000)}; }

constexpr size_t kMostMaskBytes = size_t{64} << 20;  // of one vocabulary; beyond it, masks are found again

}  // namespace

// What is kept of masks. A state is a head and what follows it; the tokens that stay within the head are the same whatever follows, and
// are most of those of a string. For others it is kept where they leave the head.
struct VocabularyMasks {
  struct Head {
    std::vector<uint64_t> within;   // tokens that do not leave it
    std::vector<uint32_t> leaving;  // nodes whose last byte may be the first of what follows
  };
  std::shared_ptr<const Vocabulary> vocabulary;
  std::unordered_map<Expr, TokenMask> states;   // by clipped state
  std::map<std::pair<Expr, Expr>, Head> heads;  // by clipped head, and the first bytes of what follows
  std::map<ByteSet, Expr> sets;                 // numbers of sets of first bytes
  size_t bytes = 0;
  bool prepared = false;
};

struct __attribute__((visibility("hidden"))) Grammar::Machine {  // no part of the interface
  mutable std::mutex mutex;
  Expressions e;
  Expr root = Expressions::kNone;
  SchemaOptions options;
  std::vector<std::string> ignored;
  std::vector<std::unique_ptr<VocabularyMasks>> all_masks;
  std::vector<Expr> path;  // of a walk: states by depth

  static Result<std::shared_ptr<Grammar>> Finished(std::unique_ptr<Machine> machine, const Result<Expr>& root);
  VocabularyMasks& MasksOf(const std::shared_ptr<const Vocabulary>& vocabulary);
  TokenMask MaskOf(VocabularyMasks& masks, Expr state);
  void Prepare(VocabularyMasks& masks);
  void Add(VocabularyMasks& masks, Expr state, std::vector<uint64_t>& mask);
  void Walk(const Vocabulary& vocabulary, uint32_t node, Expr state, std::vector<uint64_t>& mask);
};

Grammar::Grammar(std::unique_ptr<Machine> machine) : machine_(std::move(machine)) {}
Grammar::~Grammar() = default;

Result<std::shared_ptr<Grammar>> Grammar::Machine::Finished(std::unique_ptr<Machine> machine, const Result<Expr>& root) {
  if (!root.ok()) return OneLineOf(root.status());
  if (const Status finished = machine->e.Finish(); !finished.ok()) return OneLineOf(finished);
  if (machine->e.IsNone(*root)) return BadInput("no answer is in it");
  machine->root = *root;
  return std::shared_ptr<Grammar>(new Grammar(std::move(machine)));
}

Result<std::shared_ptr<Grammar>> Grammar::FromSchema(std::string_view schema, const SchemaOptions& options) {
  auto machine = std::make_unique<Machine>();
  machine->options = options;
  Result<SchemaParts> parts = ParseSchema(machine->e, schema, options);
  if (!parts.ok()) return OneLineOf(parts.status());
  machine->ignored = std::move(parts->ignored);
  return Machine::Finished(std::move(machine), parts->root);
}

Result<std::shared_ptr<Grammar>> Grammar::Json(bool object, const SchemaOptions& options) {
  auto machine = std::make_unique<Machine>();
  machine->options = options;
  const Result<Expr> root = AnyJson(machine->e, object, options);
  return Machine::Finished(std::move(machine), root);
}

Result<std::shared_ptr<Grammar>> Grammar::FromRegex(std::string_view pattern) {
  auto machine = std::make_unique<Machine>();
  const Result<Expr> root = ParseRegex(machine->e, pattern, {});
  return Machine::Finished(std::move(machine), root);
}

Result<std::shared_ptr<Grammar>> Grammar::FromGbnf(std::string_view text) {
  auto machine = std::make_unique<Machine>();
  const Result<Expr> root = ParseGbnf(machine->e, text);
  return Machine::Finished(std::move(machine), root);
}

Result<std::shared_ptr<Grammar>> Grammar::FromChoices(std::span<const std::string> choices) {
  auto machine = std::make_unique<Machine>();
  std::vector<Expr> parts;
  for (const std::string& choice : choices) parts.push_back(machine->e.Literal(choice));
  const Expr root = machine->e.Or(parts);
  return Machine::Finished(std::move(machine), root);
}

Result<std::shared_ptr<Grammar>> Grammar::FromCalls(std::span<const CallNotation> notations, std::span<const CallTool> tools,
                                                    const CallGrammarOptions& options) {
  auto machine = std::make_unique<Machine>();
  const Result<Expr> root = CallsIn(machine->e, notations, tools, options);
  return Machine::Finished(std::move(machine), root);
}

bool Grammar::Accepts(std::string_view text) {
  const std::scoped_lock lock(machine_->mutex);
  const Expr end = machine_->e.Read(machine_->root, text);
  return end != Expressions::kNone && machine_->e.MayEnd(end);
}

Result<bool> Grammar::AcceptsDocument(std::string_view document) {
  const std::scoped_lock lock(machine_->mutex);
  return tally::AcceptsDocument(machine_->e, machine_->root, document, machine_->options);
}

const std::vector<std::string>& Grammar::ignored() const { return machine_->ignored; }

size_t Grammar::states() const {
  const std::scoped_lock lock(machine_->mutex);
  return machine_->e.states();
}

uint64_t Grammar::bytes() const {
  const std::scoped_lock lock(machine_->mutex);
  uint64_t bytes = machine_->e.bytes();
  for (const std::unique_ptr<VocabularyMasks>& masks : machine_->all_masks) bytes += masks->bytes;
  return bytes;
}

VocabularyMasks& Grammar::Machine::MasksOf(const std::shared_ptr<const Vocabulary>& vocabulary) {
  for (const std::unique_ptr<VocabularyMasks>& one : all_masks) {
    if (one->vocabulary == vocabulary) return *one;
  }
  all_masks.push_back(std::make_unique<VocabularyMasks>());
  all_masks.back()->vocabulary = vocabulary;
  return *all_masks.back();
}

// Adds the tokens below a node, which `state` has read.
void Grammar::Machine::Walk(const Vocabulary& vocabulary, uint32_t node, Expr state, std::vector<uint64_t>& mask) {
  const Vocabulary::Node* const nodes = vocabulary.nodes().data();
  const uint32_t base = nodes[node].depth, end = node + nodes[node].size;
  if (path.size() <= vocabulary.longest()) path.resize(vocabulary.longest() + 1);
  Expr* const states_read = path.data();
  Expressions::Reader reader(e);
  states_read[base] = state;
  for (uint32_t i = node + 1; i < end;) {
    const Vocabulary::Node& n = nodes[i];
    const Expr next = reader.Next(states_read[n.depth - 1u], n.byte);
    if (next == Expressions::kNone) {
      i += n.size;
      continue;
    }
    if (n.token >= 0) mask[static_cast<size_t>(n.token) / 64] |= uint64_t{1} << (n.token % 64);
    states_read[n.depth] = next;
    ++i;
  }
}

void Grammar::Machine::Add(VocabularyMasks& masks, Expr state, std::vector<uint64_t>& mask) {
  const Vocabulary& vocabulary = *masks.vocabulary;
  if (e.kind(state) == ExprKind::kOr) {
    const std::vector<Expr> parts(e.parts(state).begin(), e.parts(state).end());
    for (const Expr part : parts) {
      if (!e.IsNone(part)) Add(masks, part, mask);
    }
    return;
  }
  if (e.kind(state) != ExprKind::kConcat || e.kind(e.head(state)) == ExprKind::kBytes) {
    Walk(vocabulary, 0, state, mask);
    return;
  }
  const Expr tail = e.tail(state), head = e.Clipped(e.head(state), vocabulary.longest());
  const ByteSet first = e.FirstBytes(tail);
  const Expr set = masks.sets.try_emplace(first, static_cast<Expr>(masks.sets.size())).first->second;
  const auto [place, is_new] = masks.heads.try_emplace({head, set});
  VocabularyMasks::Head& kept = place->second;
  const std::span<const Vocabulary::Node> nodes = vocabulary.nodes();
  if (is_new) {
    kept.within.resize(vocabulary.words());
    if (path.size() <= vocabulary.longest()) path.resize(vocabulary.longest() + 1);
    Expr* const states_read = path.data();
    Expressions::Reader reader(e);
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
      if (n.token >= 0) kept.within[static_cast<size_t>(n.token) / 64] |= uint64_t{1} << (n.token % 64);
      ++i;
    }
    masks.bytes += kept.within.size() * sizeof(uint64_t) + kept.leaving.size() * sizeof(uint32_t);
  }
  for (size_t w = 0; w < mask.size(); ++w) mask[w] |= kept.within[w];
  for (const uint32_t i : kept.leaving) {
    const Expr next = e.Next(tail, nodes[i].byte);
    if (next == Expressions::kNone) continue;
    if (nodes[i].token >= 0) mask[static_cast<size_t>(nodes[i].token) / 64] |= uint64_t{1} << (nodes[i].token % 64);
    if (nodes[i].size > 1) Walk(vocabulary, i, next, mask);
  }
}

TokenMask Grammar::Machine::MaskOf(VocabularyMasks& masks, Expr state) {
  const Vocabulary& vocabulary = *masks.vocabulary;
  const Expr key = e.Clipped(state, vocabulary.longest());
  if (const auto place = masks.states.find(key); place != masks.states.end()) return place->second;
  if (masks.bytes > kMostMaskBytes) {
    masks.states.clear();
    masks.heads.clear();
    masks.bytes = 0;
  }
  auto mask = std::make_shared<std::vector<uint64_t>>(vocabulary.words());
  Add(masks, key, *mask);
  for (const int32_t first : vocabulary.repeated()) {
    if (((*mask)[static_cast<size_t>(first) / 64] >> (first % 64) & 1) == 0) continue;
    for (int32_t token = vocabulary.Same(first); token >= 0; token = vocabulary.Same(token)) {
      (*mask)[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
    }
  }
  for (const int32_t end : vocabulary.ends()) {
    if (end < 0 || static_cast<size_t>(end) >= vocabulary.size()) continue;
    const uint64_t bit = uint64_t{1} << (end % 64);
    uint64_t& word = (*mask)[static_cast<size_t>(end) / 64];
    if (e.MayEnd(state)) {
      word |= bit;
    } else if (!vocabulary.IsNamed(end)) {  // else the grammar may have it as a mark
      word &= ~bit;
    }
  }
  if (e.is_full()) std::ranges::fill(*mask, 0);  // states are missing: no token rather than a wrong one
  masks.bytes += mask->size() * sizeof(uint64_t);
  masks.states[key] = mask;
  return mask;
}

// States in the order in which texts reach them; where texts differ only by one string's characters they are few.
void Grammar::Machine::Prepare(VocabularyMasks& masks) {
  if (std::exchange(masks.prepared, true)) return;
  constexpr size_t kMostStates = 400;
  constexpr std::chrono::milliseconds kMostTime(25);
  const auto end = std::chrono::steady_clock::now() + kMostTime;
  std::vector<Expr> order = {root};
  std::unordered_set<Expr> seen = {root};
  for (size_t i = 0; i < order.size() && i < kMostStates && std::chrono::steady_clock::now() < end; ++i) {
    MaskOf(masks, order[i]);
    const ByteSet first = e.FirstBytes(order[i]);
    for (int byte = 0; byte < 256; ++byte) {
      if (!first.Has(static_cast<uint8_t>(byte))) continue;
      const Expr next = e.Next(order[i], static_cast<uint8_t>(byte));
      if (seen.insert(next).second) order.push_back(next);
    }
  }
}

GrammarCursor::GrammarCursor(std::shared_ptr<Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), state_(grammar_->machine_->root) {}

TokenMask GrammarCursor::Mask() {
  if (ended_) return std::make_shared<const std::vector<uint64_t>>(vocabulary_->words());
  const std::scoped_lock lock(grammar_->machine_->mutex);
  return grammar_->machine_->MaskOf(grammar_->machine_->MasksOf(vocabulary_), state_);
}

void GrammarCursor::Prepare() {
  const std::scoped_lock lock(grammar_->machine_->mutex);
  grammar_->machine_->Prepare(grammar_->machine_->MasksOf(vocabulary_));
}

bool GrammarCursor::Take(int32_t token) {
  if (ended_ || token < 0 || static_cast<size_t>(token) >= vocabulary_->size()) return false;
  if (std::ranges::find(vocabulary_->ends(), token) != vocabulary_->ends().end()) {
    if (!MayEnd()) return vocabulary_->IsNamed(token) && TakeBytes(vocabulary_->bytes(token));
    ended_ = true;
    return true;
  }
  return !vocabulary_->bytes(token).empty() && TakeBytes(vocabulary_->bytes(token));
}

bool GrammarCursor::TakeBytes(std::string_view bytes) {
  const std::scoped_lock lock(grammar_->machine_->mutex);
  const Expr next = grammar_->machine_->e.Read(state_, bytes);
  if (ended_ || next == Expressions::kNone) return false;
  state_ = next;
  return true;
}

bool GrammarCursor::MayEnd() const {
  const std::scoped_lock lock(grammar_->machine_->mutex);
  return grammar_->machine_->e.MayEnd(state_);
}

std::array<uint64_t, 4> GrammarCursor::FirstBytes() const {
  const std::scoped_lock lock(grammar_->machine_->mutex);
  return ended_ ? ByteSet().words() : grammar_->machine_->e.FirstBytes(state_).words();
}

bool GrammarCursor::IsComplete() const { return MayEnd() && FirstBytes() == std::array<uint64_t, 4>(); }

std::string GrammarCursor::Forced(size_t most) const {
  const std::scoped_lock lock(grammar_->machine_->mutex);
  std::string forced;
  Expr state = state_;
  while (!ended_ && forced.size() < most && !grammar_->machine_->e.MayEnd(state)) {
    const ByteSet& first = grammar_->machine_->e.FirstBytes(state);
    if (first.size() != 1) break;
    forced += static_cast<char>(first.first());
    state = grammar_->machine_->e.Next(state, first.first());
  }
  return forced;
}

}  // namespace tally
