// SPDX-License-Identifier: Apache-2.0
// Layers of any kind in one model, with random weights: what is charged is what the closed forms say, Highway agrees with the reference,
// and the bits do not depend on how a prompt is cut.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <tuple>

#include "counters/books/closed_form.h"
#include "engine/base/aligned.h"
#include "engine/exec/executor.h"
#include "engine/graph/decoder.h"
#include "engine/recipe/check_recipe.h"

namespace tally {
namespace {

// Two kinds of heads, windows and ropes, a layer without a feed-forward, one without a mixer, and two that read the cache of another.
Recipe MixedRecipe() {
  Recipe r;
  r.family = "mixed";
  r.d_model = 32;
  r.all.attention.n_heads = 4;
  r.all.attention.n_kv_heads = 2;
  r.all.attention.head_dim = 8;
  r.all.ffn.width = 40;
  r.vocab = 50;
  r.context = 64;
  r.tied_head = true;
  r.all.attention.qk_norm = QkNormKind::kHead;
  r.rope = {.style = RopeStyle::kRotateHalf, .dim = 16, .scaling = {}};
  r.local_rope = {.style = RopeStyle::kRotateHalf, .dim = 8, .scaling = {}};
  const LayerRecipe narrow = {.attention = {.window = 5, .scale = 0.3f, .rope = LayerRope::kLocal}};
  const LayerRecipe wide = {.attention = {.n_heads = 3, .n_kv_heads = 1, .head_dim = 16, .scale = 0.2f}};
  LayerRecipe mixer_only = wide, network_only = narrow, reads_narrow = narrow, reads_wide = wide;
  mixer_only.feed_forward = {};
  mixer_only.attention.rope = LayerRope::kNone;
  network_only.mixers = {};
  network_only.ffn.width = 24;
  reads_narrow.attention.cache_of = 0;
  reads_narrow.attention.n_heads = 2;
  reads_wide.attention.cache_of = 1;
  r.layers = {narrow, wide, mixer_only, network_only, reads_narrow, reads_wide};
  r.n_layers = static_cast<int32_t>(r.layers.size());
  FillLayers(r);
  return r;
}

class RandomWeights {
 public:
  explicit RandomWeights(const Recipe& r) : recipe_(r) {
    for (int32_t layer = -1; layer < r.n_layers; ++layer) {
      for (int i = 0; i < kRoles; ++i) {
        if (HasRole(r, static_cast<Role>(i), layer)) Add(static_cast<Role>(i), layer);
      }
    }
  }
  WeightView Get(Role role, int32_t layer) const {
    if (role == Role::kHead && recipe_.tied_head) role = Role::kTokenEmbedding;
    const auto found = views_.find({role, layer});
    return found == views_.end() ? WeightView() : found->second;
  }
  const std::vector<WeightInfo>& infos() const { return infos_; }

 private:
  void Add(Role role, int32_t layer) {
    const std::vector<uint64_t> shape = RoleShape(recipe_, role, layer);
    const bool vector = FactsOf(role).vector;
    WeightView w;
    w.id = static_cast<WeightId>(infos_.size());
    w.cols = static_cast<int64_t>(shape.back());
    w.rows = vector ? 1 : static_cast<int64_t>(shape[shape.size() - 2]);
    w.slices = static_cast<int64_t>(shape.size() > (vector ? 1u : 2u) ? shape[0] : 1);
    w.layout = vector ? WeightLayout::kVector : WeightLayout::kPanel16;
    w.panel_stride = vector ? static_cast<size_t>(w.cols) * 4 : PanelBytes(DType::kF32, w.cols);
    w.slice_stride = w.panel_stride * static_cast<size_t>(vector ? 1 : w.panels());
    w.stored_row_bytes = static_cast<uint64_t>(w.cols) * 4;
    AlignedBuffer<float>& data = data_.emplace_back();
    ASSERT_TRUE(data.Resize(w.slice_stride / 4 * static_cast<size_t>(w.slices)));
    const float scale = vector ? 1 : 1 / std::sqrt(static_cast<float>(w.cols));
    for (size_t i = 0; i < data.size(); ++i) data.data()[i] = scale * Next();
    w.data = reinterpret_cast<const uint8_t*>(data.data());
    views_[{role, layer}] = w;
    infos_.push_back(WeightInfoOf({.role = role, .layer = layer, .names = {}, .shape = shape}, recipe_));
  }
  float Next() { return static_cast<float>(static_cast<double>(random_() >> 11) * 0x1p-52 - 1); }

  const Recipe& recipe_;
  std::mt19937_64 random_{7};
  std::deque<AlignedBuffer<float>> data_;
  std::map<std::pair<Role, int32_t>, WeightView> views_;
  std::vector<WeightInfo> infos_;
};

// A decoder with a cache of one sequence.
class Runner {
 public:
  Runner(const Recipe& r, ImplChoice impl) : recipe_(r), weights_(r), team_(2), executor_(team_, &ledger_) {
    EXPECT_TRUE(CheckRecipe(r).ok()) << CheckRecipe(r).message();
    EXPECT_TRUE(CannotRun(r).empty());
    global_ = MakeRopeFrequencies(r.rope).value();
    local_ = MakeRopeFrequencies(r.local_rope).value();
    ledger_.SetWeights(weights_.infos());
    executor_.SetShareGain(0);
    executor_.SetImpl(impl);
    const auto weight = [this](Role role, int32_t layer) { return weights_.Get(role, layer); };
    PlanOptions options{.kv = KvType::kF32, .impl = impl, .max_batch = 24, .max_logit_rows = 24, .context = 64};
    source_ = std::make_unique<PlanSource>(PlanSource{recipe_, weight, global_, local_});
    decoder_ = Decoder::Create(*source_, options, executor_).value();
    cache_ =
        SequenceStore::Create(KvLayers(recipe_, options.kv), {.context = 64, .sequences = 1, .max_batch = 24}, nullptr).value();
    EXPECT_EQ(cache_->NewSequence().value(), 0);
  }
  // Logits of so many more positions.
  std::vector<float> Step(int32_t rows) {
    const int32_t before = static_cast<int32_t>(cache_->Length(0));
    std::vector<int32_t> tokens, logit_rows;
    std::vector<KvRow> kv_rows;
    for (int32_t i = 0; i < rows; ++i) {
      tokens.push_back((7 * (before + i) + 3) % recipe_.vocab);
      logit_rows.push_back(i);
      kv_rows.push_back({0, before + i});
    }
    EXPECT_TRUE(cache_->Extend(0, rows).ok());
    const std::vector<BookedRow> booked(static_cast<size_t>(rows), {.phase = Phase::kPrefill, .logits = true});
    ledger_.Reset();
    executor_.BeginStep(booked);
    const auto logits = decoder_->Forward({tokens, kv_rows, logit_rows}, *cache_);
    executor_.EndStep();
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    if (!logits.ok()) return {};
    return {logits->data, logits->data + logits->rows * logits->cols};
  }
  const Ledger& ledger() const { return ledger_; }

 private:
  const Recipe recipe_;
  const RandomWeights weights_;
  Team team_;
  Ledger ledger_;
  Executor executor_;
  RopeFrequencies global_, local_;
  std::unique_ptr<PlanSource> source_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<SequenceStore> cache_;
};

using Site3 = std::tuple<int32_t, Component, WorkClass>;
using Figures = std::map<Site3, std::pair<uint64_t, uint64_t>>;  // FLOPs, special

Figures Charged(const Ledger& ledger, int32_t layers) {
  Figures figures;
  for (int32_t layer = -1; layer < layers; ++layer) {
    for (int c = 0; c < kComponents; ++c) {
      for (int w = 0; w < kWorkClasses; ++w) {
        const Site3 at = {layer, static_cast<Component>(c), static_cast<WorkClass>(w)};
        const Cost useful = ledger.at(Phase::kPrefill, {layer, std::get<1>(at)}).useful;
        const std::pair all = {useful.Flops(std::get<2>(at)), useful.Special(std::get<2>(at))};
        if (all.first > 0 || all.second > 0) figures[at] = all;
      }
    }
  }
  return figures;
}

void ExpectTheClosedForms(const Ledger& ledger, const Recipe& r, const books::Workload& work) {
  Figures wanted;
  for (const books::WorkForm& f : books::WorkForms(r, work)) {
    auto& at = wanted[{f.layer, f.component, f.work_class}];
    at.first += f.flops.value();
    at.second += f.special.value();
  }
  const Figures charged = Charged(ledger, r.n_layers);
  for (const auto& [at, figures] : charged) {
    EXPECT_EQ(figures, wanted[at]) << "layer " << std::get<0>(at) << ", " << ComponentName(std::get<1>(at)) << ", "
                                   << kWorkClassNames[static_cast<size_t>(std::get<2>(at))];
  }
  EXPECT_EQ(charged.size(), wanted.size());
  uint64_t read = 0, written = 0;
  for (const books::CacheForm& f : books::CacheForms(r, work, {.element_bytes = 4})) {
    read += f.read.value();
    written += f.written.value();
    EXPECT_EQ(ledger.at(Phase::kPrefill, {f.layer, f.reads}).useful.Bytes(ByteKind::kKvRead), f.read.value()) << f.layer;
    EXPECT_EQ(ledger.at(Phase::kPrefill, {f.layer, f.writes}).useful.Bytes(ByteKind::kKvWritten), f.written.value()) << f.layer;
  }
  uint64_t states = 0;
  for (const books::StateForm& f : books::StateForms(r, work)) {
    states += f.bytes.value();
    const Cost moved = ledger.at(Phase::kPrefill, {f.layer, f.component}).useful;
    EXPECT_EQ(moved.Bytes(ByteKind::kStateRead), f.bytes.value()) << f.layer;
    EXPECT_EQ(moved.Bytes(ByteKind::kStateWritten), f.bytes.value()) << f.layer;
  }
  EXPECT_EQ(ledger.total(Phase::kPrefill).useful.Bytes(ByteKind::kStateRead), states);
  EXPECT_EQ(ledger.total(Phase::kPrefill).useful.Bytes(ByteKind::kStateWritten), states);
  EXPECT_EQ(ledger.total(Phase::kPrefill).useful.Bytes(ByteKind::kKvRead), read);
  EXPECT_EQ(ledger.total(Phase::kPrefill).useful.Bytes(ByteKind::kKvWritten), written);
}

void ExpectAllOfIt(const Recipe& r) {
  constexpr int32_t kRows = 19;
  Runner highway(r, ImplChoice::kAuto), reference(r, ImplChoice::kRef), piecewise(r, ImplChoice::kAuto);
  const std::vector<float> whole = highway.Step(kRows), expected = reference.Step(kRows);
  ASSERT_FALSE(whole.empty());
  ASSERT_EQ(whole.size(), expected.size());
  float greatest = 0, apart = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    greatest = std::max(greatest, std::fabs(expected[i]));
    apart = std::max(apart, std::fabs(expected[i] - whole[i]));
  }
  EXPECT_GT(greatest, 0.1f);
  EXPECT_LE(apart, 1e-5f * greatest);
  std::vector<float> pieces;
  for (const int32_t rows : {1, 1, 7, 1, 9}) {
    const std::vector<float> more = piecewise.Step(rows);
    pieces.insert(pieces.end(), more.begin(), more.end());
  }
  EXPECT_EQ(pieces, whole);
  const uint64_t V = kRows;
  ExpectTheClosedForms(highway.ledger(), r, {.sequences = 1, .rows = V, .context = V, .logit_rows = V});
  highway.Step(1);
  ExpectTheClosedForms(highway.ledger(), r, {.sequences = 1, .rows = 1, .context = V + 1, .logit_rows = 1});

  uint64_t parameters = 0, of_roles = 0;
  for (const books::ParameterForm& p : books::ParameterForms(r)) parameters += p.count.value();
  const RandomWeights weights(r);
  for (const WeightInfo& w : weights.infos()) of_roles += w.parameters();
  EXPECT_EQ(parameters, of_roles);
}

TEST(Layers, OfManyKindsInOneModel) { ExpectAllOfIt(MixedRecipe()); }

TEST(Layers, BlocksWithOutputsOfTheirOwn) {
  Recipe scaled = MixedRecipe();
  ChangeLayers(scaled, [](LayerRecipe& l) { l.residual.scale = 0.5f; });
  ExpectAllOfIt(scaled);
  Recipe normed = MixedRecipe();
  ChangeLayers(normed, [](LayerRecipe& l) { l.residual.post_norms = true; });
  ExpectAllOfIt(normed);
}

// Layers of a short convolution alone, of one without a feed-forward, and of one beside attention on the same normed input.
Recipe ConvRecipe() {
  Recipe r = MixedRecipe();
  r.all.conv.taps = 3;
  LayerRecipe conv = {.mixers = Mixer::kShortConv};
  LayerRecipe conv_only = conv, both = r.layers[1];
  conv_only.feed_forward = {};
  both.mixers = {Mixer::kAttention, Mixer::kShortConv};
  r.layers = {conv, r.layers[0], both, conv_only, conv};
  r.n_layers = static_cast<int32_t>(r.layers.size());
  FillLayers(r);
  return r;
}

TEST(Layers, ConvolutionsAloneAndBesideAttention) {
  Recipe r = ConvRecipe();
  ExpectAllOfIt(r);
  ChangeLayers(r, [](LayerRecipe& l) { l.residual.scale = 0.5f; });
  ExpectAllOfIt(r);
  ChangeLayers(r, [](LayerRecipe& l) { l.residual.scale = 1; });
  ChangeLayers(r, [](LayerRecipe& l) { l.conv.taps = 5; });
  ExpectAllOfIt(r);
  ChangeLayers(r, [](LayerRecipe& l) { l.residual.post_norms = true; });
  ExpectAllOfIt(r);
}

// One layer of the store for each mixer that keeps something; layers that read another's have none.
TEST(Layers, CachesAreNumberedApartFromLayers) {
  const auto kept = [](const Recipe& r) {
    std::vector<std::pair<int32_t, size_t>> layers;  // window and bytes of a block
    for (const StoreLayer& l : KvLayers(r, KvType::kF16)) layers.emplace_back(l.window, l.bytes);
    return layers;
  };
  const size_t narrow = KvLayout{.type = KvType::kF16, .kv_heads = 2, .k_dim = 8}.BlockBytes();
  const size_t wide = KvLayout{.type = KvType::kF16, .kv_heads = 1, .k_dim = 16}.BlockBytes();
  const size_t rows = kStateRows * 32 * sizeof(float);  // f32, whatever the type of keys and values
  using Kept = std::vector<std::pair<int32_t, size_t>>;
  EXPECT_EQ(kept(MixedRecipe()), (Kept{{5, narrow}, {0, wide}, {0, wide}}));
  EXPECT_EQ(kept(ConvRecipe()), (Kept{{0, rows}, {5, narrow}, {0, wide}, {0, rows}, {0, rows}, {0, rows}}));
}

TEST(Layers, SymbolsAreOfTheirKind) {
  std::string symbols;
  for (const books::SizeSymbol& s : books::LayerSizeSymbols(MixedRecipe()))
    symbols += s.name + "=" + std::to_string(s.value) + " ";
  EXPECT_EQ(symbols, "H=4 H_2=3 H_3=2 K=2 K_2=1 D=8 D_2=16 F=40 F_2=24 ");
  std::map<std::string, std::string> forms;
  for (const books::ParameterForm& p : books::ParameterForms(MixedRecipe())) forms[p.full_name()] = p.count.text();
  EXPECT_EQ(forms["blk.0.attn_q"], "H D E");
  EXPECT_EQ(forms["blk.1.attn_q"], "H_2 D_2 E");
  EXPECT_EQ(forms["blk.1.attn_k"], "K_2 D_2 E");
  EXPECT_EQ(forms["blk.3.ffn_up"], "F_2 E");
  EXPECT_EQ(forms.count("blk.2.ffn_up"), 0u);
  EXPECT_EQ(forms.count("blk.3.attn_norm"), 0u);
  EXPECT_EQ(forms.count("blk.4.attn_k"), 0u);
  EXPECT_EQ(forms.count("blk.4.attn_k_norm"), 0u);
  EXPECT_EQ(forms["blk.4.attn_q"], "H_3 D E");
}

TEST(Layers, WhatDoesNotFitIsRefused) {
  const auto refused = [](auto change, const std::string& reason) {
    Recipe r = MixedRecipe();
    change(r);
    const Status status = CheckRecipe(r);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
  };
  refused([](Recipe& r) { r.layers[1].attention.n_kv_heads = 2; }, "3 attention heads cannot share 2");
  refused([](Recipe& r) { r.layers[0].attention.rope = LayerRope::kGlobal; }, "rope turns 16 of a head's 8");
  refused([](Recipe& r) { r.layers[4].attention.cache_of = 4; }, "no earlier one");
  refused([](Recipe& r) { r.layers[4].attention.cache_of = 3; }, "which has none");
  refused([](Recipe& r) { r.layers[5].attention.cache_of = 4; }, "which has none");
  refused([](Recipe& r) { r.layers[5].attention.cache_of = 0; }, "other key-value heads");
  refused([](Recipe& r) { r.layers[4].attention.window = 6; }, "does not keep");
  refused([](Recipe& r) { r.layers[3].mixers = Mixer::kLatentAttention; }, "kv_rank");
  refused([](Recipe& r) { r.layers[3].ffn.width = -1; }, "negative");
}

TEST(Layers, WhatNoPlanCoversIsNamed) {
  const auto named = [](auto change) {
    Recipe r = MixedRecipe();
    change(r);
    return CannotRun(r);
  };
  EXPECT_EQ(named([](Recipe& r) {
              r.layers[0].feed_forward = {FeedForward::kDense, FeedForward::kSparse};
            }),
            std::vector<std::string>{"experts beside a dense feed-forward without RMSNorms before and after them"});
  EXPECT_EQ(named([](Recipe& r) { ChangeLayers(r, [](LayerRecipe& l) { l.residual.kind = Residual::kParallel; }); }),
            std::vector<std::string>{"parallel blocks of which one is absent"});
  EXPECT_EQ(named([](Recipe& r) { r.alibi_bias = 8; }),
            std::vector<std::string>{"ALiBi with heads that differ from layer to layer"});
}

}  // namespace
}  // namespace tally
