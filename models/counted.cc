// SPDX-License-Identifier: Apache-2.0
#include "models/counted.h"

namespace tally {
namespace {

uint64_t U(int32_t n) { return static_cast<uint64_t>(std::max(n, 0)); }

}  // namespace

void CountedParts::Mixture() {
  const Recipe& r = recipe_;
  const uint64_t E = U(r.d_model), X = U(r.all.experts.n_experts), F = U(r.all.experts.width), Fs = U(r.all.experts.shared_width);
  Matrix("ffn_gate_inp", Component::kRouter, X, E);
  if (r.all.experts.router_bias) Vector("ffn_gate_inp.bias", Component::kRouter, X);
  const auto experts = [&](std::string_view name, Component component, uint64_t rows, uint64_t cols) {
    Matrix(name, component, rows, cols);
    only_.tensors.back().slices = X;
    only_.tensors.back().used = U(r.all.experts.top_k);
  };
  experts("ffn_gate_exps", Component::kFfnGateUp, F, E);
  experts("ffn_up_exps", Component::kFfnGateUp, F, E);
  experts("ffn_down_exps", Component::kFfnDown, E, F);
  if (Fs == 0) return;
  Matrix("ffn_gate_shexp", Component::kSharedGateUp, Fs, E);
  Matrix("ffn_up_shexp", Component::kSharedGateUp, Fs, E);
  Matrix("ffn_down_shexp", Component::kSharedDown, E, Fs);
  if (r.all.experts.shared_gate) Vector("ffn_gate_inp_shexp", Component::kSharedSigmoid, E);
}

void CountedParts::DeltaAttention(uint64_t heads, uint64_t head_dim, uint64_t taps, bool full_gate, uint64_t decays) {
  const uint64_t E = U(recipe_.d_model), inner = heads * head_dim;
  Vector("attn_norm", Component::kAttnNorm, E);
  for (const char* name : {"attn_q", "attn_k", "attn_v"}) Matrix(name, Component::kRecurrentIn, inner, E);
  Vector("ssm_conv1d", Component::kRecurrentConv, 3 * taps * inner);
  Matrix("ssm_f_a", Component::kRecurrentRates, head_dim, E);
  Matrix("ssm_f_b", Component::kRecurrentRates, inner, head_dim);
  Matrix("ssm_beta", Component::kRecurrentRates, heads, E);
  Vector("ssm_a", Component::kRecurrentRates, decays > 0 ? decays : heads);
  Vector("ssm_dt.bias", Component::kRecurrentRates, inner);
  if (full_gate) {
    Matrix("ssm_g", Component::kRecurrentGate, inner, E);
  } else {
    Matrix("ssm_g_a", Component::kRecurrentGate, head_dim, E);
    Matrix("ssm_g_b", Component::kRecurrentGate, inner, head_dim);
  }
  Vector("ssm_norm", Component::kRecurrentNorm, head_dim);
  Matrix("attn_output", Component::kRecurrentOut, E, inner);
  only_.state_elements += inner * head_dim + 3 * (taps - 1) * inner;
  Recurrence(inner * head_dim, 3, taps, 3 * inner);
}

void CountedParts::MixedStreams(std::string_view place, uint64_t streams) {
  const std::string name = "hc_" + std::string(place);
  const uint64_t mixed = (2 + streams) * streams;
  Matrix(name + "_fn", Component::kStreams, mixed, streams * U(recipe_.d_model));
  Vector(name + "_base", Component::kStreams, mixed);
  Vector(name + "_scale", Component::kStreams, 3);
}

}  // namespace tally
