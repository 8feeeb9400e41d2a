// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cost_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/kernels/attention/attention.h"
#include "engine/kernels/attention/attention_ref.h"
#include "engine/kernels/elementwise/elementwise.h"
#include "engine/kernels/elementwise/elementwise_ref.h"
#include "engine/kernels/embed/embed.h"
#include "engine/kernels/embed/embed_ref.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/gated_add/gated_add.h"
#include "engine/kernels/gated_add/gated_add_ref.h"
#include "engine/kernels/kv_store/kv_store.h"
#include "engine/kernels/matmul/matmul.h"
#include "engine/kernels/matmul/matmul_ref.h"
#include "engine/kernels/norm/norm.h"
#include "engine/kernels/norm/norm_ref.h"
#include "engine/kernels/pack_act/pack_act.h"
#include "engine/kernels/place_rows/place_rows.h"
#include "engine/kernels/rope/rope.h"
#include "engine/kernels/rope/rope_ref.h"
#include "engine/kernels/router/router.h"
#include "engine/kernels/router/router_ref.h"
#include "engine/kernels/scale_rows/scale_rows.h"
#include "engine/kernels/scale_rows/scale_rows_ref.h"
#include "tests/kernels/cost_sweep.h"
#include "tests/support/counting_scalar.h"

namespace tally {
namespace {

class Sweep : public CostSweep {
 public:
  using CostSweep::CostSweep;

  void Run() {
    Norms();
    HeadNorms();
    Elementwise();
    Ropes();
    Routes();
    Embeds();
    Packs();
    for (const DType t : kWeightTypes) {
      for (const ActKind k : {ActKind::kF32, ActKind::kBF16, ActKind::kInt8}) {
        if (!TakesActivations(t, k)) continue;
        MatMuls(t, k);
      }
    }
    Attentions();
  }

 private:
  void Norms() {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer, NormKind::kL2}) {
      for (const bool biased : {false, true}) {  // or, of RMS, added to out
        if (biased && kind == NormKind::kL2) continue;
        const bool added = biased && kind == NormKind::kRms;
        for (const auto& [rows, groups, cols] : {std::array<int64_t, 3>{1, 1, 1}, {2, 3, 10}, {5, 1, 64}, {0, 1, 8}}) {
          Memory& m = NewMemory();
          NormOp op;
          op.kind = kind;
          op.x = m.Matrix(rows, groups * cols);
          op.out = m.Matrix(rows, groups * cols);
          op.groups = groups;
          if (kind != NormKind::kL2) op.weight = m.Vector(1, cols, 2);
          if (biased && !added) op.bias = m.Vector(1, cols, 4);
          Counted c;
          c.at(WorkClass::kNorm) = CountOf([&] { NormRef<Counting>(op, 0, op.x.rows * op.groups); });
          if (added) {
            op.add_to_out = true;
            c.at(WorkClass::kResidualBias) =
                CountOf([&] { NormRef<Counting>(op, 0, op.x.rows * op.groups); }) - c.at(WorkClass::kNorm);
          }
          if (rows > 0) {
            AddWeight(op.weight, 1, c);
            AddWeight(op.bias, 1, c);
          }
          Compare(std::string(kNormKindNames[static_cast<size_t>(kind)]) + (added ? " added" : biased ? " biased" : ""), op, c);
        }
      }
    }
  }

  // Norms of heads: with a weight of its own for each, and without weights.
  void HeadNorms() {
    for (const bool weighted : {false, true}) {
      Memory& m = NewMemory();
      NormOp op;
      op.kind = weighted ? NormKind::kLayer : NormKind::kRms;
      op.x = op.out = m.Matrix(3, 4 * 10);
      op.groups = 4;
      if (weighted) op.weight = m.Vector(1, 4 * 10, 2);
      Counted c;
      c.at(WorkClass::kNorm) = CountOf([&] { NormRef<Counting>(op, 0, op.x.rows * op.groups); });
      AddWeight(op.weight, 1, c);
      Compare(weighted ? "each head" : "unweighted", op, c, {{"x", 3 * 4 * 10}});
    }
  }

  void Elementwise() {
    for (const float scale : {1.0f, 0.25f}) {
      for (const float softcap : {0.0f, 30.0f}) {
        Memory& m = NewMemory();
        ElementwiseOp op{.x = m.Matrix(3, 40), .scale = scale, .limit = 1 - scale, .softcap = softcap};
        if (scale != 1) op.factor = m.Vector(1, 1, 2);
        Counted c;
        AddWeight(op.factor, 1, c);
        c.at(WorkClass::kActivation) = CountOf([&] { ElementwiseRef<Counting>(op, 0, 3); });
        Compare("", op, c);
      }
    }
    for (const ActivationKind kind : {ActivationKind::kSilu, ActivationKind::kGeluTanh, ActivationKind::kSwigluOai,
                                      ActivationKind::kSigmoid, ActivationKind::kSwigluLimited}) {
      Memory& m = NewMemory();
      const ElementwiseOp op{.x = m.Matrix(3, 40), .up = m.Matrix(3, 40), .activation = kind};
      Counted c;
      c.at(WorkClass::kActivation) = CountOf([&] { ElementwiseRef<Counting>(op, 0, 3); });
      Compare("gated", op, c);
    }
    for (const bool stored : {false, true}) {
      for (const ActivationKind kind : {ActivationKind::kSilu, ActivationKind::kXielu}) {
        Memory& m = NewMemory();
        ElementwiseOp op{.x = m.Matrix(3, 40), .activation = kind, .xielu = {.alpha_n = 0.7f, .alpha_p = 0.8f}};
        if (stored && kind == ActivationKind::kXielu) op.alpha_n = m.Vector(1, 1, 2), op.alpha_p = m.Vector(1, 1, 2);
        Counted c;
        AddWeight(op.alpha_n, 1, c);
        AddWeight(op.alpha_p, 1, c);
        c.at(WorkClass::kActivation) = CountOf([&] { ElementwiseRef<Counting>(op, 0, 3); });
        Compare("alone", op, c);
      }
    }
    for (const int64_t k : {1, 3}) {
      Memory& m = NewMemory();
      const ScaleRowsOp op{.x = m.Matrix(2, 40), .weights = m.Matrix(2, k), .out = m.Matrix(2 * k, 40)};
      Counted c;
      c.at(WorkClass::kResidualBias) = CountOf([&] { ScaleRowsRef<Counting>(op, 0, 2 * k); });
      Compare("", op, c);
    }
    for (const bool softplus : {false, true}) {
      Memory& m = NewMemory();
      ScaleRowsOp op{.x = m.Matrix(2, 40), .weights = m.Matrix(2, 4), .out = m.Matrix(2, 40), .groups = 4};
      Counted c;
      c.at(WorkClass::kResidualBias) = CountOf([&] { ScaleRowsRef<Counting>(op, 0, 2); });
      op.softplus = softplus;
      c.at(WorkClass::kActivation) = CountOf([&] { ScaleRowsRef<Counting>(op, 0, 2); }) - c.at(WorkClass::kResidualBias);
      Compare("groups", op, c);
    }
    Memory& m = NewMemory();
    const std::vector<int32_t> positions = {0, 7, 8, 100};
    const TemperatureOp op{.positions = positions, .scale = 0.1f, .floor = 8, .out = m.Matrix(4, 1)};
    Counted c;
    c.at(WorkClass::kSoftmax) = CountOf([&] { TemperatureRef<Counting>(op, 0, 4); });
    Compare("", op, c);
  }

  void Ropes() {
    for (const int64_t rows : {1, 3}) {
      Memory& m = NewMemory();
      const std::vector<int32_t> positions(static_cast<size_t>(rows), 7);
      RopeTableOp table;
      const Mat<float> frequencies = m.Matrix(1, 12);
      table.positions = positions;
      table.inv_freq = {frequencies.data, 12};
      table.magnitude = 1.1f;
      table.cos = m.Matrix(rows, 12);
      table.sin = m.Matrix(rows, 12);
      Counted c;
      c.at(WorkClass::kRope) = CountOf([&] { RopeTableRef<Counting>(table, 0, rows); });
      Compare("", table, c);
      const std::vector<uint8_t> axes = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0};
      table.heights = table.widths = positions;
      table.axes = axes;
      Compare("of three positions", table, c);
      const std::vector<int32_t> to_rows(1, static_cast<int32_t>(rows));
      const std::vector<GivenRow> given(static_cast<size_t>(rows), {0, frequencies.data});
      const PlaceRowsOp place{.given = given, .to_rows = to_rows, .x = m.Matrix(rows + 1, 12)};
      Compare("", place, Counted());
      for (const RopeStyle style : {RopeStyle::kRotateHalf, RopeStyle::kAdjacentPair}) {
        for (const int64_t head_dim : {24, 40}) {  // all of a head, and part of one
          RopeOp op;
          op.style = style;
          op.heads = 5;
          op.head_dim = head_dim;
          op.dim = 24;
          op.x = m.Matrix(rows, 5 * head_dim);
          op.cos = table.cos;
          op.sin = table.sin;
          Counted turned;
          turned.at(WorkClass::kRope) = CountOf([&] { RopeRef<Counting>(op, 0, rows * 5); });
          Compare("", op, turned, {{"x", static_cast<uint64_t>(rows * 5 * 24)}});
          op.out = m.Matrix(rows, 4 * 50 + 24);
          op.out_head_dim = 50;
          Compare("to another matrix", op, turned,
                  {{"x", static_cast<uint64_t>(rows * 5 * 24)}, {"out", static_cast<uint64_t>(rows * 5 * 24)}});
          op.style = RopeStyle::kNone;
          op.cos = op.sin = {};
          Compare("copied", op, {}, {{"x", static_cast<uint64_t>(rows * 5 * 24)}, {"out", static_cast<uint64_t>(rows * 5 * 24)}});
        }
      }
    }
  }

  void Routes() {
    for (size_t r = 0; r < kRoutingRuleNames.size(); ++r) {
      const RoutingRule rule = static_cast<RoutingRule>(r);
      for (const auto& [rows, experts, k, groups] :
           {std::array<int64_t, 4>{1, 4, 1, 1}, {3, 32, 4, 1}, {2, 9, 9, 1}, {2, 24, 3, 6}}) {
        Memory& m = NewMemory();
        RouteOp op;
        op.rule = rule;
        op.logits = m.Matrix(rows, experts);
        op.top_k = k;
        op.weights = m.Matrix(rows, k);
        op.experts = {reinterpret_cast<int32_t*>(m.Bytes(static_cast<size_t>(4 * rows * k))), rows, k};
        if (groups > 1) {
          op.groups = groups;
          op.kept_groups = 3;
          op.group_best = SoftmaxOfAll(rule) ? 1 : 2;
          op.scale = 2.5f;
          op.sum_eps = 1e-6f;
        }
        if (ScoresAll(rule) && experts != 4) op.bias = m.Vector(1, experts, 2);
        if (experts == 9) op.expert_scale = m.Vector(1, experts, 2);
        std::vector<uint8_t> scratch(RouteScratchBytes(op));
        Counted c;
        AddWeight(op.bias, 1, c);
        AddWeight(op.expert_scale, 1, c);
        c.at(WorkClass::kRouter) = CountOf([&] { RouteRef<Counting>(op, 0, op.logits.rows, scratch); });
        Compare(std::string(kRoutingRuleNames[static_cast<size_t>(rule)]), op, c);
      }
    }
    for (const auto& [rows, cols] : {std::array<int64_t, 2>{1, 3}, {3, 40}}) {
      Memory& m = NewMemory();
      const GatedAddOp op{.y = m.Matrix(rows, cols), .gate = m.Matrix(rows, 1), .out = m.Matrix(rows, cols)};
      Counted c;
      c.at(WorkClass::kActivation) = CountOf([&] { GatedAddRef<Counting, float>(op, 0, op.out.rows); });
      c.at(WorkClass::kResidualBias) = CountOf([&] { GatedAddRef<float, Counting>(op, 0, op.out.rows); });
      Compare("", op, c);
      GatedAddOp scaled = op;
      scaled.gate = {};
      scaled.scale = 0.5f;
      const OpCounts multiplies = CountOf([&] { GatedAddRef<Counting, float>(scaled, 0, op.out.rows); }),
                     adds = CountOf([&] { GatedAddRef<float, Counting>(scaled, 0, op.out.rows); });
      Counted both;
      both.at(WorkClass::kResidualBias) = {multiplies.flops + adds.flops, multiplies.special + adds.special};
      Compare("scaled", scaled, both);
    }
    for (const auto& [rows, k, cols] : {std::array<int64_t, 3>{1, 1, 3}, {3, 4, 40}}) {
      for (const bool weighted : {false, true}) {
        Memory& m = NewMemory();
        MoeCombineOp op;
        op.y = m.Matrix(rows * k, cols);
        op.weights = m.Matrix(rows, k);
        op.out = m.Matrix(rows, cols);
        op.weighted = weighted;
        op.add_to_out = weighted;
        Counted c;
        c.at(WorkClass::kResidualBias) = CountOf([&] { MoeCombineRef<Counting>(op, 0, op.out.rows); });
        Compare(weighted ? "" : "unweighted", op, c);
      }
    }
  }

  void Embeds() {
    const std::vector<int32_t> ids = {3, 17, 3, 31, 18, 0};
    for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0}) {
      for (const bool panels : {false, true}) {
        for (const bool add : {false, true}) {
          Memory& m = NewMemory();
          EmbedOp op;
          op.ids = ids;
          op.table = m.Panels(type, 1, 40, 64);
          if (!panels) {
            op.table.layout = WeightLayout::kRowMajor;
            op.table.panel_stride = op.table.stored_row_bytes;
          }
          op.add_to_out = add;
          op.scale = add && panels ? 1.5f : 1;
          op.first_row = add ? 2 : 0;
          op.out = m.Matrix(static_cast<int64_t>(ids.size()), 64);
          std::vector<uint8_t> scratch(64 * 4);
          Counted c;
          c.at(WorkClass::kResidualBias) = CountOf([&] { EmbedRef<Counting>(op, 0, static_cast<int64_t>(ids.size()), scratch); });
          std::set<int32_t> rows(ids.begin(), ids.end()), places;
          for (const int32_t id : rows) places.insert(panels ? (id + op.first_row) / 16 : id);
          c.at(ByteKind::kWeightsStored) = rows.size() * *StoredBytes(type, 64);
          c.at(ByteKind::kWeightsPacked) = places.size() * (panels ? PanelBytes(type, 64) : *StoredBytes(type, 64));
          const std::string name = std::string(DTypeName(type)) + (panels ? " panels" : " rows") + (add ? " added" : "");
          Compare(name, op, c);
          for (size_t i = 0; i < ids.size() && check_linear_; ++i) {
            EmbedOp one = op;
            one.ids = std::span(ids).subspan(i, 1);
            CheckLinear(name + ", one row", one);
          }
        }
      }
    }
  }

  static ActPack Pack(Memory& m, const ActFormat& format, int64_t cols, std::span<const RowGroup> groups) {
    ActPack pack;
    pack.format = format;
    pack.cols = cols;
    for (const RowGroup& g : groups) pack.rows += g.rows;
    pack.data = m.Bytes(static_cast<size_t>(pack.rows) * pack.row_bytes());
    pack.groups = groups;
    return pack;
  }

  void Packs() {
    const std::vector<RowGroup> groups = {{0, 3, 1}, {3, 0, 0}, {3, 4, 2}};
    const std::vector<int32_t> index = {1, 0, 1, 2, 2, 0, 1};
    for (const ActKind kind : {ActKind::kF32, ActKind::kBF16, ActKind::kInt8}) {
      for (const bool gathered : {false, true}) {
        Memory& m = NewMemory();
        PackActOp op;
        const int64_t cols = kind == ActKind::kInt8 ? 96 : 37;
        op.x = m.Matrix(gathered ? 3 : 7, cols);
        if (gathered) op.row_index = index;
        op.pack = Pack(m, ActFormatFor(DType::kQ8_0, kind), cols, groups);
        Compare(std::string(kActKindNames[static_cast<size_t>(kind)]), op, {}, {{"x", static_cast<uint64_t>(7 * cols)}});
        if (kind != ActKind::kInt8) continue;
        for (const DType t : {DType::kQ6_K, DType::kQ4_K, DType::kQ2_K}) {  // two sums a block; minima; both
          op.pack.format = ActFormatFor(t, kind);
          op.pack.data = m.Bytes(static_cast<size_t>(op.pack.rows) * op.pack.row_bytes());
          Compare("int8 for " + std::string(DTypeName(t)), op, {}, {{"x", static_cast<uint64_t>(7 * cols)}});
        }
      }
    }
  }

  // The products, and by differences what bias, activation and residual add to them.
  void MatMuls(DType type, ActKind kind) {
    const std::vector<RowGroup> groups = {{0, 3, 1}, {3, 0, 0}, {3, 4, 2}};
    for (const auto& [rows, groups_of_k] : {std::array<int64_t, 2>{20, 2}, {32, 3}, {1, 1}}) {
      if (stopped_) return;
      const int64_t cols = groups_of_k * std::max<int64_t>(32, GetDTypeInfo(type).block_size);
      Memory& m = NewMemory();
      const ActPack x = Pack(m, ActFormatFor(type, kind), cols, groups);
      const WeightView w = m.Panels(type, 3, rows, cols), up = m.Panels(type, 3, rows, cols), bias = m.Vector(3, rows, 2);
      const std::string name = std::string(DTypeName(type)) + " " + std::string(kActKindNames[static_cast<size_t>(kind)]);
      const auto count = [&](const auto& op) {
        const MatJob job(op);
        std::vector<uint8_t> scratch(ReferenceScratchBytes(job));
        return CountOf([&] { MatJobReference<Counting>(job, 0, job.tasks(), scratch); });
      };
      // An int8 product scales each block of 32: a multiply and a fused multiply-add that quantising brings, and one more for each
      // minimum.
      const uint64_t scaling = kind == ActKind::kInt8 ? (3 + 2 * static_cast<uint64_t>(x.format.minimum_sums())) * 7 *
                                                            static_cast<uint64_t>(rows * (cols / 32))
                                                      : 0;
      Counted base;
      base.linear = kind == ActKind::kF32 ? Arith::kF32 : kind == ActKind::kBF16 ? Arith::kBF16 : Arith::kInt8;
      AddWeight(w, 2, base);

      MatMulOp op{.x = x, .w = w, .bias = {}, .out = m.Matrix(7, rows), .out_row = {}};
      const OpCounts products = count(op);
      for (const WorkClass cls : {WorkClass::kLinear, WorkClass::kRouter}) {
        op.work_class = cls;
        Counted c = base;
        c.at(cls) = products - OpCounts{scaling, 0};
        Compare(name, op, c);
      }
      op.work_class = WorkClass::kLinear;
      base.at(WorkClass::kLinear) = products - OpCounts{scaling, 0};
      op.bias = bias;
      Counted biased = base;
      biased.at(WorkClass::kResidualBias) = count(op) - products;
      AddWeight(bias, 2, biased);
      Compare(name + " biased", op, biased);
      op.add_to_out = true;
      Counted added = biased;
      added.at(WorkClass::kResidualBias) = count(op) - products;
      Compare(name + " biased, added", op, added);
      op.bias = {};
      op.add_to_out = false;
      for (const ActivationKind a : {ActivationKind::kGeluTanh, ActivationKind::kGeluErf, ActivationKind::kSilu,
                                     ActivationKind::kRelu, ActivationKind::kRelu2}) {
        op.activation = a;
        Counted c = base;
        c.at(WorkClass::kActivation) = count(op) - products;
        Compare(name + " " + std::string(kActivationKindNames[static_cast<size_t>(a)]), op, c);
      }

      // Gated: both products, then what joins them.
      for (const ActivationKind a : {ActivationKind::kSilu, ActivationKind::kGeluTanh, ActivationKind::kGeluErf,
                                     ActivationKind::kSwigluOai, ActivationKind::kSwigluLimited}) {
        GatedMatMulOp gated{
            .x = x, .gate = w, .up = up, .gate_bias = {}, .up_bias = {}, .activation = a, .out = m.Matrix(7, rows)};
        Counted c = base;
        AddWeight(up, 2, c);
        c.at(WorkClass::kLinear) = {2 * base.at(WorkClass::kLinear).flops, 0};
        const OpCounts plain = count(gated);
        c.at(WorkClass::kActivation) = plain - OpCounts{2 * products.flops, 0};
        const std::string gated_name = name + " " + std::string(kActivationKindNames[static_cast<size_t>(a)]);
        Compare(gated_name, gated, c);
        gated.gate_bias = gated.up_bias = bias;
        c.at(WorkClass::kResidualBias) = count(gated) - plain;
        AddWeight(bias, 2, c);
        AddWeight(bias, 2, c);
        Compare(gated_name + " biased", gated, c);
      }
    }
  }

  void Attentions() {
    constexpr int64_t kBlocks = 3, kTables = 2;
    const std::vector<KvRow> rows = {{0, 0}, {0, 1}, {0, 2}, {0, 127}, {0, 128}, {0, 300}, {1, 5}, {1, 140, 120, 150}};
    struct Shape {
      int64_t heads, kv_heads, dim, v_dim, window;
      bool sinks;
      KvType type;
      bool shared = false;
      int64_t chunk = 0;
      float softcap = 0;
      bool alibi = false;
    };
    for (const Shape& s : {Shape{4, 2, 16, 16, 0, false, KvType::kF32},
                           {4, 1, 8, 8, 0, true, KvType::kF16},
                           {6, 3, 20, 20, 7, true, KvType::kF32},
                           {6, 3, 20, 36, 7, true, KvType::kF16},
                           {2, 2, 32, 32, 128, false, KvType::kF16},
                           {5, 1, 20, 12, 0, false, KvType::kF16, true},
                           {6, 3, 20, 36, 7, true, KvType::kQ8_0},
                           {5, 1, 40, 12, 0, false, KvType::kQ8_0, true},
                           {4, 1, 8, 8, 0, true, KvType::kBF16},
                           {2, 1, 16, 16, 0, false, KvType::kF32, false, 100, 2.0f},
                           {2, 2, 16, 16, 9, false, KvType::kF32, false, 0, 0, true}}) {
      if (stopped_) return;
      Memory& m = NewMemory();
      const KvLayout layout{s.type, s.kv_heads, s.dim, s.v_dim, s.shared};
      const std::vector<float> slopes(s.alibi ? static_cast<size_t>(s.heads) : 0, 0.5f);
      const size_t block_bytes = layout.BlockBytes();
      std::vector<uint8_t*> blocks;
      for (int64_t i = 0; i < kBlocks * kTables; ++i) blocks.push_back(m.Bytes(block_bytes));
      const std::vector<KvTable> tables = {{blocks.data(), kBlocks}, {blocks.data() + kBlocks, kBlocks}};
      const int64_t n = static_cast<int64_t>(rows.size());
      AttentionOp op;
      op.q = m.Matrix(n, s.heads * s.dim);
      op.out = m.Matrix(n, s.heads * s.v_dim);
      op.heads = s.heads;
      op.layout = layout;
      op.scale = 0.5f;
      op.window = s.window;
      op.chunk = s.chunk;
      op.softcap = s.softcap;
      op.slopes = slopes;
      if (s.sinks) op.sinks = m.Vector(1, s.heads, 2);
      op.rows = rows;
      op.tables = tables;
      const auto count = [&]<class A, class S>(A, S) {
        std::vector<A> o(static_cast<size_t>(s.v_dim));
        std::vector<float> total(2 * static_cast<size_t>(s.v_dim));
        return CountOf([&] {
          for (int64_t r = 0; r < n; ++r) {
            for (int64_t h = 0; h < s.heads; ++h) {
              AttendReference<A, S, float, float>(op, r, h, o.data(), total.data());
            }
          }
        });
      };
      Counted c;
      c.at(WorkClass::kAttention) = count(Counting(), 0.0f);
      // A key's part of the products is k_dim of k_dim + v_dim.
      const bool bf16 = s.type == KvType::kBF16, int8 = s.type == KvType::kQ8_0;
      const uint64_t products = c.at(WorkClass::kAttention).flops, dims = static_cast<uint64_t>(s.dim + s.v_dim);
      c.attention[static_cast<size_t>(int8   ? Arith::kInt8
                                      : bf16 ? Arith::kBF16
                                             : Arith::kF32)] += products / dims * static_cast<uint64_t>(s.dim);
      c.attention[static_cast<size_t>(int8 || bf16 ? Arith::kBF16 : Arith::kF32)] +=
          products / dims * static_cast<uint64_t>(s.v_dim);
      c.at(WorkClass::kSoftmax) = count(0.0f, Counting());
      const uint64_t element = s.type == KvType::kF32    ? 4
                               : s.type == KvType::kQ8_0 ? 1
                                                         : 2,
                     scales = s.type == KvType::kQ8_0 ? 2 * ((s.dim + 31) / 32 + (s.shared ? 0 : (s.v_dim + 31) / 32)) : 0,
                     position = static_cast<uint64_t>(s.kv_heads) *
                                (static_cast<uint64_t>(s.dim + (s.shared ? 0 : s.v_dim)) * element + scales);
      for (const KvRow& row : rows) {
        for (int64_t j = 0; j < kBlocks * kKvBlock; ++j) {
          const bool near = j <= row.position && (s.window == 0 || row.position - j < s.window);
          const bool together = j >= row.from && j < row.until;
          if (together || (near && (s.chunk == 0 || row.position / s.chunk == j / s.chunk))) c.at(ByteKind::kKvRead) += position;
        }
      }
      if (s.sinks) AddWeight(op.sinks, 1, c);
      const std::string name = std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads of " + std::to_string(s.dim) +
                               " and " + std::to_string(s.v_dim);
      Compare(name, op, c);
      // The same op of other positions, windows and numbers of rows.
      for (size_t some = 0; some <= rows.size() && check_linear_; ++some) {
        for (const int64_t window : {0, 1, 7, 16, 130}) {
          AttentionOp other = op;
          other.rows = std::span(rows).first(some);
          other.window = window;
          CheckLinear(name + ", other rows", other);
        }
      }

      KvStoreOp store;
      store.k = m.Matrix(n, s.kv_heads * s.dim);
      if (!s.shared) store.v = m.Matrix(n, s.kv_heads * s.v_dim);
      store.layout = layout;
      store.rows = rows;
      store.tables = tables;
      Counted stored;
      stored.at(ByteKind::kKvWritten) = static_cast<uint64_t>(n) * position;
      Compare(name, store, stored);
    }
  }
};

}  // namespace

int CheckCosts(const std::function<bool(const std::string&)>& differs, bool linear) {
  Sweep sweep(differs, linear);
  sweep.Run();
  return sweep.compared() + (sweep.stopped() ? 0 : CheckStateCosts(differs, linear));
}

}  // namespace tally
