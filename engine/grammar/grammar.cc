// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/grammar.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "engine/base/format.h"
#include "engine/grammar/calls.h"
#include "engine/grammar/expressions.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/masks.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"

namespace tally {

namespace {

constexpr const char* kNoAnswer = "no answer is in it";

// What a message quotes of a grammar may be anything.
Status OneLineOf(const Status& status) { return {status.code(), Printable(status.message(), 1000)}; }

}  // namespace

struct __attribute__((visibility("hidden"))) Grammar::Machine {  // no part of the interface
  mutable std::mutex mutex;
  Expressions e;
  Expr root = Expressions::kNone;
  SchemaOptions options;
  std::vector<std::string> ignored;
  std::vector<std::unique_ptr<VocabularyMasks>> all_masks;

  static Result<std::shared_ptr<Grammar>> Finished(std::unique_ptr<Machine> machine, const Result<Expr>& root);
  VocabularyMasks& MasksOf(const std::shared_ptr<const Vocabulary>& vocabulary);
};

Grammar::Grammar(std::unique_ptr<Machine> machine) : machine_(std::move(machine)) {}
Grammar::~Grammar() = default;

Result<std::shared_ptr<Grammar>> Grammar::Machine::Finished(std::unique_ptr<Machine> machine, const Result<Expr>& root) {
  if (!root.ok()) return OneLineOf(root.status());
  if (const Status finished = machine->e.Finish(); !finished.ok()) return OneLineOf(finished);
  if (machine->e.IsNone(*root)) return BadInput(kNoAnswer);
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
  std::vector<Expr> arguments;
  const Result<Expr> root = CallsIn(machine->e, notations, tools, options, arguments);
  Result<std::shared_ptr<Grammar>> grammar = Machine::Finished(std::move(machine), root);
  const bool is_empty = !grammar.ok() && grammar.status().message() == kNoAnswer;
  if (!grammar.ok() && !(is_empty && tools.size() == 1)) return grammar;
  for (size_t i = 0; i < arguments.size(); ++i) {  // a tool that cannot be called would be lost
    if (!grammar.ok() || (*grammar)->machine_->e.IsNone(arguments[i]))
      return OneLineOf(BadInput(tools[i % tools.size()].name + ": no arguments are valid"));
  }
  return grammar;
}

bool Grammar::Accepts(std::string_view text) {
  const std::scoped_lock lock(machine_->mutex);
  machine_->e.BeginText();
  const Expr end = machine_->e.Read(machine_->root, text);
  return end != Expressions::kNone && machine_->e.MayEnd(end);
}

Result<bool> Grammar::AcceptsDocument(std::string_view document) {
  const std::scoped_lock lock(machine_->mutex);
  machine_->e.BeginText();
  return tally::AcceptsDocument(machine_->e, machine_->root, document, machine_->options);
}

const std::vector<std::string>& Grammar::ignored() const { return machine_->ignored; }

size_t Grammar::states() const {
  const std::scoped_lock lock(machine_->mutex);
  return machine_->e.states();
}

bool Grammar::is_full() const {
  const std::scoped_lock lock(machine_->mutex);
  return machine_->e.is_full();
}

uint64_t Grammar::bytes() const {
  const std::scoped_lock lock(machine_->mutex);
  uint64_t bytes = machine_->e.bytes();
  for (const std::unique_ptr<VocabularyMasks>& masks : machine_->all_masks) bytes += masks->bytes();
  return bytes;
}

VocabularyMasks& Grammar::Machine::MasksOf(const std::shared_ptr<const Vocabulary>& vocabulary) {
  for (const std::unique_ptr<VocabularyMasks>& one : all_masks) {
    if (one->vocabulary() == vocabulary) return *one;
  }
  all_masks.push_back(std::make_unique<VocabularyMasks>(e, vocabulary));
  return *all_masks.back();
}

GrammarCursor::GrammarCursor(std::shared_ptr<Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), state_(grammar_->machine_->root) {}

TokenMask GrammarCursor::Mask() {
  if (ended_) return std::make_shared<const std::vector<uint64_t>>(vocabulary_->words());
  const std::scoped_lock lock(grammar_->machine_->mutex);
  grammar_->machine_->e.BeginStep();
  return grammar_->machine_->MasksOf(vocabulary_).Of(state_);
}

void GrammarCursor::Prepare() {
  const std::scoped_lock lock(grammar_->machine_->mutex);
  grammar_->machine_->e.BeginStep();
  grammar_->machine_->MasksOf(vocabulary_).Prepare(grammar_->machine_->root);
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
  grammar_->machine_->e.BeginStep();
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
  grammar_->machine_->e.BeginStep();
  return ended_ ? ByteSet().words() : grammar_->machine_->e.FirstBytes(state_).words();
}

bool GrammarCursor::IsComplete() const { return MayEnd() && FirstBytes() == std::array<uint64_t, 4>(); }

std::string GrammarCursor::Forced(size_t most) const {
  const std::scoped_lock lock(grammar_->machine_->mutex);
  grammar_->machine_->e.BeginStep();
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
