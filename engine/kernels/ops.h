// SPDX-License-Identifier: Apache-2.0
// All ops, and a variant of them.
#pragma once

#include <variant>

#include "engine/kernels/attention/attention.h"
#include "engine/kernels/causal_conv/causal_conv.h"
#include "engine/kernels/delta_rule/delta_rule.h"
#include "engine/kernels/elementwise/elementwise.h"
#include "engine/kernels/embed/embed.h"
#include "engine/kernels/fetch/fetch.h"
#include "engine/kernels/gated_add/gated_add.h"
#include "engine/kernels/gated_norm/gated_norm.h"
#include "engine/kernels/gather/gather.h"
#include "engine/kernels/kv_store/kv_store.h"
#include "engine/kernels/matmul/matmul.h"
#include "engine/kernels/norm/norm.h"
#include "engine/kernels/pack_act/pack_act.h"
#include "engine/kernels/place_rows/place_rows.h"
#include "engine/kernels/rates/rates.h"
#include "engine/kernels/rope/rope.h"
#include "engine/kernels/router/router.h"
#include "engine/kernels/scale_rows/scale_rows.h"
#include "engine/kernels/ssm_scan/ssm_scan.h"

namespace tally {

template <class Nothing, class... Ops>
using VariantOf = std::variant<Ops...>;

#define TALLY_OP(op) , op
using AnyOp = VariantOf<void
#include "engine/kernels/kernels.inc"
                        >;
#undef TALLY_OP

}  // namespace tally
