// SPDX-License-Identifier: Apache-2.0
// The MODEL of commands that need no weights.
#pragma once

#include <set>
#include <string>

#include "engine/api/tally.h"

namespace tally::app {

// What `argument` names: a path, a built-in model, demo, or ORG/NAME of the hub (hub_models.h), each with or without settings of its own
// behind a colon. Without `yes`, an ORG/NAME that is not in the cache is the built-in NAME if there is one; a note says so. Settings come
// after those of the request, in which an element may be several: "KEY=VALUE,KEY". `path`, where not null, is
// set to the file or directory that was counted, or else to "". Notes that are in `said`, where not null, are not said, and others are
// added to it. The model's name is the argument.
Result<CountedModel> CountArgument(const std::string& argument, CountRequest request, bool yes, std::string* path = nullptr,
                                   std::set<std::string>* said = nullptr);

}  // namespace tally::app
