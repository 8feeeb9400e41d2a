// SPDX-License-Identifier: Apache-2.0
// Logits of a small model for tests that compare them: run in one piece, in pieces, on more threads, beside others.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/base/mat.h"
#include "tests/support/open_engine.h"

namespace tally {

inline EngineOptions Exact() {
  EngineOptions options;
  options.threads = 2;
  options.activations = ActivationMode::kF32;
  options.sequences = 2;
  options.max_logit_rows = EngineOptions::kBatchRows;
  options.share_gain_ns = 0;  // these models are so small that the team would never meet
  return options;
}

// Steps `ids` through a sequence in pieces of `piece`; logits of each, [ids, vocab].
inline std::vector<float> Continue(Engine& engine, int32_t sequence, std::span<const int32_t> ids, size_t piece) {
  std::vector<float> all;
  for (size_t at = 0; at < ids.size(); at += piece) {
    std::vector<BatchRow> rows;
    for (size_t i = at; i < std::min(ids.size(), at + piece); ++i) rows.push_back({ids[i], sequence, true});
    auto logits = engine.StepAll(rows);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    if (!logits.ok()) break;
    all.insert(all.end(), logits->data, logits->data + logits->rows * logits->cols);
  }
  return all;
}

// The same in a sequence of its own.
inline std::vector<float> Logits(Engine& engine, const std::vector<int32_t>& ids, size_t piece) {
  auto sequence = engine.NewSequence();
  EXPECT_TRUE(sequence.ok()) << sequence.status().message();
  std::vector<float> all = Continue(engine, *sequence, ids, piece);
  engine.Free(*sequence);
  return all;
}

inline double MaxDifference(Mat<const float> a, Mat<const float> b) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.cols, b.cols);
  double max = 0;
  for (int64_t r = 0; r < std::min(a.rows, b.rows); ++r) {
    for (int64_t c = 0; c < a.cols; ++c) {
      const double d = std::fabs(static_cast<double>(a.Row(r)[c]) - b.Row(r)[c]);
      max = std::isnan(d) ? HUGE_VAL : std::max(max, d);
    }
  }
  return max;
}

inline double MaxAbs(Mat<const float> m) {
  double max = 0;
  for (int64_t i = 0; i < m.rows * m.cols; ++i) max = std::max(max, std::fabs(static_cast<double>(m.data[i])));
  return max;
}

inline void ExpectSameLogits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what << ": the bits differ";
}

// Two sequences in the same steps: `ids` beside a copy that runs three positions behind it.
inline std::vector<float> LogitsBesideAnother(Engine& engine, const std::vector<int32_t>& ids) {
  auto a = engine.NewSequence(), b = engine.NewSequence();
  EXPECT_TRUE(a.ok() && b.ok());
  std::vector<float> all;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<BatchRow> rows;
    if (i >= 3) rows.push_back({ids[i - 3], *b, true});
    rows.push_back({ids[i], *a, true});
    auto logits = engine.StepAll(rows);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    if (!logits.ok()) break;
    const float* row = logits->Row(logits->rows - 1);
    all.insert(all.end(), row, row + logits->cols);
  }
  engine.Free(*a);
  engine.Free(*b);
  return all;
}

// The logits of `ids`, bit for bit: on 1, 2 and 4 threads, in one piece, in pieces of 7, token by token, beside another sequence;
// in f32 and with the activations that are the default.
inline void ExpectSameBitsHoweverRun(const std::string& path, const std::vector<int32_t>& ids) {
  for (ActivationMode activations : {ActivationMode::kF32, ActivationMode::kAuto}) {
    SCOPED_TRACE(activations == ActivationMode::kF32 ? "f32" : "auto");
    EngineOptions options = Exact();
    options.activations = activations;
    options.threads = 1;
    Opened one = Open(path, options);
    ASSERT_NE(one.engine, nullptr);
    const std::vector<float> whole = Logits(*one.engine, ids, ids.size());
    ExpectSameLogits(Logits(*one.engine, ids, 7), whole, "pieces of 7");
    ExpectSameLogits(Logits(*one.engine, ids, 1), whole, "token by token");
    ExpectSameLogits(LogitsBesideAnother(*one.engine, ids), whole, "beside another sequence");
    for (int threads : {2, 4}) {
      options.threads = threads;
      Opened more = Open(path, options);
      ASSERT_NE(more.engine, nullptr);
      ExpectSameLogits(Logits(*more.engine, ids, ids.size()), whole, std::to_string(threads) + " threads");
      ExpectSameLogits(Logits(*more.engine, ids, 1), whole, std::to_string(threads) + " threads, token by token");
    }
  }
}

}  // namespace tally
