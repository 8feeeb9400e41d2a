// SPDX-License-Identifier: Apache-2.0
// Qwen3.5 (Qwen team 2026): gated delta nets, every fourth layer gated attention with partial rope, dense or with a mixture of experts
// beside a shared one; the files of Qwen3.6 and Qwen3.8 are the same. Norms multiply by 1 + w: Hugging Face stores w, GGUF 1 + w, but for
// the delta nets' own. GGUF has the value heads in another order: head h has key head h mod key_heads. The sections of M-RoPE differ
// for images only. The vision tower is not run. GGUF counts the layers for multi-token prediction among the blocks.
#include <numeric>

#include "models/delta_net.h"
#include "models/family.h"
#include "models/gate_up_rows.h"
#include "models/vision.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"qwen35", "qwen35moe"};
constexpr std::string_view kHf[] = {"Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM", "Qwen3_5MoeForConditionalGeneration",
                                    "Qwen3_5MoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"};

constexpr RoleName kGgufNames[] = {TALLY_DELTA_GGUF};
constexpr RoleName kHfNames[] = {TALLY_DELTA_HF,
                                 TALLY_DELTA_PREDICTION_HF,
                                 {Role::kDeltaQ, TALLY_DELTA_NET "in_proj_qkv.weight", Storage::kPlain, DeltaQInTurn},
                                 {Role::kDeltaK, TALLY_DELTA_NET "in_proj_qkv.weight", Storage::kPlain, DeltaKInTurn},
                                 {Role::kDeltaV, TALLY_DELTA_NET "in_proj_qkv.weight", Storage::kPlain, DeltaVInTurn},
                                 {Role::kDeltaGate, TALLY_DELTA_NET "in_proj_z.weight"},
                                 {Role::kDeltaBeta, TALLY_DELTA_NET "in_proj_b.weight"},
                                 {Role::kDeltaAlpha, TALLY_DELTA_NET "in_proj_a.weight"}};

// The sections of M-RoPE: how many pairs of dimensions turn with the time, the height and the width; text has one position for all three.
std::vector<int64_t> ReadSections(Config& c) {
  c.Bool("rope_parameters.mrope_interleaved", true);
  std::vector<int64_t> sections = c.Ints(c.Pick("rope.dimension_sections", "rope_parameters.mrope_section"));
  for (const int64_t section : sections) {
    if (section < 0 || section > kMaxWidth) c.Fail("a section of M-RoPE is " + std::to_string(section));
  }
  return sections;
}

// Sections take every third pair. llama.cpp does not turn the pairs that are left, transformers turns them with the time.
void CheckSections(Config& c, std::vector<int64_t> sections, int64_t pairs) {
  if (sections.empty() || !c.ok()) return;
  bool whole = std::accumulate(sections.begin(), sections.end(), int64_t{0}) >= pairs;
  sections.resize(3);
  for (int64_t i = 0; c.gguf() && i < 3; ++i) whole = whole && sections[static_cast<size_t>(i)] >= (pairs + 2 - i) / 3;
  if (!whole) c.Fail("the sections of M-RoPE leave frequencies of rope out");
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool parts =
      c.gguf() || c.Is({"Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration", "qwen3_5", "qwen3_5_moe"});
  const bool mixture =
      c.Is({"qwen35moe", "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM", "qwen3_5_moe", "qwen3_5_moe_text"});
  const bool vision = parts && !c.gguf() && c.inventory().tensors.empty();
  if (vision) AddQwenVision(c, spec);
  EnterTextModel(c, spec, {"visual."});
  r.rope.style = RopeStyle::kRotateHalf;
  const std::vector<int64_t> sections = ReadSections(c);
  ReadDecoder(c, spec,
              {.norm_eps = 1e-6,
               .n_kv_heads = mixture ? 2 : 4,
               .head_dim = 256,
               .n_heads = 16,
               .context = 32768,
               .vocab = 248320,
               .rotated = 0.25,
               .gguf_absent_heads = true});
  CheckSections(c, sections, r.rope.dim / 2);
  SetSections(c, sections.empty() ? std::vector<int64_t>{11, 11, 10} : sections, /*interleaved=*/true, r);  // the class's default
  ReadDeltaNet(c, r);
  r.all.delta.tiled = c.gguf();
  if (c.gguf()) {
    ReadGgufPredictionLayers(c, spec);
  } else {
    if (c.Has("mtp_num_hidden_layers")) r.mtp_layers = c.Int("mtp_num_hidden_layers", 0, kMaxLayers);
    AddNotRun(c, spec, "mtp.");
  }
  if (!mixture) return ReadFeedForwardWidth(c, r);
  r.family = "qwen3.5-moe";
  ReadDeltaNetExperts(c, r);
}

}  // namespace

extern constinit const Family kQwen35Family = {"qwen3.5", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames, {}, {}, true};

}  // namespace tally
