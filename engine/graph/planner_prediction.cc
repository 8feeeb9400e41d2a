// SPDX-License-Identifier: Apache-2.0
// A layer for multi-token prediction (DeepSeek-V3, DeepSeek-AI 2024, section 2.2). At position i, of the hidden state h of position i and
// the token of position i + 1:
//
//   x = W [norm_e(embedding(token)); norm_h(h)]     then one layer as of the model, with keys and values of its own at position i
//   logits of position i + 2 = head(norm_s(x))
//
// Embedding and head are the model's. Files may have copies of them, which the report says are shared.
//
// The report leaves open whether h has gone through the model's last norm. It has: modeling_deepseek.py beside the weights of
// DeepSeek-R1-0528's prediction layer passes the model's output after `norm` (quoted in github.com/ROCm/ATOM/pull/1764); so do vLLM
// (models/deepseek_mtp.py, glm4_moe_mtp.py) and SGLang (models/deepseek_nextn.py), and llama.cpp for Qwen3.5 since pull request 24025. The
// order of the halves and the positions are vLLM's. For further tokens the layer runs again on its own output after norm_s (vLLM pull
// request 45895, for DeepSeek and GLM). vLLM replaces the embedding of position 0 by zeros; that row, whose token is that of position 1,
// runs as any other here.
#include "engine/graph/planner.h"

namespace tally {

void Planner::Predict() {
  const int64_t E = r_.d_model;
  Widest(2 * E);
  Buffers();
  plan_.given = Floats(E);
  plan_.hidden = Floats(E);
  const Mat<float> joined = Floats(2 * E);
  layer_ = -1;
  Norm(Role::kOutputNorm, plan_.given, plan_.hidden);
  plan_.begin = plan_.ops.size();
  Embed();
  layer_ = r_.first_layer;
  Norm(Role::kNextEmbeddingNorm, plan_.x, joined.Cols(0, E));
  Norm(Role::kNextHiddenNorm, plan_.hidden, joined.Cols(E, E));
  Project(Role::kNextProj, joined, plan_.x);
  Layer();
  plan_.head = plan_.logits_from = plan_.ops.size();
  rows_ = RowsOf::kLogits;
  Norm(Role::kNextHeadNorm, plan_.x, normed_);
  layer_ = -1;
  Head();
}

}  // namespace tally
