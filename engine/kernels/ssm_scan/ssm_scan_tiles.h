// SPDX-License-Identifier: Apache-2.0
// The state and the rows of SsmScanOp as those of a recurrence in tiles.
#pragma once

#include "engine/kernels/ssm_scan/ssm_scan.h"
#include "engine/kernels/state/state_tiles.h"

namespace tally {

inline StateTiles TilesOf(const SsmScanOp& op) { return {op.heads, op.state_dim(), op.head_dim()}; }
inline ReplayRows RowsOf(const SsmScanOp& op) { return {op.groups, op.state_dim(), op.heads, op.head_dim()}; }

inline int64_t GroupOf(const SsmScanOp& op, int64_t head) { return head / (op.heads / op.groups); }
inline bool FirstOfGroup(const SsmScanOp& op, int64_t head) { return head % (op.heads / op.groups) == 0; }
inline float SkipOf(const SsmScanOp& op, int64_t head) { return op.skip.empty() ? 0.0f : op.skip.Vector()[head]; }

}  // namespace tally
