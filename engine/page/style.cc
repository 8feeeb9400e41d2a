// SPDX-License-Identifier: Apache-2.0
#include "engine/page/style.h"

#include "engine/page/assets.h"

namespace tally::page {
namespace {

struct Colour {
  std::string_view name, light, dark;
};

// Greys, one accent for what is active, and `other` for a second run: blue and orange, which all kinds of colour vision tell apart.
// Text on paper, on each fill and on the accent has a contrast of at least 4.5.
constexpr Colour kColours[] = {
    {"paper", "#ffffff", "#151514"},  {"ink", "#1b1b1a", "#ebebe6"},    {"muted", "#5b5b56", "#a8a8a1"},
    {"rule", "#dcdcd7", "#3b3b38"},   {"grid", "#ecece8", "#292927"},   {"empty", "#f0f0ed", "#242422"},
    {"fill-1", "#e3e3de", "#2e2e2b"}, {"fill-2", "#cfcfc9", "#3d3d39"}, {"fill-3", "#bbbbb4", "#4d4d49"},
    {"fill-4", "#a6a69f", "#5c5c57"}, {"accent", "#0b62a8", "#6cb2f0"}, {"other", "#b04a00", "#f0a070"},
};

// The declarations of all colours: "--paper:#ffffff;...".
std::string Variables(std::string_view Colour::*shade) {
  std::string out;
  for (const Colour& c : kColours) out += "--" + std::string(c.name) + ":" + std::string(c.*shade) + ";";
  return out;
}

// `css` with each var(--NAME) replaced by its colour.
std::string Resolved(std::string css, std::string_view Colour::*shade) {
  for (const Colour& c : kColours) {
    const std::string variable = "var(--" + std::string(c.name) + ")";
    for (size_t at; (at = css.find(variable)) != std::string::npos;) css.replace(at, variable.size(), c.*shade);
  }
  return css;
}

}  // namespace

std::string PageCss() {
  return ":root{color-scheme:light dark;" + Variables(&Colour::light) +
         "}\n@media screen and (prefers-color-scheme:dark){:root{" + Variables(&Colour::dark) + "}}\n" + std::string(kCommonCss) +
         std::string(kFigureCss) + std::string(kPageCss);
}

std::string ChatCss() {
  const std::string light = "color-scheme:light;" + Variables(&Colour::light),
                    dark = "color-scheme:dark;" + Variables(&Colour::dark);
  return ":root{" + light + "}\n@media (prefers-color-scheme:dark){:root{" + dark + "}}\n:root[data-theme=light]{" + light +
         "}\n:root[data-theme=dark]{" + dark + "}\n" + std::string(kCommonCss) + std::string(kFigureCss) + std::string(kChatCss);
}

std::string FileCss() {
  const std::string css = ".picture{background:var(--paper)}\n" + std::string(kFigureCss);
  return Resolved(css, &Colour::light) + "@media (prefers-color-scheme:dark){\n" + Resolved(css, &Colour::dark) + "}\n";
}

std::string_view PageScript() { return kPageScript; }

}  // namespace tally::page
