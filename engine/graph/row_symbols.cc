// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/row_symbols.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace tally {
namespace {

std::ptrdiff_t FirstFrom(std::span<const SequenceRow> rows, int64_t index) {
  return std::ranges::lower_bound(rows, index, {}, [](const SequenceRow& r) { return r.row.index; }) - rows.begin();
}

}  // namespace

int64_t NextPosition(std::span<const SequenceRow> rows, int64_t index) {
  const std::ptrdiff_t before = FirstFrom(rows, index);
  if (before == 0) return index;
  const SequenceRow& last = rows[static_cast<size_t>(before) - 1];
  return last.next + (index - last.row.index - 1);
}

void AddRow(PrefixRow row, int32_t token, std::vector<SequenceRow>& rows) {
  const int64_t next = NextPosition(rows, row.index);
  const int32_t place = static_cast<int32_t>(next);
  row.position = row.position.given() ? row.position.Whole() : RowPosition{place, place, place};
  const bool plain = !row.embedding && row.both_ways.empty() && row.position == RowPosition{place, place, place};
  if (!plain) {
    rows.push_back(
        {.row = row, .token = token, .next = std::max<int64_t>(next, int64_t{row.position.Largest()} + 1), .symbol = 0});
  }
}

std::vector<SequenceRow> RowsOfPrefix(std::span<const int32_t> tokens, std::span<const PrefixRow> rows) {
  std::vector<SequenceRow> all;
  std::vector<PrefixRow> ordered;
  std::ranges::copy_if(rows, std::back_inserter(ordered),
                       [&](const PrefixRow& r) { return r.index >= 0 && r.index < static_cast<int64_t>(tokens.size()); });
  std::ranges::stable_sort(ordered, {}, &PrefixRow::index);
  const auto same = [](const PrefixRow& a, const PrefixRow& b) { return a.index == b.index; };
  ordered.erase(std::unique(ordered.begin(), ordered.end(), same), ordered.end());
  for (const PrefixRow& row : ordered) AddRow(row, tokens[static_cast<size_t>(row.index)], all);
  return all;
}

RowSpan SpanAround(std::span<const SequenceRow> rows, int64_t length) {
  const std::ptrdiff_t at = FirstFrom(rows, length);
  if (at == static_cast<std::ptrdiff_t>(rows.size()) || rows[static_cast<size_t>(at)].row.index != length) return {};
  const RowSpan span = rows[static_cast<size_t>(at)].row.both_ways;
  return span.begin < length && length < span.end ? span : RowSpan();
}

RowSymbols::Key RowSymbols::KeyOf(std::span<const SequenceRow> rows) {
  Key key;
  for (const SequenceRow& r : rows) {
    const auto word = [](int64_t high, int64_t low) {
      return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
    };
    const RowPosition& p = r.row.position;
    key.insert(key.end(),
               {word(r.row.embedding ? 1 : 0, r.token), r.row.identity.high, r.row.identity.low, word(r.row.identity.row, p.t),
                word(p.h, p.w), static_cast<uint64_t>(r.row.both_ways.begin), static_cast<uint64_t>(r.row.both_ways.end)});
  }
  return key;
}

int32_t RowSymbols::Find(std::span<const SequenceRow> rows, bool make) {
  Key key = KeyOf(rows);
  if (const auto known = symbols_.find(key); known != symbols_.end()) return known->second.first;
  const int32_t count = static_cast<int32_t>(rows.size());
  if (!make || next_ < std::numeric_limits<int32_t>::min() + count) return 0;
  const int32_t first = next_;
  next_ -= count;
  symbols_.emplace(std::move(key), Known{first, count});
  return first;
}

std::vector<int32_t> RowSymbols::Of(std::span<const int32_t> tokens, std::span<SequenceRow> rows, int64_t from, bool make) {
  std::vector<int32_t> symbols(tokens.begin() + from, tokens.end());
  const auto end_at = [&](int64_t index) { symbols.resize(static_cast<size_t>(std::max<int64_t>(0, index - from))); };
  const int64_t length = static_cast<int64_t>(tokens.size());
  for (size_t i = static_cast<size_t>(FirstFrom(rows, from)); i < rows.size() && rows[i].row.index < length;) {
    const RowSpan span = rows[i].row.both_ways;
    size_t first = i, count = 1;
    if (!span.empty()) {
      first = static_cast<size_t>(FirstFrom(rows, span.begin));
      count = static_cast<size_t>(span.end - span.begin);
      const bool whole = span.end <= length && rows.size() - first >= count && rows[first].row.index == span.begin &&
                         rows[first + count - 1].row.index == span.end - 1;
      if (!whole) return end_at(rows[i].row.index), symbols;
    }
    const std::span<SequenceRow> together = rows.subspan(first, count);
    if (together[0].symbol == 0) {
      const bool known =
          std::ranges::all_of(together, [](const SequenceRow& r) { return !r.row.embedding || r.row.identity.known(); });
      const int32_t symbol = known ? Find(together, make) : 0;
      if (symbol == 0) return end_at(rows[i].row.index), symbols;
      for (size_t k = 0; k < count; ++k) together[k].symbol = symbol - static_cast<int32_t>(k);
    }
    for (; i < first + count; ++i) symbols[static_cast<size_t>(rows[i].row.index - from)] = rows[i].symbol;
  }
  return symbols;
}

void RowSymbols::KeepOnly(std::span<const int32_t> used) {
  std::erase_if(symbols_, [&](const auto& known) {
    const auto [first, count] = known.second;
    const auto at = std::ranges::lower_bound(used, first - count + 1);
    return at == used.end() || *at > first;
  });
  if (symbols_.empty()) next_ = -1;
}

}  // namespace tally
