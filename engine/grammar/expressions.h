// SPDX-License-Identifier: Apache-2.0
// Languages over bytes as expressions, and the machine that reads them: the state after a text is the expression of what may follow
// (Brzozowski 1964, "Derivatives of regular expressions"; J. ACM 11). Equal expressions are one, so states are found again and what is
// known of them is kept. A concatenation is nested to the right, which makes its tail the stack of a grammar that recurs: rules are
// expanded when a text enters them.
//
// Expressions are first made, then Finish is called once, then texts are read. No state that Next returns is without a continuation: texts
// that no longer can become one of the language are kNone at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/grammar/byte_set.h"

namespace tally {

using Expr = uint32_t;

enum class ExprKind : uint8_t { kNone, kEmpty, kBytes, kConcat, kOr, kAnd, kNot, kRepeat, kRule };

class Expressions {
 public:
  static constexpr Expr kNone = 0;   // no text at all
  static constexpr Expr kEmpty = 1;  // the empty text alone
  static constexpr uint32_t kUnbounded = UINT32_MAX;

 private:
  enum class Life : uint8_t { kUnknown, kAlive, kDead };
  struct Node {
    ExprKind kind = ExprKind::kNone;
    bool nullable = false;
    bool counted = false;  // a Repeat of bounded counts is in it, and in no Not or rule of it
    Life life = Life::kUnknown;
    Expr a = 0, b = 0;            // head, tail; part; index in sets_, rules_; first of parts_ and their number
    uint32_t min = 0, max = 0;    // of Repeat
    uint32_t row = UINT32_MAX;    // of rows_: its next states
    uint32_t first = UINT32_MAX;  // of first_bytes_
  };

 public:
  // At most so many expressions, those of states included. The work of finding them is bounded too: the limits of Work.
  explicit Expressions(size_t limit = size_t{1} << 20);
  Expressions(const Expressions&) = delete;
  Expressions& operator=(const Expressions&) = delete;

  Expr Bytes(const ByteSet& set);  // one of them
  Expr Literal(std::string_view text);
  Expr Concat(Expr head, Expr tail);
  Expr Concat(std::initializer_list<Expr> parts);
  Expr Or(const std::vector<Expr>& parts);
  // Whether a text is in all parts is found by searching: rules in And and Not should recur at their ends alone (multiples of a number).
  Expr And(const std::vector<Expr>& parts);
  Expr Not(Expr part);  // all texts but these; to be a part of And
  // min <= max; max: kUnbounded for any number.
  Expr Repeat(Expr part, uint32_t min, uint32_t max);
  Expr Optional(Expr part) { return Repeat(part, 0, 1); }
  Expr Star(Expr part) { return Repeat(part, 0, kUnbounded); }
  // A rule, by which expressions may hold themselves; defined once, before Finish.
  Expr NewRule(std::string name);
  void Define(Expr rule, Expr body);

  // kBadInput: a rule recurs before it has read a byte (its name is given), or is not defined. kNoRoom: more expressions than the limit.
  Status Finish();

  // --- after Finish

  // What may follow `state` and `byte`; kNone: nothing, the text is wrong.
  Expr Next(Expr state, uint8_t byte) {
    const uint8_t c = classes_[byte];
    if (const uint32_t row = nodes_[state].row; row != UINT32_MAX) {
      const Expr next = rows_[row * class_count_ + c];
      if (next != UINT32_MAX && nodes_[next].life == Life::kAlive) return next;
    }
    return Step(state, c);
  }
  Expr Read(Expr state, std::string_view text);
  // Next, for many bytes in a row: keeps where the tables are. Nothing else may use the expressions while it is used.
  class Reader {
   public:
    explicit Reader(Expressions& of) : of_(of) { Refresh(); }
    Expr Next(Expr state, uint8_t byte) {
      if (const uint32_t row = nodes_[state].row; row != UINT32_MAX) {
        const Expr next = rows_[row * class_count_ + classes_[byte]];
        if (next != UINT32_MAX && nodes_[next].life == Life::kAlive) return next;
        if (next == kNone) return kNone;
      }
      const Expr next = of_.Step(state, classes_[byte]);
      Refresh();
      return next;
    }
    bool MayEnd(Expr state) const { return nodes_[state].nullable; }

   private:
    void Refresh() {
      nodes_ = of_.nodes_.data();
      rows_ = of_.rows_.data();
      classes_ = of_.classes_.data();
      class_count_ = of_.class_count_;
    }
    Expressions& of_;
    const Node* nodes_ = nullptr;
    const Expr* rows_ = nullptr;
    const uint8_t* classes_ = nullptr;
    size_t class_count_ = 0;
  };
  bool MayEnd(Expr state) const { return nodes_[state].nullable; }
  // The bytes with a next state.
  const ByteSet& FirstBytes(Expr state);
  // No text is in it. Right of expressions made before Finish too.
  bool IsNone(Expr e);
  // The expression with counts that no text of at most `bytes` bytes reaches made unbounded: the same texts up to that length begin texts
  // of it.
  Expr Clipped(Expr e, uint32_t bytes);
  // What is done from now on is bounded, up to the next call: finding one mask, reading one token; or reading a whole text. Walking counts
  // by Walked.
  void BeginStep() { most_work_ = work_ + kMostStepWork; }
  void BeginText() { most_work_ = work_ + kMostTextWork; }
  void Walked(size_t steps) { Work(1 + steps / 16); }
  // A limit was reached: results are kNone from then on.
  bool is_full() const { return is_full_; }

  // --- what an expression is made of

  ExprKind kind(Expr e) const { return nodes_[e].kind; }
  Expr head(Expr concat) const { return nodes_[concat].a; }  // of a concatenation
  Expr tail(Expr concat) const { return nodes_[concat].b; }
  std::span<const Expr> parts(Expr e) const;  // of Or and And
  Expr part(Expr repeat) const { return nodes_[repeat].a; }
  uint32_t least(Expr repeat) const { return nodes_[repeat].min; }
  uint32_t most(Expr repeat) const { return nodes_[repeat].max; }
  size_t size() const { return nodes_.size(); }
  size_t states() const { return rows_.size() / (class_count_ == 0 ? 1 : class_count_); }
  uint64_t bytes() const;  // of memory, about

 private:
  struct Rule {
    std::string name;
    Expr body = 0;
    bool defined = false;
  };
  struct Hash {
    const Expressions* of;
    size_t operator()(Expr e) const { return of->HashOf(e); }
  };
  struct Equal {
    const Expressions* of;
    bool operator()(Expr x, Expr y) const { return of->IsEqual(x, y); }
  };

  size_t HashOf(Expr e) const;
  bool IsEqual(Expr x, Expr y) const;
  Expr Intern(Node node, std::span<const Expr> parts = {});
  Expr Flat(ExprKind kind, const std::vector<Expr>& parts);  // sorted, without repetition
  Expr OrBehind(std::vector<std::pair<Expr, Expr>> alternatives);
  bool NullableOf(const Node& node) const;
  Life LifeOf(const Node& node) const;
  void FindClasses();
  void FindNullable();
  Status CheckRecursion() const;
  void FindLife();
  Expr Raw(Expr e, uint8_t byte_class);   // the derivative, which may be dead
  Expr Step(Expr e, uint8_t byte_class);  // kNone if it is
  bool IsDead(Expr e);
  bool Search(Expr e);
  Expr ClippedCounts(Expr e, uint32_t bytes, bool least);
  bool EndsSoon(Expr e);

  // More was done: that is counted against the limit of work.
  void Work(size_t amount) {
    work_ += amount;
    is_full_ = is_full_ || work_ > most_work_;
  }

  static constexpr uint64_t kMostCompileWork = uint64_t{1} << 20, kMostTextWork = uint64_t{1} << 30,
                            kMostStepWork = uint64_t{1} << 21;
  const size_t limit_;
  uint64_t work_ = 0, most_work_ = uint64_t{1} << 23;  // the latter until Finish
  bool finished_ = false, is_full_ = false;
  std::vector<Node> nodes_;
  std::vector<Expr> parts_;
  std::vector<ByteSet> sets_;
  std::map<ByteSet, uint32_t> known_sets_;  // index in sets_
  std::vector<Rule> rules_;
  std::unordered_set<Expr, Hash, Equal> known_;
  std::array<uint8_t, 256> classes_ = {};  // of bytes that no set tells apart
  std::vector<uint8_t> representatives_;   // a byte of each class
  size_t class_count_ = 0;
  std::vector<Expr> rows_;  // [states, classes] derivatives
  std::vector<ByteSet> first_bytes_;
  std::unordered_map<uint64_t, Expr> clipped_;  // by expression, bytes, and whether least counts were clipped too
  std::unordered_map<Expr, bool> ends_soon_;
};

}  // namespace tally
