// SPDX-License-Identifier: Apache-2.0
// Charged pages against touched ones, weight by weight and row by row, without a model: the rows are read here.
#include "engine/studies/page_proof.h"
#include "engine/recipe/recipe.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/kernels/unpack.h"
#include "tests/support/charges.h"
#include "tests/weights/everything.h"
#include "tests/weights/written.h"

namespace tally {
namespace {

uint8_t ReadByte(const uint8_t* p) { return *static_cast<const volatile uint8_t*>(p); }

class PageProof : public testing::Test {
 protected:
  void Load() {
    c_.Write();
    Team team(1);
    auto weights = LoadSpec(c_.inventory, c_.spec, team, nullptr, /*guard_slices=*/true);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    weights_ = std::move(weights).value();
    ledger_.SetWeights(weights_.infos());
    auto watch = WeightWatch::New(weights_);
    ASSERT_TRUE(watch.ok()) << watch.status().message();
    watch_ = std::move(watch).value();
  }

  // The rows of a step that reads what `read` reads and is charged with `charged`.
  template <class Read>
  std::vector<PageRow> Step(const WeightTouches& charged, const Read& read) {
    ledger_.BeginStep(RowsIn(Phase::kDecode, 1, 1));
    ChargeOnce(ledger_, {}, {}, {}, charged);
    ledger_.EndStep();
    EXPECT_TRUE(watch_->Start().ok());
    read();
    const auto touched = watch_->Stop();
    EXPECT_TRUE(touched.ok()) << touched.status().message();
    return ComparePages(ledger_, weights_, watch_->page_bytes(), *touched);
  }

  WrittenCheckpoint c_;
  PackedWeights weights_;
  Ledger ledger_;
  std::unique_ptr<WeightWatch> watch_;
};

TEST_F(PageProof, EveryRowOfEveryLayoutTouchesThePagesItIsChargedWith) {
  FillEverything(c_);
  Load();
  for (const WeightView& w : weights_.views()) {
    SCOPED_TRACE(weights_.infos()[w.id].name);
    std::vector<float> row(static_cast<size_t>(w.cols));
    const int64_t step = w.rows > 200 ? 37 : 1;  // of large ones some, every lane among them
    for (int64_t s = 0; s < w.slices; ++s) {
      for (int64_t r = 0; r < w.rows; r += step) {
        const uint32_t at = static_cast<uint32_t>(r);
        const auto rows = Step({{w.id, static_cast<uint32_t>(s), at, at + 1}}, [&] { UnpackRow(w, s, r, row.data()); });
        ASSERT_EQ(rows.size(), 1u);
        ASSERT_TRUE(rows[0].agrees()) << "slice " << s << " row " << r << " page " << rows[0].findings[0].first_page;
        EXPECT_GT(rows[0].charged_pages, 0u);
        EXPECT_EQ(rows[0].charged_pages, rows[0].touched_pages);
        EXPECT_EQ(rows[0].charged_bytes, w.panel_stride);
      }
    }
    const auto all = Step({{w.id, 0, 0, static_cast<uint32_t>(w.rows)}}, [&] {
      for (int64_t r = 0; r < w.rows; ++r) UnpackRow(w, 0, r, row.data());
    });
    ASSERT_EQ(all.size(), 1u);
    EXPECT_TRUE(all[0].agrees());
    EXPECT_EQ(all[0].charged_bytes, weights_.infos()[w.id].packed_bytes / static_cast<uint64_t>(w.slices));
  }
}

// Short panels, some of which end a few bytes into a page, where only the last of their rows have any.
TEST_F(PageProof, ARowIsNotChargedWithPagesThatHoldItsPanelOnly) {
  constexpr int64_t kRows = 140 * 16;
  c_.spec.recipe.tied_head = true;
  c_.Plain(Role::kTokenEmbedding, -1, DType::kQ8_0, {kRows, 32});
  c_.Plain(Role::kQ, 0, DType::kQ4_0, {kRows, 32});
  c_.Plain(Role::kK, 0, DType::kMXFP4, {kRows, 32});
  Load();
  for (const WeightView& w : weights_.views()) {
    SCOPED_TRACE(weights_.infos()[w.id].name);
    std::vector<float> row(32);
    int fewer = 0;
    for (int64_t panel = 0; panel < w.panels(); ++panel) {
      uint64_t first = 0;
      for (int64_t r = 16 * panel; r < 16 * panel + 16; ++r) {
        const uint32_t at = static_cast<uint32_t>(r);
        const auto rows = Step({{w.id, 0, at, at + 1}}, [&] { UnpackRow(w, 0, r, row.data()); });
        ASSERT_EQ(rows.size(), 1u);
        ASSERT_TRUE(rows[0].agrees()) << "row " << r;
        if (r == 16 * panel) first = rows[0].charged_pages;
        fewer += first < rows[0].charged_pages;
      }
    }
    EXPECT_GT(fewer, 0);
  }
}

// Rows of one panel and of several: bytes panel by panel.
TEST_F(PageProof, BytesAreThoseOfThePanelsAndOfTheRows) {
  c_.spec.recipe.tied_head = true;
  c_.Plain(Role::kTokenEmbedding, -1, DType::kQ8_0, {100, 256});
  c_.Plain(Role::kPositionEmbedding, -1, DType::kF16, {50, 100});
  Load();
  const WeightView &panels = weights_.views()[0], &rows = weights_.views()[1];
  std::vector<float> out(256);
  const auto some = Step({{0, 0, 3, 4}, {0, 0, 14, 18}, {0, 0, 5, 6}, {0, 0, 99, 100}, {1, 0, 7, 9}, {1, 0, 30, 31}}, [&] {
    for (const int64_t r : {3, 5, 14, 15, 16, 17, 99}) UnpackRow(panels, 0, r, out.data());
    for (const int64_t r : {7, 8, 30}) UnpackRow(rows, 0, r, out.data());
  });
  ASSERT_EQ(some.size(), 2u);
  EXPECT_TRUE(some[0].agrees() && some[1].agrees());
  EXPECT_EQ(some[0].charged_bytes, 3 * PanelBytes(DType::kQ8_0, 256));
  EXPECT_EQ(some[1].charged_bytes, 3u * 200);
  EXPECT_EQ(some[0].component, Component::kEmbedding);
  EXPECT_EQ(some[1].component, Component::kPositionEmbedding);
}

// What is wrong by one page is found, by kind, slice and page, and nothing else is.
TEST_F(PageProof, EveryDifferenceIsFound) {
  c_.Plain(Role::kExpertDown, 0, DType::kMXFP4, {3, 48, 2048});  // a slice: 52,224 bytes
  c_.Plain(Role::kQ, 0, DType::kF32, {64, 64});
  Load();
  const WeightView &experts = weights_.views()[0], &q = weights_.views()[1];
  const uint64_t page = watch_->page_bytes(), slice = 3 * experts.panel_stride;
  const uint64_t pages = (slice + page - 1) / page;
  std::vector<float> out(2048);
  const auto read = [&](int64_t s) {
    for (int64_t r = 0; r < 48; ++r) UnpackRow(experts, s, r, out.data());
  };
  EXPECT_TRUE(Step({}, [] {}).empty());

  // A whole slice too many, or too few.
  auto found = Step({{0, 1, 0, 48}}, [&] { read(1), read(2); });
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].findings.size(), 1u);
  EXPECT_EQ(found[0].findings[0].kind, PageFinding::Kind::kTouched);
  EXPECT_EQ(found[0].findings[0].slice, 2u);
  EXPECT_EQ(found[0].findings[0].first_page, 0u);
  EXPECT_EQ(found[0].findings[0].pages, pages);
  EXPECT_EQ(found[0].touched_pages, 2 * pages);
  EXPECT_EQ(found[0].charged_bytes, slice);
  found = Step({{0, 1, 0, 48}, {0, 0, 0, 48}}, [&] { read(1); });
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].findings.size(), 1u);
  EXPECT_EQ(found[0].findings[0].kind, PageFinding::Kind::kCharged);
  EXPECT_EQ(found[0].findings[0].slice, 0u);
  EXPECT_EQ(found[0].findings[0].pages, pages);

  // A single byte of a weight that nobody was charged with; its first, its last.
  for (const uint8_t* at : {q.data, q.data + 64 * 256 - 1}) {
    found = Step({{0, 1, 0, 48}}, [&] {
      read(1);
      ReadByte(at);
    });
    ASSERT_EQ(found.size(), 2u);
    EXPECT_TRUE(found[0].agrees());
    ASSERT_EQ(found[1].findings.size(), 1u);
    EXPECT_EQ(found[1].charged_bytes, 0u);
    EXPECT_EQ(found[1].findings[0].kind, PageFinding::Kind::kTouched);
    EXPECT_EQ(found[1].findings[0].first_page, at == q.data ? 0 : 64 * 256 / page - 1);
    EXPECT_EQ(found[1].findings[0].pages, 1u);
  }

  // One byte beyond a slice, in the middle of a tensor and at its end.
  for (const uint32_t s : {0u, 2u}) {
    found = Step({{0, s, 0, 48}}, [&] {
      read(s);
      ReadByte(experts.Slice(s) + slice);
    });
    ASSERT_EQ(found.size(), 1u);
    ASSERT_EQ(found[0].findings.size(), 1u);
    EXPECT_EQ(found[0].findings[0].kind, PageFinding::Kind::kGuard);
    EXPECT_EQ(found[0].findings[0].slice, s);
    EXPECT_EQ(found[0].findings[0].first_page, pages);
    EXPECT_EQ(found[0].touched_pages, pages + 1);
  }

  // Rows of the first panel read, those of the last charged.
  found = Step({{0, 0, 32, 48}}, [&] {
    for (int64_t r = 0; r < 16; ++r) UnpackRow(experts, 0, r, out.data());
  });
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].findings.size(), 2u);
  EXPECT_EQ(found[0].findings[0].kind, PageFinding::Kind::kTouched);
  EXPECT_EQ(found[0].findings[1].kind, PageFinding::Kind::kCharged);
}

}  // namespace
}  // namespace tally
