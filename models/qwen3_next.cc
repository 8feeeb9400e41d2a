// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next (Qwen team 2025): gated delta nets, every fourth layer gated attention with partial rope, a mixture of experts beside a shared
// one. Hugging Face interleaves the delta nets' matrices by key head, GGUF does so with beta and alpha alone (older files with all of
// them). Norms multiply by 1 + w: Hugging Face stores w, GGUF 1 + w, but for the delta nets' own.
#include "models/delta_net.h"
#include "models/family.h"
#include "models/gate_up_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"qwen3next"};
constexpr std::string_view kHf[] = {"Qwen3NextForCausalLM"};
constexpr std::string_view kHfTypes[] = {"qwen3_next"};

#define TALLY_QKVZ(name)                                                                                          \
  {Role::kDeltaQ, name, Storage::kPlain, DeltaQOfGroups}, {Role::kDeltaK, name, Storage::kPlain, DeltaKOfGroups}, \
      {Role::kDeltaV, name, Storage::kPlain, DeltaVOfGroups}, {                                                   \
    Role::kDeltaGate, name, Storage::kPlain, DeltaGateOfGroups                                                    \
  }
constexpr RoleName kGgufNames[] = {TALLY_DELTA_GGUF,
                                   {Role::kDeltaGate, "blk.#.attn_gate.weight"},
                                   TALLY_QKVZ("blk.#.ssm_in.weight"),
                                   {Role::kDeltaBeta, "blk.#.ssm_ba.weight", Storage::kPlain, DeltaBetaOfGroups},
                                   {Role::kDeltaAlpha, "blk.#.ssm_ba.weight", Storage::kPlain, DeltaAlphaOfGroups}};
constexpr RoleName kHfNames[] = {TALLY_DELTA_HF,
                                 TALLY_DELTA_PREDICTION_HF,
                                 TALLY_QKVZ(TALLY_DELTA_NET "in_proj_qkvz.weight"),
                                 {Role::kDeltaBeta, TALLY_DELTA_NET "in_proj_ba.weight", Storage::kPlain, DeltaBetaOfGroups},
                                 {Role::kDeltaAlpha, TALLY_DELTA_NET "in_proj_ba.weight", Storage::kPlain, DeltaAlphaOfGroups}};
#undef TALLY_QKVZ

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-6,
               .n_kv_heads = 2,
               .head_dim = 256,
               .n_heads = 16,
               .context = 32768,
               .vocab = 151936,
               .rotated = 0.25,
               .gguf_absent_heads = true});
  ReadDeltaNet(c, r);
  if (c.gguf()) {
    ReadGgufPredictionLayers(c, spec);
  } else {
    if (c.Has("num_nextn_predict_layers")) r.mtp_layers = c.Int("num_nextn_predict_layers", 0, kMaxLayers);
    AddNotRun(c, spec, "mtp.");
  }
  ReadDeltaNetExperts(c, r);
  if (AnyLayer(r, &LayerRecipe::dense)) ReadFeedForwardWidth(c, r);
}

}  // namespace

extern constinit const Family kQwen3NextFamily = {"qwen3-next", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames, {}, {}, true};

}  // namespace tally
