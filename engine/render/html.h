// SPDX-License-Identifier: Apache-2.0
// Tables and text as HTML.
#pragma once

#include <string>
#include <string_view>

#include "engine/render/table.h"

namespace tally {

// `text` as character data or attribute value of XML and HTML. Bytes that are not UTF-8 and characters that XML 1.0 excludes become
// U+FFFD.
std::string Escape(std::string_view text);

// In a box that scrolls sideways where it is too narrow. The title is for screen readers, and so is the first cell of a row as its head.
// A cell that stands for a number is aligned to the right, and sorted by it. `css_class`: of the box.
std::string TableHtml(const Table& table, std::string_view css_class = {});

}  // namespace tally
