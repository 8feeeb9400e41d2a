// SPDX-License-Identifier: Apache-2.0
// Rows of sequences that are more than tokens, and how the prefix index knows them.
//
// The index is a tree of tokens. A row that is more than a token stands in it as a symbol, a negative number, that only equal rows have:
// equal in token, identity, position and span, compared and not only hashed. Rows that see one another have symbols together: what such a
// row leaves in the caches depends on all rows of its span. Symbols that neither the index nor a sequence has any more are forgotten.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/base/rows.h"

namespace tally {

// A row of a sequence that is more than a token at the position after the largest one before it.
struct SequenceRow {
  PrefixRow row = {};  // its position is whole
  int32_t token = 0;
  int64_t next = 0;    // the position of the row after it, if none is given
  int32_t symbol = 0;  // 0: none yet
};

// The position of the row at place `index` if none is given. `rows`: those of the sequence, ascending.
int64_t NextPosition(std::span<const SequenceRow> rows, int64_t index);
// Adds the row, which is the next one, unless it is a plain token.
void AddRow(PrefixRow row, int32_t token, std::vector<SequenceRow>& rows);
// What a prefix consists of: its rows, as their steps were given them.
std::vector<SequenceRow> RowsOfPrefix(std::span<const int32_t> tokens, std::span<const PrefixRow> rows);
// The span of rows that see one another within which a cut to `length` rows would be; empty: none.
RowSpan SpanAround(std::span<const SequenceRow> rows, int64_t length);

class RowSymbols {
 public:
  // The tokens from `from` on as the index knows them, up to the first row that it cannot know: an embedding without an identity, rows
  // that see one another and are not all there; with `make` false also a row that has no symbol.
  std::vector<int32_t> Of(std::span<const int32_t> tokens, std::span<SequenceRow> rows, int64_t from, bool make);
  size_t size() const { return symbols_.size(); }
  // Forgets all symbols but those of spans and rows of which `used` has one. `used` ascends. Numbers are given again once none is left.
  void KeepOnly(std::span<const int32_t> used);

 private:
  using Key = std::vector<uint64_t>;
  static Key KeyOf(std::span<const SequenceRow> rows);
  // The symbols of rows i, i - 1, ... : first, first - 1, ... 0: none.
  int32_t Find(std::span<const SequenceRow> rows, bool make);

  struct Known {
    int32_t first = 0, count = 0;
  };
  std::map<Key, Known> symbols_;
  int32_t next_ = -1;
};

}  // namespace tally
