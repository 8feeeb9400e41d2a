// SPDX-License-Identifier: Apache-2.0
// A checkpoint with every way a binding can be stored.
#pragma once

#include <string>
#include <vector>

#include "engine/recipe/recipe.h"
#include "tests/weights/written.h"

namespace tally {

// Every storage kind; some tensors larger than what is read at a time (1 MiB).
inline void FillEverything(WrittenCheckpoint& c) {
  using S = Storage;
  c.spec.recipe.tied_head = false;
  c.Plain(Role::kTokenEmbedding, -1, DType::kF16, {1500, 512});  // 1.5 MB, as stored
  c.Plain(Role::kPositionEmbedding, -1, DType::kF32, {33, 512});
  c.Plain(Role::kHead, -1, DType::kQ8_0, {3001, 512}, 1);  // 1.6 MB
  c.Plain(Role::kHeadBias, -1, DType::kBF16, {3001});
  c.Plain(Role::kOutputNorm, -1, DType::kF32, {512}, 1);
  c.Plain(Role::kOutputNormBias, -1, DType::kF16, {512});
  c.Plain(Role::kRopeFactors, -1, DType::kF32, {16}, 1);

  // GPT-2's way: [in, out].
  c.Tensor("t.qkv", DType::kBF16, {301, 2000});  // 1.2 MB, an odd input dimension
  c.Bind(Role::kQkv, 0, {"t.qkv"}, {2000, 301}, S::kTransposed);
  c.Tensor("t.o", DType::kF32, {64, 70});
  c.Bind(Role::kO, 0, {"t.o"}, {70, 64}, S::kTransposed);
  c.Plain(Role::kQkvBias, 0, DType::kF32, {2000});

  // Llama's.
  c.Plain(Role::kQ, 1, DType::kQ4_0, {96, 512});
  c.Plain(Role::kK, 1, DType::kMXFP4, {40, 512});
  c.Plain(Role::kV, 1, DType::kF16, {40, 37});
  c.Plain(Role::kO, 1, DType::kQ6_K, {37, 512});
  c.Plain(Role::kQNorm, 1, DType::kBF16, {40});
  c.Plain(Role::kGate, 1, DType::kF32, {300, 1000}, 1);  // 1.2 MB
  c.Plain(Role::kGateBias, 1, DType::kF16, {300});
  c.Plain(Role::kDown, 1, DType::kF32, {31, 300});

  // gpt-oss': MXFP4 in two tensors, gate and up alternating. A slice of both: 2 * 130 * 96 * 17 = 424 KB.
  const uint64_t x = 3, f = 130, e = 96 * 32;
  c.Tensor("gate_up_blocks", DType::kU8, {x, 2 * f, e / 32, 16}, 1);
  c.Tensor("gate_up_scales", DType::kU8, {x, 2 * f, e / 32}, 0);
  c.Bind(Role::kExpertUp, 2, {"gate_up_blocks", "gate_up_scales"}, {x, f, e}, kOdd, DType::kMXFP4);
  c.Bind(Role::kExpertGate, 2, {"gate_up_blocks", "gate_up_scales"}, {x, f, e}, kEven, DType::kMXFP4);
  c.Tensor("gate_up_bias", DType::kBF16, {x, 2 * f});
  c.Bind(Role::kExpertGateBias, 2, {"gate_up_bias"}, {x, f}, kEven);
  c.Bind(Role::kExpertUpBias, 2, {"gate_up_bias"}, {x, f}, kOdd);
  c.Tensor("down_blocks", DType::kU8, {x, 50, 4, 16});
  c.Tensor("down_scales", DType::kU8, {x, 50, 4});
  c.Bind(Role::kExpertDown, 2, {"down_blocks", "down_scales"}, {x, 50, 128}, S::kPlain, DType::kMXFP4);
  c.Plain(Role::kExpertDownBias, 2, DType::kF32, {x, 50});
  c.Plain(Role::kRouter, 2, DType::kBF16, {x, 50});
  c.Plain(Role::kSinks, 2, DType::kBF16, {8});

  // Mixtral's: a tensor per expert.
  std::vector<std::string> gate, up, down, bias;
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    const uint32_t file = i % 2;
    c.Tensor("w1." + n, DType::kQ8_0, {48, 64}, file), gate.push_back("w1." + n);
    c.Tensor("w3." + n, DType::kF16, {33, 48}, file), up.push_back("w3." + n);
    c.Tensor("w2." + n, DType::kF16, {17, 55}, file), down.push_back("w2." + n);
    c.Tensor("b." + n, DType::kF16, {9}, file), bias.push_back("b." + n);
  }
  c.Bind(Role::kExpertGate, 3, gate, {4, 48, 64});
  c.Bind(Role::kExpertUp, 3, up, {4, 48, 33}, S::kTransposed);
  c.Bind(Role::kExpertDown, 3, down, {4, 17, 55});
  c.Bind(Role::kExpertDownBias, 3, bias, {4, 9});

  // In one tensor, transposed or interleaved per expert; a half whose other half nobody wants; a single expert.
  c.Tensor("x.t", DType::kF32, {5, 40, 24});
  c.Bind(Role::kExpertDown, 4, {"x.t"}, {5, 24, 40}, S::kTransposed);
  c.Tensor("x.h", DType::kBF16, {5, 60, 33});
  c.Bind(Role::kExpertGate, 4, {"x.h"}, {5, 30, 33}, kEven);
  c.Bind(Role::kExpertUp, 4, {"x.h"}, {5, 30, 33}, kOdd);
  c.Tensor("x.i", DType::kQ4_0, {5, 60, 64});
  c.Bind(Role::kExpertGate, 5, {"x.i"}, {5, 30, 64}, kEven);
  c.Bind(Role::kExpertUp, 5, {"x.i"}, {5, 30, 64}, kOdd);
  c.Tensor("x.odd", DType::kF16, {66, 20});
  c.Bind(Role::kUp, 6, {"x.odd"}, {33, 20}, kOdd);
  // Rows of several heads' q, k and v in turn (GPT-NeoX), matrix and bias; q, k and v one after another; 1 + w.
  const Role qkv[] = {Role::kQ, Role::kK, Role::kV}, biases[] = {Role::kQBias, Role::kKBias, Role::kVBias};
  c.Tensor("heads.w", DType::kF16, {7 * 3 * 6, 50});
  c.Tensor("heads.b", DType::kBF16, {7 * 3 * 6});
  c.Tensor("cut.w", DType::kQ8_0, {40 + 24 + 1, 64});
  c.Tensor("cut.b", DType::kF32, {40 + 24 + 1});
  const RowMap cuts[] = {{0, 40, 40}, {40, 24, 24}, {64, 1, 1}};
  for (size_t i = 0; i < 3; ++i) {
    c.Bind(qkv[i], 7, {"heads.w"}, {42, 50}, RowMap{i * 6, 6, 18});
    c.Bind(biases[i], 7, {"heads.b"}, {42}, RowMap{i * 6, 6, 18});
    c.Bind(qkv[i], 8, {"cut.w"}, {cuts[i].block, 64}, cuts[i]);
    c.Bind(biases[i], 8, {"cut.b"}, {cuts[i].block}, cuts[i]);
  }
  // gpt-oss' experts that are not quantised: [in, out], gate and up in alternating columns.
  c.Tensor("x.columns", DType::kBF16, {3, 33, 2 * 50});
  c.Bind(Role::kExpertUp, 9, {"x.columns"}, {3, 50, 33}, kOdd).storage = S::kTransposed;
  c.Bind(Role::kExpertGate, 9, {"x.columns"}, {3, 50, 33}, kEven).storage = S::kTransposed;
  c.Tensor("wide.columns", DType::kF32, {3, 2 * 44000});  // two rows and what is taken of them are more than 1 MiB
  c.Bind(Role::kUp, 10, {"wide.columns"}, {44000, 3}, kOdd).storage = S::kTransposed;
  c.Tensor("gemma", DType::kBF16, {512});
  c.Bind(Role::kAttnPostNorm, 7, {"gemma"}, {512}, S::kPlusOne);
  c.Tensor("one.row", DType::kF32, {40});  // of a matrix
  c.Bind(Role::kSharedExpertSigmoid, 7, {"one.row"}, {1, 40});
  c.Tensor("x.one", DType::kF16, {20, 10});
  c.Bind(Role::kExpertDown, 6, {"x.one"}, {1, 20, 10});
}

}  // namespace tally
