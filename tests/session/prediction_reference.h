// SPDX-License-Identifier: Apache-2.0
// A layer for multi-token prediction, straight from its formulas (engine/graph/planner_prediction.cc) over the tensors of a checkpoint in
// F32: all positions at once, in double precision, without a cache. Attention as of GLM-4.5, DeepSeek-V3, Qwen3.5 or Nemotron 3; their
// experts, or a dense feed-forward.
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

  // `path`: a GGUF file, or a Hugging Face directory.
  PredictionReference(const std::string& path, const Recipe& recipe, const RopeFrequencies& rope)
      : r_(recipe),
        rope_(rope),
        inventory_(ReadCheckpoint(path).value()),
        files_(FilesOf(inventory_)),
        file_(inventory_.files[0].path, std::ios::binary) {}

  // Of each position: its logits, and what its head got. `hidden`: the output of the model's last norm, or what the head got before;
  // `next`: the token of the position after it.
  struct Outputs {
    std::vector<Vector> logits, head_in;
  };
  Outputs Run(const std::vector<Vector>& hidden, const std::vector<int32_t>& next) {
    std::vector<Vector> x;
    for (size_t i = 0; i < next.size(); ++i) {
      Vector joined = Norm(Row(Embedding(), next[i]), "enorm.weight", r_.norm_eps);
      const Vector h = Norm(hidden[i], "hnorm.weight", r_.norm_eps);
      joined.insert(joined.end(), h.begin(), h.end());
      x.push_back(Times(Of("eh_proj.weight"), joined));
    }
    std::vector<Vector> normed;
    for (const Vector& v : x) normed.push_back(Norm(v, "input_layernorm.weight", r_.norm_eps));
    const std::vector<Vector> mixed = r_.all.latent.kv_rank > 0 ? Latent(normed) : Attention(normed);
    Outputs out;
    for (size_t i = 0; i < x.size(); ++i) {
      AddTo(x[i], Times(Of("self_attn.o_proj.weight"), mixed[i]));
      const Vector in = Norm(x[i], "post_attention_layernorm.weight", r_.norm_eps);
      AddTo(x[i], r_.all.experts.n_experts > 0 ? Experts(in) : Network("mlp.", in));
      out.head_in.push_back(Norm(x[i], "shared_head.norm.weight", r_.norm_eps));
      out.logits.push_back(Times(Tensor(Head()), out.head_in.back()));
    }
    return out;
  }

 private:
  // Where a checkpoint has the layer: behind the others; as "mtp." and "mtp.layers.0." (Qwen3.5); as two of "mtp.layers." (Nemotron 3).
  enum class Files : uint8_t { kBehind, kApart, kTwo, kGguf };
  static Files FilesOf(const Inventory& inventory) {
    if (inventory.format == FileFormat::kGguf) return Files::kGguf;
    if (inventory.Find("mtp.fc.weight") != nullptr) return Files::kApart;
    return inventory.Find("mtp.layers.0.eh_proj.weight") != nullptr ? Files::kTwo : Files::kBehind;
  }
  std::string Embedding() const {
    if (files_ == Files::kGguf) return "token_embd.weight";
    return files_ == Files::kTwo ? "backbone.embeddings.weight" : "model.embed_tokens.weight";
  }
  std::string Head() const {
    if (r_.tied_head) return Embedding();
    return files_ == Files::kGguf ? "output.weight" : "lm_head.weight";
  }

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
    for (size_t i = 0; i < x.size(); ++i) x[i] *= factor * (w[i] + (files_ == Files::kApart ? 1 : 0));  // Qwen stores w - 1
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
  // `name`: as GLM-4.5 has it behind "model.layers.#.".
  std::string StoredName(const std::string& name) const {
    using Names = std::map<std::string, std::string>;
    static const Names kOwnApart = {{"enorm.weight", "mtp.pre_fc_norm_embedding.weight"},
                                    {"hnorm.weight", "mtp.pre_fc_norm_hidden.weight"},
                                    {"eh_proj.weight", "mtp.fc.weight"},
                                    {"shared_head.norm.weight", "mtp.norm.weight"}};
    static const Names kOwnTwo = {{"input_layernorm.weight", "mtp.layers.0.norm.weight"},
                                  {"post_attention_layernorm.weight", "mtp.layers.1.norm.weight"},
                                  {"shared_head.norm.weight", "mtp.layers.1.final_layernorm.weight"}};
    static const Names kOwnGguf = {{"enorm", "nextn.enorm"},
                                   {"hnorm", "nextn.hnorm"},
                                   {"eh_proj", "nextn.eh_proj"},
                                   {"shared_head.norm", "nextn.shared_head_norm"},
                                   {"input_layernorm", "attn_norm"},
                                   {"self_attn.q_proj", "attn_q"},
                                   {"self_attn.k_proj", "attn_k"},
                                   {"self_attn.v_proj", "attn_v"},
                                   {"self_attn.o_proj", "attn_output"},
                                   {"self_attn.q_norm", "attn_q_norm"},
                                   {"self_attn.k_norm", "attn_k_norm"},
                                   {"self_attn.q_a_proj", "attn_q_a"},
                                   {"self_attn.q_a_layernorm", "attn_q_a_norm"},
                                   {"self_attn.q_b_proj", "attn_q_b"},
                                   {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
                                   {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
                                   {"mlp.gate_proj", "ffn_gate"},
                                   {"mlp.up_proj", "ffn_up"},
                                   {"mlp.down_proj", "ffn_down"},
                                   {"mlp.gate", "ffn_gate_inp"},
                                   {"mlp.experts.gate_proj", "ffn_gate_exps"},
                                   {"mlp.experts.up_proj", "ffn_up_exps"},
                                   {"mlp.experts.down_proj", "ffn_down_exps"},
                                   {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
                                   {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
                                   {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
                                   {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                   {"mlp.fc1_latent_proj", "ffn_latent_down"},
                                   {"mlp.fc2_latent_proj", "ffn_latent_up"}};
    const auto own = [&](const Names& names, const std::string& of, const std::string& otherwise) {
      const auto found = names.find(of);
      return found != names.end() ? found->second : otherwise;
    };
    switch (files_) {
      case Files::kBehind: break;
      case Files::kApart: return own(kOwnApart, name, "mtp.layers.0." + name);
      case Files::kTwo: {
        const bool attention = name.starts_with("self_attn."), fed = name.starts_with("mlp.");
        const std::string mixer = "mixer." + name.substr(name.find('.') + 1);
        return own(kOwnTwo, name, attention ? "mtp.layers.0." + mixer : fed ? "mtp.layers.1." + mixer : "mtp.layers.0." + name);
      }
      case Files::kGguf: {
        const std::string block = "blk." + std::to_string(r_.n_layers) + ".";
        if (name == "mlp.gate.e_score_correction_bias") return block + "exp_probs_b.bias";
        if (name == "post_attention_layernorm.weight") {
          const std::string after = block + "post_attention_norm.weight";
          return inventory_.Find(after) != nullptr ? after : block + "ffn_norm.weight";
        }
        const size_t dot = name.rfind('.');
        return block + own(kOwnGguf, name.substr(0, dot), "?") + name.substr(dot);
      }
    }
    return "model.layers." + std::to_string(r_.n_layers) + "." + name;
  }
  const Vector& Of(const std::string& name) { return Tensor(StoredName(name)); }
  Vector Row(const std::string& name, int32_t row) {
    const size_t E = static_cast<size_t>(r_.d_model);
    return Part(Tensor(name), static_cast<size_t>(row) * E, E);
  }
  Vector Projected(const std::string& name, const Vector& x) {
    Vector y = Times(Of(name + ".weight"), x);
    if (r_.all.attention.q_bias) AddTo(y, Of(name + ".bias"));
    return y;
  }
  // The first elements of a head at a position.
  void Rotate(double* head, size_t position) const {
    const size_t pairs = rope_.inv_freq.size();
    const bool halves = r_.rope.style == RopeStyle::kRotateHalf;  // no pairs: no rope
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
      const auto attends = std::find_if(r_.layers.rbegin(), r_.layers.rend(), [](const LayerRecipe& l) { return l.attends(); });
      weights.push_back(std::inner_product(q.begin(), q.end(), k.begin(), 0.0) * static_cast<double>(attends->attention.scale));
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
    const size_t D = static_cast<size_t>(r_.all.attention.head_dim), H = static_cast<size_t>(r_.all.attention.n_heads),
                 K = static_cast<size_t>(r_.all.attention.n_kv_heads);
    std::vector<std::vector<Vector>> keys(K), values(K);
    std::vector<Vector> out;
    const auto head = [&](const Vector& all, size_t h, const char* norm, size_t position) {
      Vector x = Part(all, h * D, D);
      if (r_.all.attention.qk_norm != QkNormKind::kNone) x = Norm(std::move(x), norm, r_.norm_eps);
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
        const size_t at = r_.all.attention.gate ? 2 * h : h;  // a head's query, and its gate
        Vector one = Attend(head(q, at, "self_attn.q_norm.weight", i), keys[h * K / H], values[h * K / H]);
        for (size_t d = 0; d < D && r_.all.attention.gate; ++d) one[d] /= 1 + std::exp(-q[(at + 1) * D + d]);
        all.insert(all.end(), one.begin(), one.end());
      }
    }
    return out;
  }
  std::vector<Vector> Latent(const std::vector<Vector>& in) {
    const LatentAttention& l = r_.all.latent;
    const size_t H = static_cast<size_t>(r_.all.attention.n_heads), nope = static_cast<size_t>(l.nope_dim),
                 rope = static_cast<size_t>(l.rope_dim), v_dim = static_cast<size_t>(l.v_dim),
                 rank = static_cast<size_t>(l.kv_rank);
    std::vector<std::vector<Vector>> keys(H), values(H);
    std::vector<Vector> out;
    for (size_t i = 0; i < in.size(); ++i) {
      const Vector low = Norm(Times(Of("self_attn.q_a_proj.weight"), in[i]), "self_attn.q_a_layernorm.weight", l.norm_eps);
      const Vector q = Times(Of("self_attn.q_b_proj.weight"), low);
      const Vector both = Times(Of("self_attn.kv_a_proj_with_mqa.weight"), in[i]);
      const Vector kv = Times(KeysAndValues(), Norm(Part(both, 0, rank), "self_attn.kv_a_layernorm.weight", l.norm_eps));
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
  // For each head the rows of its keys, then those of its values. GGUF has them apart, those of the keys transposed.
  Vector KeysAndValues() {
    if (files_ != Files::kGguf) return Of("self_attn.kv_b_proj.weight");
    const size_t H = static_cast<size_t>(r_.all.attention.n_heads), nope = static_cast<size_t>(r_.all.latent.nope_dim),
                 v_dim = static_cast<size_t>(r_.all.latent.v_dim), rank = static_cast<size_t>(r_.all.latent.kv_rank);
    const std::string block = "blk." + std::to_string(r_.n_layers) + ".";
    const Vector k = Tensor(block + "attn_k_b.weight"), v = Tensor(block + "attn_v_b.weight");
    Vector both;
    for (size_t h = 0; h < H; ++h) {
      for (size_t n = 0; n < nope; ++n) {
        for (size_t i = 0; i < rank; ++i) both.push_back(k[(h * rank + i) * nope + n]);
      }
      const Vector values = Part(v, h * v_dim * rank, v_dim * rank);
      both.insert(both.end(), values.begin(), values.end());
    }
    return both;
  }
  // `matrix(name)`: of "gate_proj" and so on.
  template <class Matrix>
  Vector Network(const Matrix& matrix, const Vector& x) {
    Vector hidden = Times(matrix("up_proj"), x);
    if (!r_.all.network.gated) {
      for (double& h : hidden) h = h > 0 ? h * h : 0;  // squared ReLU
    } else {
      const Vector gate = Times(matrix("gate_proj"), x);
      for (size_t i = 0; i < hidden.size(); ++i) hidden[i] *= gate[i] / (1 + std::exp(-gate[i]));
    }
    return Times(matrix("down_proj"), hidden);
  }
  Vector Network(const char* prefix, const Vector& x) {
    return Network([&](const std::string& name) { return Of(prefix + name + ".weight"); }, x);
  }
  // A matrix of an expert: from a tensor of its own, or from one of all experts, which may have the rows of gate and up.
  Vector ExpertMatrix(size_t e, const std::string& name) {
    const std::string one = "mlp.experts." + std::to_string(e) + "." + name + ".weight";
    if (files_ != Files::kGguf && inventory_.Find(StoredName(one)) != nullptr) return Of(one);
    std::string all = "mlp.experts." + name + (files_ == Files::kGguf ? ".weight" : "");
    const bool both = files_ != Files::kGguf && name != "down_proj" && inventory_.Find(StoredName(all)) == nullptr;
    if (both) all = "mlp.experts.gate_up_proj";
    const Vector& w = Of(all);
    const size_t n = w.size() / static_cast<size_t>(r_.all.experts.n_experts), half = both ? n / 2 : n;
    return Part(w, e * n + (both && name == "up_proj" ? half : 0), half);
  }
  // Sigmoids, where a bias enters the choice alone and a group is judged by its two best, or a softmax.
  Vector Experts(const Vector& x) {
    const size_t X = static_cast<size_t>(r_.all.experts.n_experts), groups = static_cast<size_t>(r_.all.experts.groups),
                 size = X / groups;
    Vector scores = Times(Of("mlp.gate.weight"), x);
    const bool softmax = SoftmaxOfAll(r_.all.experts.routing);
    double all = 0;
    for (double& s : scores) all += s = softmax ? std::exp(s) : 1 / (1 + std::exp(-s));
    for (double& s : scores) s /= softmax ? all : 1;
    Vector choice = scores;
    if (r_.all.experts.router_bias) AddTo(choice, Of("mlp.gate.e_score_correction_bias"));
    std::vector<std::pair<double, size_t>> judged;
    for (size_t g = 0; g < groups; ++g) {
      Vector of = Part(choice, g * size, size);
      std::sort(of.rbegin(), of.rend());
      judged.emplace_back(-(of[0] + of[1]), g);
    }
    std::sort(judged.begin(), judged.end());
    std::vector<std::pair<double, size_t>> best;
    for (size_t g = 0; g < static_cast<size_t>(r_.all.experts.kept_groups); ++g) {
      for (size_t e = judged[g].second * size; e < (judged[g].second + 1) * size; ++e) best.emplace_back(-choice[e], e);
    }
    std::sort(best.begin(), best.end());
    double sum = 0;
    for (size_t i = 0; i < static_cast<size_t>(r_.all.experts.top_k); ++i) sum += scores[best[i].second];
    const Vector in = r_.all.experts.latent > 0 ? Times(Of("mlp.fc1_latent_proj.weight"), x) : x;
    Vector routed(in.size());
    for (size_t i = 0; i < static_cast<size_t>(r_.all.experts.top_k); ++i) {
      const size_t e = best[i].second;
      Vector y = Network([&](const std::string& name) { return ExpertMatrix(e, name); }, in);
      for (double& v : y) v *= scores[e] / sum * static_cast<double>(r_.all.experts.route_scale);
      AddTo(routed, y);
    }
    if (r_.all.experts.latent > 0) routed = Times(Of("mlp.fc2_latent_proj.weight"), routed);
    Vector out = Network(files_ == Files::kApart ? "mlp.shared_expert." : "mlp.shared_experts.", x);
    if (r_.all.experts.shared_gate) {
      const double gate = Times(Of("mlp.shared_expert_gate.weight"), x)[0];
      for (double& v : out) v /= 1 + std::exp(-gate);
    }
    AddTo(out, routed);
    return out;
  }

  const Recipe r_;  // of the model without the layer
  const RopeFrequencies rope_;
  const Inventory inventory_;
  const Files files_;
  std::ifstream file_;
  std::map<std::string, Vector> tensors_;
};

}  // namespace tally
