// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/page/charts.h"

namespace tally::page {

Svg DrawBars(const BarChart& chart, double width) {
  constexpr double kRow = 22, kBar = 14;
  double names = 0, texts = 0, most = chart.extent;
  for (const BarChart::Bar& bar : chart.bars) {
    names = std::max(names, TextWidth(bar.name));
    texts = std::max(texts, TextWidth(bar.text));
    most = std::max(most, bar.value);
  }
  names = std::min(names, 0.42 * width);
  const double left = names + 8, room = std::max(width - left - texts - 8, 20.0);
  Svg svg(width, kRow * static_cast<double>(chart.bars.size()));
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const BarChart::Bar& bar = chart.bars[i];
    const double top = kRow * static_cast<double>(i), length = most > 0 ? bar.value / most * room : 0;
    svg.Text({names, top + 15}, Fit(bar.name, names + 1), {}, Anchor::kEnd);
    svg.Rect(left, top + (kRow - kBar) / 2, length, kBar, bar.css_class, bar.tip);
    svg.Text({left + length + 6, top + 15}, bar.text, "muted");
  }
  return svg;
}

}  // namespace tally::page
