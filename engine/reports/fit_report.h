// SPDX-License-Identifier: Apache-2.0
// What `tally fit` says.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/export.h"
#include "engine/render/value.h"
#include "engine/studies/fit_models.h"

namespace tally {

TALLY_API Value FitDocument(const FitPage& page, const std::vector<FittedModel>& models);
// One screen of one model; a line each of several, the verdict first. Lines of at most `width` columns, 80 or more. `largest`: of
// several only the largest that fit, as many as a screen has room for.
TALLY_API std::string FitText(const FitPage& page, const FittedModel& model, size_t width);
TALLY_API std::string FitTableText(const FitPage& page, const std::vector<FittedModel>& models, size_t width, bool largest);

}  // namespace tally
