// SPDX-License-Identifier: Apache-2.0
// Values as JSON and in CSV. Bytes that are no UTF-8 become U+FFFD.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/base/export.h"
#include "engine/render/value.h"

namespace tally {

TALLY_API std::string JsonText(
    const Value& document);  // members and items on lines of their own, indented by two blanks; no newline
TALLY_API std::string JsonLine(const Value& document);  // in one line, with a newline

TALLY_API std::string CsvCell(std::string_view text);  // quoted if that is needed (RFC 4180)
// A head and a line for each object: a column for each member that is neither list nor object, in the order in which they first occur.
TALLY_API std::string CsvText(std::span<const Value> objects);

}  // namespace tally
