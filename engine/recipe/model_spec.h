// A family's reading of a checkpoint: its recipe, and which stored tensor plays which role.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/recipe/recipe.h"

namespace tally {

// What a stored tensor is for.
enum class Role : uint8_t {
  kTokenEmbedding,
  kPositionEmbedding,
  kOutputNorm,
  kOutputNormBias,
  kHead,
  kHeadBias,
  kRopeFactors,
  kAttnNorm,
  kAttnNormBias,
  kQkv,
  kQkvBias,
  kQ,
  kQBias,
  kK,
  kKBias,
  kV,
  kVBias,
  kQNorm,
  kKNorm,
  kSinks,
  kO,
  kOBias,
  kFfnNorm,
  kFfnNormBias,
  kRouter,
  kRouterBias,
  kGate,
  kGateBias,
  kUp,
  kUpBias,
  kDown,
  kDownBias,
  kExpertGate,
  kExpertGateBias,
  kExpertUp,
  kExpertUpBias,
  kExpertDown,
  kExpertDownBias
};

// How the file holds it. Shapes of the role are the engine's: matrices [out, in], experts [X, out, in], vectors [n].
enum class Storage : uint8_t {
  kPlain,            // as the engine wants it
  kTransposed,       // [in, out] (GPT-2's Conv1D)
  kInterleavedEven,  // rows (or vector elements) 0, 2, 4.. of the tensor: the gate of an interleaved gate_up
  kInterleavedOdd,   // rows 1, 3, 5..: the up
};

struct TensorBinding {
  Role role{};
  int32_t layer = -1;
  std::vector<std::string> names;  // one stored tensor; or one per expert, to be stacked; or {blocks, scales} of HF MXFP4
  std::vector<uint64_t> shape;     // as the engine wants it
  Storage storage = Storage::kPlain;
  bool hf_mxfp4 = false;  // names = {x_blocks [X, out, in/32, 16] U8, x_scales [X, out, in/32] U8}
};

// The family's reading of a checkpoint.
struct ModelSpec {
  Recipe recipe;
  std::vector<TensorBinding> bindings;
  std::vector<std::string> buffers;  // stored but not learned: causal masks and their like
  std::vector<std::string> not_run;  // learned and present, but not used by this family's graph
};

}  // namespace tally
