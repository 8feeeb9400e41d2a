// SPDX-License-Identifier: Apache-2.0
// Internal to books/: what the closed forms of blocks are made with. A builder has the model and the layer at hand, and collects the
// forms of a whole model in the order in which they are added.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "counters/books/closed_form.h"
#include "counters/books/communication.h"
#include "counters/books/symbols.h"
#include "engine/recipe/shard.h"

namespace tally::books {

class FormBuilder {
 public:
  explicit FormBuilder(const Recipe& r) : r_(r), s_(r) {}
  const Recipe& recipe() const { return r_; }
  const LayerRecipe& layer() const { return *at_; }
  const Form& E() const { return s_.E; }

 protected:
  const Recipe& r_;
  const Symbols s_;
  int32_t layer_ = -1;  // of the forms that are added
  const LayerRecipe* at_ = nullptr;
};

// FLOPs of an activation per element; exp, divide, erf and tanh are special (cost.h). `gated`: with the product of what it gates.
struct ActivationForm {
  uint64_t flops, special;
};
ActivationForm ActivationOf(ActivationKind kind, bool gated);

// The useful work of a step.
class WorkBuilder : public FormBuilder {
 public:
  WorkBuilder(const Recipe& r, const Workload& w);
  const Workload& workload() const { return w_; }
  const Form& B() const { return B_; }
  const Form& P() const { return P_; }
  const Form& S() const { return S_; }
  const Form& rows() const { return N_; }  // B P

  // What follows is work of experts that tokens choose among, or is not.
  void set_expert(bool expert) { expert_ = expert; }

  void Add(Component component, WorkClass work_class, const Form& flops, const Form& special = {}, bool matmul = false);
  // Products of queries with keys, and of probabilities with values.
  void AddSeen(Component component, const Form& flops, const Form& full_square);
  // `in` multiplies and `in` adds for each output. The bias is a residual/bias add.
  void Linear(Component component, const Form& rows, const Form& in, const Form& out, bool bias,
              WorkClass work_class = WorkClass::kLinear) {
    Add(component, work_class, 2 * rows * out * in, {}, true);
    if (bias) Add(component, WorkClass::kResidualBias, rows * out);
  }
  // A fixed factor multiplies each element.
  void Scaled(Component component, float factor, const Form& elements) {
    if (factor != 1) Add(component, WorkClass::kActivation, elements);
  }
  // Per element: an activation, and the product with the value that it gates.
  void Activate(Component component, ActivationKind kind, const Form& elements) {
    const ActivationForm a = ActivationOf(kind, true);
    Add(component, WorkClass::kActivation, a.flops * elements, a.special * elements);
  }
  // The output of a block is added to x: an add, and a multiply by a scale.
  void Residual(Component component) {
    Add(component, WorkClass::kResidualBias, (layer().residual.scale != 1 ? 2 : 1) * (N_ * s_.E));
  }

  // Per element, RMS: square, add, two multiplies (1/rms, weight). LayerNorm: also an add for the mean, a subtract, the bias.
  // Per vector, RMS: eps; special: divide, rsqrt. LayerNorm: also the divide for the mean.
  void RmsNorm(Component component, const Form& vectors, const Form& dim) {
    Add(component, WorkClass::kNorm, vectors * (4 * dim + 1), 2 * vectors);
  }
  // Without weights: square, add, multiply.
  void UnweightedNorm(Component component, const Form& vectors, const Form& dim) {
    Add(component, WorkClass::kNorm, vectors * (3 * dim + 1), 2 * vectors);
  }
  void Norm(Component component, const Form& vectors, const Form& dim) {
    if (r_.norm == NormKind::kRms) return RmsNorm(component, vectors, dim);
    Add(component, WorkClass::kNorm, vectors * ((r_.norm_bias ? 7 : 6) * dim + 1), 3 * vectors);
  }

  // The convolution of a recurrent block and its SiLU. Zeros before the first position are multiplied too.
  void Convolve(const Form& taps, const Form& channels, bool bias);
  // Per head: the step's bias; log(1 + exp(x)), then exp(A step), with the compares of its limits; beta is a sigmoid.
  void Rates(const Form& heads, uint64_t limits, bool beta);

 protected:
  const Workload w_;
  Form B_, P_, S_, N_;
  bool expert_ = false;
  std::vector<WorkForm> out_;
};

// The learned tensors.
class ParameterBuilder : public FormBuilder {
 public:
  explicit ParameterBuilder(const Recipe& r) : FormBuilder(r) {}

  // One token uses `used` of the slices.
  void Add(std::string name, Component component, bool vector, const Form& slices, const Form& used, const Form& rows,
           const Form& cols);
  void Matrix(std::string name, Component component, const Form& rows, const Form& cols) {
    Add(std::move(name), component, false, 1, 1, rows, cols);
  }
  void Vector(std::string name, Component component, const Form& cols) { Add(std::move(name), component, true, 1, 1, 1, cols); }
  void Projection(const std::string& name, Component component, const Form& rows, const Form& cols, bool bias) {
    Matrix(name, component, rows, cols);
    if (bias) Vector(name + ".bias", component, rows);
  }
  // `k` of `X` experts.
  void Experts(const std::string& name, Component component, const Form& X, const Form& k, const Form& rows, const Form& cols,
               bool bias);
  // The weights of a convolution: so many for each channel.
  void Taps(const std::string& name, Component component, const Form& taps, const Form& channels) {
    Add(name, component, true, taps, taps, 1, channels);
  }
  void Norm(const std::string& name, Component component, const Form& cols) {
    Vector(name, component, cols);
    if (r_.norm == NormKind::kLayer && r_.norm_bias) Vector(name + ".bias", component, cols);
  }
  void RmsNorm(const std::string& name, Component component, const Form& cols) { Vector(name, component, cols); }

 protected:
  WeightInfo::Kind kind_ = WeightInfo::Kind::kBlock;
  StackKind stack_ = StackKind::kText;  // of the forms that are added
  std::vector<ParameterForm> out_;
};

inline constexpr uint64_t kPiece = 32;  // outputs that stay together
// Units that `rank` gets of n. Pieces are dealt as evenly as possible; the first ranks get more.
uint64_t Dealt(uint64_t n, uint64_t piece, uint64_t rank, uint64_t ranks);

// What the ranks gather.
class GatherBuilder : public FormBuilder {
 public:
  using OfRank = std::function<uint64_t(uint64_t rank)>;  // elements of a row that a rank computes

  GatherBuilder(const Recipe& r, const Shard& shard, const Workload& w, std::span<const RankRows> rows,
                const GatheredBytesOf& gathered);
  uint64_t ranks() const { return ranks_; }
  const Form& rows() const { return N_; }  // B P
  bool own_experts() const { return shard_.own_experts; }

  // Ranks get whole groups of heads. If ranks outnumber groups, ranks are dealt to groups, and each group's heads to its ranks.
  OfRank Heads(const Form& heads, const Form& groups, const Form& dim) const;
  OfRank Groups(const Form& heads, const Form& groups, const Form& dim) const;  // that no lower rank has

  // Every rank gets all columns of `rows` rows.
  void ByColumns(Component component, const Form& rows, const Form& whole, const OfRank& own);
  void Pieces(Component component, const Form& rows, const Form& whole) {
    ByColumns(component, rows, whole, [&](uint64_t rank) { return Dealt(whole.value(), kPiece, rank, ranks_); });
  }
  // Gathers the input of the role's matrix. `runs`: the contiguous pieces that a rank's columns consist of.
  void Packed(Role role, Component component, const Form& rows, const Form& whole, const OfRank& own, uint64_t runs = 1);
  void PackedPieces(Role role, Component component, const Form& rows, const Form& whole) {
    Packed(role, component, rows, whole, [&](uint64_t rank) { return Dealt(whole.value(), kPiece, rank, ranks_); });
  }
  // Every rank gets all rows, each of which one rank has.
  void ByRows(Component component, const char* symbol, const std::vector<uint64_t>& of_ranks, const Form& rows,
              const Form& width);
  // The same of `rows` rows that were routed to experts.
  void ByExperts(Component component, const Form& rows, const Form& width);

 protected:
  void Add(Component component, Form sent, Form received, const std::vector<bool>& has);
  Form Own(const Form& whole, const OfRank& own) const;

  const Shard shard_;
  const std::span<const RankRows> rows_;
  const GatheredBytesOf& gathered_;
  const uint64_t ranks_, rank_;
  Form N_, logits_;
  std::vector<CommunicationForm> out_;
};

}  // namespace tally::books
