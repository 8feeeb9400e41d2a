// SPDX-License-Identifier: Apache-2.0
// Keywords of JSON Schema. Internal to the schema's compiler.
#pragma once

#include <string_view>

#include "engine/grammar/schema.h"

namespace tally {

// What the standard has as annotations, and where other schemas and names stand: says nothing of what is valid.
bool IsAnnotation(std::string_view keyword);
// Null: not known.
const SchemaKeyword* KeywordNamed(std::string_view name);

}  // namespace tally
