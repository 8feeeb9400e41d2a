// SPDX-License-Identifier: Apache-2.0
// What the parts of CheckCosts share: operands for an op, and the comparison of its charges with what was counted.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/op.h"
#include "tests/support/counting_scalar.h"

namespace tally {

// Memory for the operands of one op.
class OperandMemory {
 public:
  uint8_t* Bytes(size_t n) {
    if (!buffers_.emplace_back().Resize(n + 64)) throw std::bad_alloc();
    return buffers_.back().data();
  }
  Mat<float> Matrix(int64_t rows, int64_t cols) {
    float* const p = reinterpret_cast<float*>(Bytes(static_cast<size_t>(rows * cols) * 4));
    for (int64_t i = 0; i < rows * cols; ++i) p[i] = 0.25f + 0.001f * static_cast<float>(i % 97);
    return {p, rows, cols};
  }
  static WeightId NextId() {
    static WeightId last = 0;
    return ++last;
  }
  WeightView Vector(int64_t slices, int64_t cols, uint64_t stored_element) {
    WeightView w;
    w.id = NextId();
    w.slices = slices;
    w.rows = 1;
    w.cols = cols;
    w.panel_stride = w.slice_stride = static_cast<size_t>(cols) * 4;
    w.stored_row_bytes = static_cast<uint64_t>(cols) * stored_element;
    w.data = reinterpret_cast<uint8_t*>(Matrix(slices, cols).data);
    return w;
  }
  WeightView Panels(DType type, int64_t slices, int64_t rows, int64_t cols) {
    WeightView w;
    w.id = NextId();
    w.dtype = type;
    w.layout = WeightLayout::kPanel16;
    w.slices = slices;
    w.rows = rows;
    w.cols = cols;
    w.panel_stride = PanelBytes(type, cols);
    w.slice_stride = w.panel_stride * static_cast<size_t>(w.panels());
    w.stored_row_bytes = *StoredBytes(type, static_cast<uint64_t>(cols));
    w.data = Bytes(w.slice_stride * static_cast<size_t>(slices));
    return w;
  }

 private:
  std::vector<AlignedBuffer<uint8_t>> buffers_;
};

// What was counted: operations by class, bytes by kind.
struct Counted {
  std::array<OpCounts, kWorkClasses> work{};
  std::array<uint64_t, kByteKinds> bytes{};
  Arith linear = Arith::kF32;                 // of the products; all else is f32, but for attention
  std::array<uint64_t, kAriths> attention{};  // FLOPs of class attention by type
  OpCounts& at(WorkClass c) { return work[static_cast<size_t>(c)]; }
  uint64_t& at(ByteKind k) { return bytes[static_cast<size_t>(k)]; }
};

inline OpCounts operator-(OpCounts a, OpCounts b) { return {a.flops - b.flops, a.special - b.special}; }

class CostSweep {
 public:
  CostSweep(const std::function<bool(const std::string&)>& differs, bool linear) : differs_(differs), check_linear_(linear) {}
  int compared() const { return compared_; }
  bool stopped() const { return stopped_; }

 protected:
  using Memory = OperandMemory;

  void Equal(const std::string& what, uint64_t charged, uint64_t counted) {
    ++compared_;
    if (stopped_ || charged == counted) return;
    stopped_ = !differs_(what + ": charged " + std::to_string(charged) + ", counted " + std::to_string(counted));
  }

  template <class Op>
  static uint64_t Sums(const Op& op) {  // of a block of int8 activations
    if constexpr (requires { op.pack.format; }) return static_cast<uint64_t>(op.pack.format.sums);
    if constexpr (requires { op.x.format; }) return static_cast<uint64_t>(op.x.format.sums);
    return 0;
  }

  // Operands' bytes, once each. `shapes`: of operands of which the op uses another number of elements than their shape has.
  template <class Op>
  void AddOperands(const Op& op, const std::map<std::string, uint64_t>& elements, Counted& c) {
    OpDescription d;
    op.Describe(d);
    for (const Operand& o : d.operands) {
      if (o.role == OperandRole::kWeight || o.role == OperandRole::kCache) continue;
      uint64_t bytes = 4;
      for (const int64_t n : o.shape) bytes *= static_cast<uint64_t>(n);
      const uint64_t rows = static_cast<uint64_t>(o.shape[0]), cols = static_cast<uint64_t>(o.shape.back());
      if (o.type == "bf16")
        bytes = rows * (HwyTargetHasAmx() ? (cols + 31) / 32 * 32 : (cols + 1) / 2 * 2) * 2;  // tiles' rows, or pairs
      if (o.type == "int8") bytes = rows * (cols / 32) * (32 + 4 + Sums(op) * (4 + 4));  // q, scale, corrections, pairs of them
      if (const auto given = elements.find(std::string(o.name)); given != elements.end()) bytes = 4 * given->second;
      if (o.role != OperandRole::kOutput) c.at(ByteKind::kActivationsRead) += bytes;
      if (o.role != OperandRole::kInput) c.at(ByteKind::kActivationsWritten) += bytes;
    }
  }
  static void AddWeight(const WeightView& w, uint64_t slices, Counted& c) {
    if (w.empty()) return;
    const uint64_t rows = static_cast<uint64_t>(w.rows);
    c.at(ByteKind::kWeightsStored) += slices * rows * w.stored_row_bytes;
    c.at(ByteKind::kWeightsPacked) += w.layout == WeightLayout::kPanel16
                                          ? slices * ((rows + 15) / 16) * PanelBytes(w.dtype, w.cols)
                                          : slices * static_cast<uint64_t>(w.cols) * 4;
  }

  // Costs are the sum of amount x unit cost, by each kernel.
  template <class Op>
  void CheckLinear(const std::string& name, const Op& op) {
    const CostAmounts amounts = op.Amounts();
    for (const Kernel<Op>& k : Kernels<Op>()) {
      for (size_t part = 0; part < PartsOf<Op>(); ++part) {
        Cost useful, executed;
        for (size_t a = 0; a < kAmounts; ++a) {
          CostAmounts one;
          one[a] = 1;
          useful.AddTimes(UsefulOf(op, one, part), amounts[a]);
          executed.AddTimes(ExecutedOf(k, op, one, part), amounts[a]);
        }
        const bool equal = useful == UsefulOf(op, amounts, part) && executed == ExecutedOf(k, op, amounts, part);
        Equal(std::string(Op::kName) + " " + name + ": costs by amounts", equal ? 1 : 0, 1);
      }
    }
  }

  template <class Op>
  void Compare(const std::string& name, const Op& op, Counted counted, const std::map<std::string, uint64_t>& elements = {}) {
    if (stopped_) return;
    if (check_linear_) CheckLinear(name, op);
    AddOperands(op, elements, counted);
    const Cost cost = TotalUseful(op);
    for (int c = 0; c < kWorkClasses; ++c) {
      const std::string at = std::string(Op::kName) + " " + name + " " + std::string(kWorkClassNames[c]);
      const bool products = c == static_cast<int>(WorkClass::kLinear) || c == static_cast<int>(WorkClass::kRouter);
      for (int a = 0; a < kAriths; ++a) {
        if (c == static_cast<int>(WorkClass::kAttention)) {
          Equal(at + " " + std::string(kArithNames[a]), cost.Flops(WorkClass::kAttention, static_cast<Arith>(a)),
                counted.attention[static_cast<size_t>(a)]);
          continue;
        }
        const bool here = static_cast<Arith>(a) == (products ? counted.linear : Arith::kF32);
        Equal(at + " " + std::string(kArithNames[a]), cost.Flops(static_cast<WorkClass>(c), static_cast<Arith>(a)),
              here ? counted.work[c].flops : 0);
      }
      Equal(at + " special", cost.Special(static_cast<WorkClass>(c)), counted.work[c].special);
    }
    for (int k = 0; k < kByteKinds; ++k) {
      Equal(std::string(Op::kName) + " " + name + " " + std::string(kByteKindNames[k]), cost.Bytes(static_cast<ByteKind>(k)),
            counted.bytes[k]);
    }
  }

  Memory& NewMemory() { return memory_.emplace_back(); }

  const std::function<bool(const std::string&)>& differs_;
  const bool check_linear_;
  std::deque<Memory> memory_;
  int compared_ = 0;
  bool stopped_ = false;
};

// The ops of recurrent layers. Gives the number of figures compared.
int CheckStateCosts(const std::function<bool(const std::string&)>& differs, bool linear);

}  // namespace tally
