// SPDX-License-Identifier: Apache-2.0
#include "counters/ledger/process_books.h"

#include <utility>

namespace tally {

ProcessBooks BooksOf(const Ledger& ledger, std::string process) {
  ProcessBooks books;
  books.process = std::move(process);
  for (int p = 0; p < kPhases; ++p) {
    const Phase phase = static_cast<Phase>(p);
    for (auto& [site, account] : ledger.sites(phase)) books.accounts.push_back({phase, site, std::move(account)});
  }
  books.weights = ledger.weights();
  for (size_t id = 0; id < books.weights.size(); ++id) {
    const WeightInfo& w = books.weights[id];
    books.parameters += w.parameters();
    books.copied_parameters += w.copied;
    books.stored_bytes += w.stored_bytes;
    books.packed_bytes += w.packed_bytes;
    books.touched.push_back(ledger.touched().touched(static_cast<WeightId>(id)));
    for (uint32_t e = 0; w.experts && e < w.slices; ++e) {
      books.expert_rows.push_back(ledger.touched().uses(static_cast<WeightId>(id), e));
    }
  }
  books.bad_touches = ledger.touched().bad();
  return books;
}

Cost WithoutCopies(const Account& account) {
  Cost cost;
  std::array<uint64_t, Cost::kEntries> copied{};
  account.copied.ForEachEntry([&](size_t entry, uint64_t n) { copied[entry] = n; });
  account.useful.ForEachEntry([&](size_t entry, uint64_t n) { cost.AddEntry(entry, n - copied[entry]); });
  return cost;
}

}  // namespace tally
