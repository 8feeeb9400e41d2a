// SPDX-License-Identifier: Apache-2.0
// Colours, CSS and script. The .css and .js files are the sources; the build embeds them.
#pragma once

#include <string>
#include <string_view>

namespace tally::page {

// Of the report: colours as CSS variables, light and dark; paper is light.
std::string PageCss();
// Of the chat: the same colours; the attribute data-theme of the root, light or dark, goes before what the system prefers.
std::string ChatCss();
// Of a picture in a file of its own: colours written out, since many programs that read SVG know no variables.
std::string FileCss();
std::string_view PageScript();

}  // namespace tally::page
