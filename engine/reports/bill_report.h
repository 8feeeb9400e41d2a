// SPDX-License-Identifier: Apache-2.0
// What requests cost, as a document.
#pragma once

#include <memory>
#include <span>

#include "counters/books/books.h"
#include "counters/cost/site.h"
#include "engine/base/export.h"
#include "engine/render/value.h"
#include "engine/session/request.h"

namespace tally {

// Of the choices of one answer together, which have ended. `parameters`: the model's; `weights`: of the ledger of the engine that ran them.
// {"prompt_tokens", "decode_tokens", "decode_steps", "preemptions", "prompt_seconds", "first_token_seconds", "generate_seconds", "prefill",
// "decode", "parameters_touched"}. prompt_tokens are those that ran; first_token_seconds is the least of a choice; prefill and decode are
// the work of the bill: {"rows", "logit_rows", "rows_again", "rows_in_vain", "flops", "special", "bytes": {KIND: n}, "flops_by_class":
// {CLASS: n}}. Also "parameters_active", those of a token by the convention that counts all; "kv_bytes", what the choices held of the KV
// cache and of states at their end, shared bytes counted for each; "experts_touched": {LAYER: n}, for models with experts;
// "forced_tokens", if a grammar left no choice about some; if tokens were drafted, "drafts": {"rows", "accepted", "not_accepted",
// "not_accepted_flops", "not_accepted_bytes": {KIND: n}}, and of a layer for multi-token prediction "predicting_flops" and
// "predicting_bytes".
TALLY_API Value BillDocument(std::span<const std::shared_ptr<Request>> choices, const books::ParameterCounts& parameters,
                             std::span<const WeightInfo> weights);

}  // namespace tally
