// SPDX-License-Identifier: Apache-2.0
// The texts of the CSS, HTML and JavaScript files; assets.cc is written by CMake from assets.cc.in.
#pragma once

#include <string_view>

namespace tally::page {

extern const std::string_view kCommonCss, kFigureCss, kPageCss, kPageScript;
// kChatScript: tip.js and the files chat*.js, one after another; they share one scope.
extern const std::string_view kChatHtml, kChatCss, kChatScript;
// Browser libraries of the distribution; empty where the build had none.
extern const std::string_view kMarkedScript, kPurifyScript;
// Of KaTeX the gzip file, and what the text in it hashes to, both in hexadecimal digits; empty where the build had none.
extern const std::string_view kKatexGzip, kKatexSha256;

}  // namespace tally::page
