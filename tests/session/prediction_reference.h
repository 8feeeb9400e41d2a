// SPDX-License-Identifier: Apache-2.0
// A layer for multi-token prediction, straight from its formulas (engine/graph/planner_prediction.cc) over the tensors of a Hugging Face
// checkpoint in F32: all positions at once, in double precision, without a cache. Attention as of GLM-4.5, DeepSeek-V3 or Qwen3.5; the experts
// of the first two, or a dense feed-forward.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/recipe/recipe.h"
#include "engine/recipe/rope_freqs.h"
#include "loaders/loaders.h"

namespace tally {

class PredictionReference {
 public:
  using Vector = std::vector<double>;

  PredictionReference(const std::string& directory, const Recipe& recipe, const RopeFrequencies& rope)
      : r_(recipe),
        rope_(rope),
        inventory_(ReadHuggingFace(directory).value()),
        apart_(inventory_.Find("mtp.fc.weight") != nullptr),
        file_(inventory_.files[0].path, std::ios::binary) {}

  // Of each position: its logits, and what its head got. `hidden`: the output of the model's last norm, or what the head got before;
  // `next`: the token of the position after it.
  struct Outputs {
    std::vector<Vector> logits, head_in;
  };
  Outputs Run(const std::vector<Vector>& hidden, const std::vector<int32_t>& next) {
    std::vector<Vector> x;
    for (size_t i = 0; i < next.size(); ++i) {
      Vector joined = Norm(Row("model.embed_tokens.weight", next[i]), "enorm.weight", r_.norm_eps);
      const Vector h = Norm(hidden[i], "hnorm.weight", r_.norm_eps);
      joined.insert(joined.end(), h.begin(), h.end());
      x.push_back(Times(Of("eh_proj.weight"), joined));
    }
    std::vector<Vector> normed;
    for (const Vector& v : x) normed.push_back(Norm(v, "input_layernorm.weight", r_.norm_eps));
    const std::vector<Vector> mixed = r_.latent.kv_rank > 0 ? Latent(normed) : Attention(normed);
    Outputs out;
    for (size_t i = 0; i < x.size(); ++i) {
      AddTo(x[i], Times(Of("self_attn.o_proj.weight"), mixed[i]));
      const Vector in = Norm(x[i], "post_attention_layernorm.weight", r_.norm_eps);
      AddTo(x[i], r_.n_experts > 0 ? Experts(in) : Network("mlp", in));
      out.head_in.push_back(Norm(x[i], "shared_head.norm.weight", r_.norm_eps));
      out.logits.push_back(Times(Tensor("lm_head.weight"), out.head_in.back()));
    }
    return out;
  }

 private:
  static void AddTo(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  static Vector Times(const Vector& w, const Vector& x) {
    Vector out(w.size() / x.size());
    for (size_t r = 0; r < out.size(); ++r) {
      out[r] = std::inner_product(x.begin(), x.end(), w.begin() + static_cast<int64_t>(r * x.size()), 0.0);
    }
    return out;
  }
  Vector Norm(Vector x, const std::string& weight, double eps) {
    const Vector& w = Of(weight);
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= factor * (w[i] + (apart_ ? 1 : 0));  // Qwen3.5 stores w - 1
    return x;
  }
  static Vector Part(const Vector& x, size_t begin, size_t n) {
    return {x.begin() + static_cast<int64_t>(begin), x.begin() + static_cast<int64_t>(begin + n)};
  }
  const Vector& Tensor(const std::string& name) {
    Vector& values = tensors_[name];
    if (!values.empty()) return values;
    const StoredTensor* const t = inventory_.Find(name);
    EXPECT_NE(t, nullptr) << name;
    if (t == nullptr) return values;
    EXPECT_EQ(t->dtype, DType::kF32) << name;
    std::vector<float> stored(t->elements());
    file_.seekg(static_cast<std::streamoff>(t->offset));
    file_.read(reinterpret_cast<char*>(stored.data()), static_cast<std::streamsize>(t->bytes));
    values.assign(stored.begin(), stored.end());
    return values;
  }
  const Vector& Of(const std::string& name) {
    if (!apart_) return Tensor("model.layers." + std::to_string(r_.n_layers) + "." + name);
    static const std::map<std::string, std::string> kOwn = {{"enorm.weight", "mtp.pre_fc_norm_embedding.weight"},
                                                            {"hnorm.weight", "mtp.pre_fc_norm_hidden.weight"},
                                                            {"eh_proj.weight", "mtp.fc.weight"},
                                                            {"shared_head.norm.weight", "mtp.norm.weight"}};
    const auto own = kOwn.find(name);
    return Tensor(own != kOwn.end() ? own->second : "mtp.layers.0." + name);
  }
  Vector Row(const std::string& name, int32_t row) {
    const size_t E = static_cast<size_t>(r_.d_model);
    return Part(Tensor(name), static_cast<size_t>(row) * E, E);
  }
  Vector Projected(const std::string& name, const Vector& x) {
    Vector y = Times(Of(name + ".weight"), x);
    if (r_.q_bias) AddTo(y, Of(name + ".bias"));
    return y;
  }
  // The first elements of a head at a position.
  void Rotate(double* head, size_t position) const {
    const size_t pairs = rope_.inv_freq.size();
    const bool halves = r_.rope.style == RopeStyle::kRotateHalf;
    for (size_t i = 0; i < pairs; ++i) {
      double &a = head[halves ? i : 2 * i], &b = head[halves ? i + pairs : 2 * i + 1];
      const double angle = static_cast<double>(position) * static_cast<double>(rope_.inv_freq[i]);
      const double c = std::cos(angle) * rope_.magnitude, s = std::sin(angle) * rope_.magnitude;
      const double turned = a * c - b * s;
      b = b * c + a * s;
      a = turned;
    }
  }
  // Causal attention of one query, over keys and values of the positions up to its own.
  Vector Attend(const Vector& q, const std::vector<Vector>& keys, const std::vector<Vector>& values) const {
    Vector weights;
    for (const Vector& k : keys) {
      weights.push_back(std::inner_product(q.begin(), q.end(), k.begin(), 0.0) *
                        static_cast<double>(r_.layers.back().attention_scale));
    }
    const double most = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& w : weights) sum += w = std::exp(w - most);
    Vector out(values[0].size());
    for (size_t j = 0; j < keys.size(); ++j) {
      for (size_t i = 0; i < out.size(); ++i) out[i] += weights[j] / sum * values[j][i];
    }
    return out;
  }
  std::vector<Vector> Attention(const std::vector<Vector>& in) {
    const size_t D = static_cast<size_t>(r_.head_dim), H = static_cast<size_t>(r_.n_heads),
                 K = static_cast<size_t>(r_.n_kv_heads);
    std::vector<std::vector<Vector>> keys(K), values(K);
    std::vector<Vector> out;
    const auto head = [&](const Vector& all, size_t h, const char* norm, size_t position) {
      Vector x = Norm(Part(all, h * D, D), norm, r_.norm_eps);
      Rotate(x.data(), position);
      return x;
    };
    for (size_t i = 0; i < in.size(); ++i) {
      const Vector q = Projected("self_attn.q_proj", in[i]), k = Projected("self_attn.k_proj", in[i]),
                   v = Projected("self_attn.v_proj", in[i]);
      for (size_t h = 0; h < K; ++h) {
        keys[h].push_back(head(k, h, "self_attn.k_norm.weight", i));
        values[h].push_back(Part(v, h * D, D));
      }
      Vector& all = out.emplace_back();
      for (size_t h = 0; h < H; ++h) {
        const size_t at = r_.attention_gate ? 2 * h : h;  // a head's query, and its gate
        Vector one = Attend(head(q, at, "self_attn.q_norm.weight", i), keys[h * K / H], values[h * K / H]);
        for (size_t d = 0; d < D && r_.attention_gate; ++d) one[d] /= 1 + std::exp(-q[(at + 1) * D + d]);
        all.insert(all.end(), one.begin(), one.end());
      }
    }
    return out;
  }
  std::vector<Vector> Latent(const std::vector<Vector>& in) {
    const LatentAttention& l = r_.latent;
    const size_t H = static_cast<size_t>(r_.n_heads), nope = static_cast<size_t>(l.nope_dim),
                 rope = static_cast<size_t>(l.rope_dim), v_dim = static_cast<size_t>(l.v_dim),
                 rank = static_cast<size_t>(l.kv_rank);
    std::vector<std::vector<Vector>> keys(H), values(H);
    std::vector<Vector> out;
    for (size_t i = 0; i < in.size(); ++i) {
      const Vector low = Norm(Times(Of("self_attn.q_a_proj.weight"), in[i]), "self_attn.q_a_layernorm.weight", l.norm_eps);
      const Vector q = Times(Of("self_attn.q_b_proj.weight"), low);
      const Vector both = Times(Of("self_attn.kv_a_proj_with_mqa.weight"), in[i]);
      const Vector kv =
          Times(Of("self_attn.kv_b_proj.weight"), Norm(Part(both, 0, rank), "self_attn.kv_a_layernorm.weight", l.norm_eps));
      Vector turned = Part(both, rank, rope);
      Rotate(turned.data(), i);
      Vector& all = out.emplace_back();
      for (size_t h = 0; h < H; ++h) {
        Vector key = Part(kv, h * (nope + v_dim), nope), query = Part(q, h * (nope + rope), nope + rope);
        key.insert(key.end(), turned.begin(), turned.end());
        keys[h].push_back(key);
        values[h].push_back(Part(kv, h * (nope + v_dim) + nope, v_dim));
        Rotate(query.data() + nope, i);
        const Vector one = Attend(query, keys[h], values[h]);
        all.insert(all.end(), one.begin(), one.end());
      }
    }
    return out;
  }
  Vector Network(const std::string& name, const Vector& x) {
    Vector hidden = Times(Of(name + ".gate_proj.weight"), x);
    const Vector up = Times(Of(name + ".up_proj.weight"), x);
    for (size_t i = 0; i < hidden.size(); ++i) hidden[i] *= up[i] / (1 + std::exp(-hidden[i]));
    return Times(Of(name + ".down_proj.weight"), hidden);
  }
  // Sigmoids; the bias enters the choice alone; a group is judged by its two best.
  Vector Experts(const Vector& x) {
    const size_t X = static_cast<size_t>(r_.n_experts), groups = static_cast<size_t>(r_.expert_groups), size = X / groups;
    Vector scores = Times(Of("mlp.gate.weight"), x);
    for (double& s : scores) s = 1 / (1 + std::exp(-s));
    Vector choice = scores;
    AddTo(choice, Of("mlp.gate.e_score_correction_bias"));
    std::vector<std::pair<double, size_t>> judged;
    for (size_t g = 0; g < groups; ++g) {
      Vector of = Part(choice, g * size, size);
      std::sort(of.rbegin(), of.rend());
      judged.emplace_back(-(of[0] + of[1]), g);
    }
    std::sort(judged.begin(), judged.end());
    std::vector<std::pair<double, size_t>> best;
    for (size_t g = 0; g < static_cast<size_t>(r_.kept_groups); ++g) {
      for (size_t e = judged[g].second * size; e < (judged[g].second + 1) * size; ++e) best.emplace_back(-choice[e], e);
    }
    std::sort(best.begin(), best.end());
    double sum = 0;
    for (size_t i = 0; i < static_cast<size_t>(r_.top_k); ++i) sum += scores[best[i].second];
    Vector out = Network("mlp.shared_experts", x);
    for (size_t i = 0; i < static_cast<size_t>(r_.top_k); ++i) {
      const size_t e = best[i].second;
      Vector y = Network("mlp.experts." + std::to_string(e), x);
      for (double& v : y) v *= scores[e] / sum * static_cast<double>(r_.route_scale);
      AddTo(out, y);
    }
    return out;
  }

  const Recipe r_;  // of the model without the layer
  const RopeFrequencies rope_;
  const Inventory inventory_;
  const bool apart_;  // the names are Qwen3.5's
  std::ifstream file_;
  std::map<std::string, Vector> tensors_;
};

}  // namespace tally
