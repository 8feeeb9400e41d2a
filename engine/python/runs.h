// SPDX-License-Identifier: Apache-2.0
// Methods of a model that run tokens and look: logits, hidden states, taps, log probabilities, the ledger, measured and audited runs.
#pragma once

#include <memory>

#include "engine/python/model.h"

namespace tally::python {

void AddRuns(py::class_<ModelState, std::shared_ptr<ModelState>>& model);

}  // namespace tally::python
