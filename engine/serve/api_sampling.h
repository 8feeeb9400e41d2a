// SPDX-License-Identifier: Apache-2.0
// The fields of a body that say how tokens are drawn, where an answer ends and which log probabilities it has. Internal to serve.
#pragma once

#include "engine/serve/api_object.h"
#include "engine/serve/api_request.h"

namespace tally {

// temperature, top_p, min_p, top_k, penalties, seed, ignore_eos.
void ReadSampling(ApiObject& body, ApiRequest* request);
// stop or stop_sequences, whichever `name` is, of at most `most` strings.
void ReadStop(ApiObject& body, const char* name, size_t most, ApiRequest* request);
// min_tokens, stop_token_ids, include_stop_str_in_output, allowed_token_ids, bad_words, logit_bias. To be called after the lengths have
// been read.
void ReadTokenRules(ApiObject& body, ApiRequest* request);
// logprobs, top_logprobs or n_probs, prompt_logprobs, echo, return_token_ids. To be called after `stream` has been read.
void ReadLogprobs(ApiObject& body, ApiRequest* request);

}  // namespace tally
