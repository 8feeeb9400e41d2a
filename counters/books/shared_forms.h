// SPDX-License-Identifier: Apache-2.0
// Internal to books/: what the closed forms of several blocks have in common. Attention's part is in forms_attention.cc, that of
// feed-forwards in forms_feed_forward.cc.
#pragma once

#include <string>

#include "counters/books/form_builders.h"

namespace tally::books {

struct HeadSymbols {
  Form H, K, D;
};
HeadSymbols HeadsOf(const Recipe& r, const LayerRecipe& l);
// Rotated dimensions of a head; 0 without rope.
Form RopeDim(const Recipe& r, const LayerRecipe& l);
// Rope of so many heads.
void RotateWork(WorkBuilder& w, const Form& heads);
// Scores, softmax and weighted sums. `key`, `value`: elements of a head's key and value as attention sees them.
void AttentionWork(WorkBuilder& w, const Form& key, const Form& value);
// Sinks and the last matrix. `value`: elements of a head's value.
void AttendedParameters(ParameterBuilder& p, const Form& value);

// `space`: the width of its input and output. `limit`: its SwiGLU's; 0: none.
void NetworkWork(WorkBuilder& w, Component in, Component out, const Form& rows, const Form& space, const Form& width, bool bias,
                 bool gated, float limit = 0);
// Names are "ffn_up" and `tail`.
void NetworkParameters(ParameterBuilder& p, const std::string& tail, const Form& width, bool bias, Component in, Component out);

}  // namespace tally::books
