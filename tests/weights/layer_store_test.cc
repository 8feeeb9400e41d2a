// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/layer_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tally {
namespace {

constexpr uint64_t kLayerPage = 4096;

// Every page of a layer holds its number. Two pieces.
class LayerReader final : public RecordReader {
 public:
  explicit LayerReader(std::vector<ExpertRecords> layers) : layers_(std::move(layers)) {}
  int pieces(size_t) const override { return 2; }
  uint64_t bytes(size_t layer) const override { return layers_[layer].bytes; }
  Status Read(size_t layer, int64_t expert, int piece, uint8_t* slot, int) const override {
    EXPECT_EQ(expert, 0);
    ++reads_;
    if (layer == bad_ && fail_ > 0 && fail_-- > 0) return BadInput("FILE: Input/output error at 17");
    for (uint64_t at = piece == 0 ? 0 : kLayerPage; at < (piece == 0 ? kLayerPage : layers_[layer].bytes); at += kLayerPage) {
      std::memcpy(slot + at, &layer, sizeof layer);
    }
    return {};
  }
  mutable std::atomic<int> reads_{0}, fail_{0};
  std::atomic<size_t> bad_{0};

 private:
  const std::vector<ExpertRecords> layers_;
};

// Layers 10, 12, 14 ... of two to four pages, each of two weights.
struct LayersInTurn {
  explicit LayersInTurn(size_t n, bool guarded = false) {
    std::vector<ExpertRecords> layers;
    for (size_t i = 0; i < n; ++i) {
      const WeightId id = static_cast<WeightId>(2 * i);
      const int32_t layer = static_cast<int32_t>(10 + 2 * i);
      layers.push_back(
          {.layer = layer, .parts = {{id, 0}, {id + 1, kLayerPage}}, .experts = 1, .bytes = (2 + i % 3) * kLayerPage});
    }
    auto own = std::make_unique<LayerReader>(layers);
    reader = own.get();
    store = LayerStore::Create(layers, guarded, std::move(own)).value();
  }
  uint64_t Held(size_t layer, WeightId part) const {
    uint64_t value = 0;
    std::memcpy(&value, store->DataOf(static_cast<WeightId>(2 * layer) + part), sizeof value);
    return value;
  }
  // The first error.
  Status Run(size_t layers) {
    LayerStore::Pass pass = store->Begin();
    for (size_t i = 0; i < layers; ++i) {
      if (Status status = pass.Wait(i); !status.ok()) return status;
      EXPECT_EQ(Held(i, 0), i);
      EXPECT_EQ(Held(i, 1), i);
      pass.Free(i);
    }
    return {};
  }
  LayerReader* reader = nullptr;
  std::unique_ptr<LayerStore> store;
};

TEST(LayerStore, HasEachLayerInItsPlaceWhenItRuns) {
  for (const size_t n : {2, 3, 4, 7}) {
    SCOPED_TRACE(n);
    LayersInTurn s(n);
    EXPECT_EQ(s.store->IndexOf(10), 0);
    EXPECT_EQ(s.store->IndexOf(11), -1);
    EXPECT_EQ(s.store->DataOf(99), nullptr);
    EXPECT_EQ(s.store->memory().size(), 2 * std::min<size_t>(n + 1, 4) * kLayerPage);
    for (size_t i = 0; i + 2 < n; ++i) EXPECT_EQ(s.store->RecordOf(i), s.store->RecordOf(i + 2));
    for (int step = 0; step < 20; ++step) EXPECT_TRUE(s.Run(n).ok());
    s.store->Begin();  // waits for no read
    EXPECT_LE(s.reader->reads_.load(), static_cast<int>(2 * (20 * n + 2)));
    EXPECT_GE(s.reader->reads_.load(), static_cast<int>(2 * 20 * n));
  }
}

TEST(LayerStore, BeginsAnewAfterAStepThatEndedEarly) {
  for (const size_t n : {3, 4}) {
    LayersInTurn s(n);
    for (const size_t layers : {1, 2, 0, 3, 2}) {
      EXPECT_TRUE(s.Run(layers).ok());
      EXPECT_TRUE(s.Run(n).ok());
    }
  }
}

TEST(LayerStore, ReadsAgainOnceAndGoesOnAfterAnError) {
  LayersInTurn s(5);
  for (const size_t bad : {0, 2, 4}) {
    SCOPED_TRACE(bad);
    EXPECT_TRUE(s.Run(5).ok());
    s.reader->bad_ = bad;
    s.reader->fail_ = 1;
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(s.Run(5).ok());
    s.reader->fail_ = 4;  // both pieces, twice
    Status failed;
    for (int step = 0; step < 2 && failed.ok(); ++step) failed = s.Run(5);  // the first layers of the next step have been read
    EXPECT_EQ(failed.code(), StatusCode::kUnreadable);
    EXPECT_EQ(failed.message(), "layer " + std::to_string(10 + 2 * bad) + ": FILE: Input/output error at 17");
    s.reader->fail_ = 0;
    EXPECT_TRUE(s.Run(5).ok());
  }
}

// Filled through a view of their own; a layer that has run is told of before its slot is filled again.
TEST(LayerStore, TellsBeforeASlotIsFilledAgain) {
  LayersInTurn s(3, /*guarded=*/true);
  std::vector<size_t> told;
  s.store->SetAfterUse([&](size_t layer) {
    EXPECT_EQ(s.Held(layer, 1), layer);
    told.push_back(layer);
  });
  EXPECT_TRUE(s.Run(3).ok());
  EXPECT_EQ(told, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(s.store->InSlot(0), 0u);
  EXPECT_EQ(s.store->InSlot(1), 1u);
}

}  // namespace
}  // namespace tally
