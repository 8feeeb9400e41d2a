// SPDX-License-Identifier: Apache-2.0
// The texts of figure.css, page.css and page.js; assets.cc is written by CMake from assets.cc.in.
#pragma once

#include <string_view>

namespace tally::page {

extern const std::string_view kFigureCss, kPageCss, kPageScript;

}  // namespace tally::page
