// SPDX-License-Identifier: Apache-2.0
// The state and the rows of DeltaRuleOp as those of a recurrence in tiles.
#pragma once

#include "engine/kernels/delta_rule/delta_rule.h"
#include "engine/kernels/state/state_tiles.h"

namespace tally {

inline StateTiles TilesOf(const DeltaRuleOp& op) { return {op.value_heads, op.k_dim(), op.v_dim()}; }
inline ReplayRows RowsOf(const DeltaRuleOp& op) { return {op.key_heads, op.k_dim(), op.value_heads, op.v_dim(), op.decay_dim()}; }

inline bool FirstOfKeyHead(const DeltaRuleOp& op, int64_t value_head) {
  return op.tiled ? value_head < op.key_heads : value_head % (op.value_heads / op.key_heads) == 0;
}

}  // namespace tally
