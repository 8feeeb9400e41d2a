// SPDX-License-Identifier: Apache-2.0
// What an engine does with two sequences, for tests that compare engines.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "tests/support/open_engine.h"

namespace tally {

inline EngineOptions OneThread() {
  EngineOptions options = SmallOptions();
  options.threads = 1;
  options.max_batch = 16;
  options.sequences = 2;
  options.max_logit_rows = 16;
  return options;
}

// Two sequences: a prompt in two pieces beside decoding, then both decode; one goes on out of its exported bytes. The logits of all rows.
inline std::vector<float> RunAll(Engine& engine, Bill& bill) {
  const int32_t vocab = engine.model().recipe().vocab;
  std::vector<float> logits;
  const int32_t a = engine.NewSequence().value(), b = engine.NewSequence().value();
  const int32_t billed = engine.OpenBill();
  int32_t at = 3;
  const auto step = [&](std::initializer_list<std::array<int32_t, 3>> parts) {  // sequence, rows, generated
    std::vector<BatchRow> rows;
    for (const auto& [sequence, n, generated] : parts) {
      for (int32_t i = 0; i < n; ++i) rows.push_back({at = (at * 5 + 7) % vocab, sequence, true, generated != 0, billed});
    }
    const auto out = engine.Step(rows);
    ASSERT_TRUE(out.ok()) << out.status().message();
    ASSERT_TRUE(out->failed.empty()) << out->failed[0].status.message();
    for (size_t i = 0; i < rows.size() && out->logits.data != nullptr; ++i) {
      logits.insert(logits.end(), out->Logits(i).begin(), out->Logits(i).end());
    }
  };
  step({{a, 9, 0}});
  step({{a, 1, 1}, {b, 11, 0}});
  step({{b, 1, 1}});
  step({{a, 1, 1}, {b, 1, 1}});
  std::vector<uint8_t> bytes;
  const Status exported = engine.Export(a, [&](std::span<const uint8_t> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return Status();
  });
  EXPECT_TRUE(exported.ok()) << exported.message();
  EXPECT_EQ(engine.ExportedBytes(a).value(), bytes.size());
  EXPECT_FALSE(engine.ExportedBytes(7).ok());
  engine.Free(b);
  const auto import = [&](size_t n) {
    size_t taken = 0;
    return engine.Import([&, n](std::span<uint8_t> piece) {
      if (piece.size() > n - taken) return BadInput("cut short");
      std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(taken), piece.size(), piece.begin());
      taken += piece.size();
      return Status();
    });
  };
  for (const size_t n : {size_t{9}, bytes.size() / 3, bytes.size() - 1})
    EXPECT_FALSE(import(n).ok()) << n << " of " << bytes.size();
  const auto imported = import(bytes.size());
  EXPECT_TRUE(imported.ok()) << imported.status().message();
  if (!imported.ok()) return {};
  engine.Free(a);
  step({{*imported, 6, 0}});
  bill = engine.CloseBill(billed);
  engine.Free(*imported);
  return logits;
}

}  // namespace tally
