// SPDX-License-Identifier: Apache-2.0
// The types that a preset of Quantize gives a counted model's weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/base/dtype.h"
#include "engine/studies/count.h"
#include "engine/studies/quant_presets.h"

namespace tally {

struct PresetTypes {
  std::map<std::string, DType> types;  // of all tensors, by name as in CountedModel::stored_types
  uint64_t bytes = 0;                  // of all weights
};

// As Quantize would choose, from the types that the model is stored in: experts in MXFP4 stay.
PresetTypes PresetTypesOf(const CountedModel& model, const QuantPreset& preset);

}  // namespace tally
