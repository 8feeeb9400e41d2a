// SPDX-License-Identifier: Apache-2.0
#include "engine/page/charts.h"

#include <gtest/gtest.h>

#include "engine/page/figure.h"
#include "engine/page/labels.h"
#include "engine/page/style.h"
#include "tests/support/xml.h"

namespace tally::page {
namespace {

double Of(const XmlElement& e, const std::string& attribute) { return std::stod(e.attributes.at(attribute)); }

std::vector<XmlElement> OfClass(const XmlReader& xml, const std::string& css_class) {
  std::vector<XmlElement> all;
  for (const XmlElement& e : xml.elements) {
    const auto found = e.attributes.find("class");
    if (found != e.attributes.end() && found->second.find(css_class) != std::string::npos) all.push_back(e);
  }
  return all;
}

// The picture; its labels are inside, and by the estimated widths none covers another.
XmlReader Read(const Svg& svg) {
  const std::string element = svg.Element("title", "description", "picture");
  EXPECT_EQ(element.find("nan"), std::string::npos) << element;
  XmlReader xml(element);
  EXPECT_EQ(xml.error, "") << element;
  std::vector<std::pair<Box, std::string>> labels;
  for (const XmlElement& e : xml.elements) {
    if (e.name != "text") continue;
    const auto found = e.attributes.find("text-anchor");
    const Anchor anchor = found == e.attributes.end() ? Anchor::kStart
                          : found->second == "middle" ? Anchor::kMiddle
                                                      : Anchor::kEnd;
    const Box box = TextBox({Of(e, "x"), Of(e, "y")}, e.text, anchor);
    EXPECT_TRUE(box.left >= -0.1 && box.right <= svg.width() + 0.1 && box.top >= -0.1 && box.bottom <= svg.height() + 0.1)
        << "'" << e.text << "' leaves a picture of " << svg.width() << " x " << svg.height() << ": " << box.left << " to "
        << box.right;
    for (const auto& [other, text] : labels) {
      const Box inner = {box.left + 0.5, box.top + 1, box.right - 0.5, box.bottom - 1};
      EXPECT_FALSE(other.Meets(inner)) << "'" << e.text << "' covers '" << text << "'";
    }
    labels.emplace_back(box, e.text);
  }
  return xml;
}

constexpr double kWidths[] = {kWideFigure, kNarrowFigure};

// gpt-oss-20b.
TrackChart Parameters() {
  return {{{"embedding", 579133440},
           {"attention", 637203456},
           {"experts", 19116933120},
           {"router", 2212608},
           {"norms", 141120},
           {"head", 579133440}},
          {{"active(head)", "3,608,307,264 · 17.25 %", {0, 637203456, 2389616640, 2212608, 141120, 579133440}}}};
}

TEST(Charts, TracksAreDrawnToScale) {
  for (const double width : kWidths) {
    const XmlReader xml = Read(DrawTracks(Parameters(), width));
    const std::vector<XmlElement> parts = OfClass(xml, "part"), active = OfClass(xml, "active");
    ASSERT_EQ(parts.size(), 6u);
    EXPECT_NEAR(Of(parts[2], "width"), width * 19116933120 / 20914757184, 0.1);
    ASSERT_EQ(active.size(), 5u);  // the embedding is not counted
    EXPECT_NEAR(Of(active[1], "x"), Of(parts[2], "x"), 0.1);
    EXPECT_NEAR(Of(active[1], "width"), width * 2389616640 / 20914757184, 0.1);
    const std::vector<std::string> texts = xml.Texts("text");
    for (const char* name : {"embedding", "experts", "head", "active(head)"}) {
      EXPECT_TRUE(std::any_of(texts.begin(), texts.end(), [&](const std::string& t) { return t.starts_with(name); })) << name;
    }
  }
}

TEST(Charts, LinesAndAreas) {
  LineChart chart{"token",         "FLOPs", {}, {{"linear", {}, "fill-1"}, {"attention", {}, "fill-2"}, {"norms", {}, "fill-3"}},
                  {{"a roof", 9}}, true};
  for (int i = 0; i < 50; ++i) {
    chart.x.push_back(8 + i);
    chart.series[0].values.push_back(5);
    chart.series[1].values.push_back(0.05 * i);
    chart.series[2].values.push_back(0.001);
  }
  for (const double width : kWidths) {
    const XmlReader stacked = Read(DrawLines(chart, width));
    EXPECT_EQ(OfClass(stacked, "area").size(), 3u);
    const auto roof = OfClass(stacked, "roof");
    ASSERT_EQ(roof.size(), 1u);
    EXPECT_EQ(Of(roof[0], "y1"), 46);  // 9 of 10, from 226 up to 26
    EXPECT_EQ(OfClass(stacked, "picture")[0].attributes.count("data-plot"), 1u);
    LineChart lines = chart;
    lines.stacked = false;
    EXPECT_EQ(OfClass(Read(DrawLines(lines, width)), "line").size(), 3u);
    lines.dots = true;
    EXPECT_EQ(OfClass(Read(DrawLines(lines, width)), "dot").size(), 150u);
  }
}

TEST(Charts, BarsAreDrawnToScale) {
  const BarChart chart{{{"linear mxfp4", 1.2, "1.20 s", "all of it", "bar"},
                        {"norm", 0.3, "300 ms", "", "bar"},
                        {"nothing", 0, "0 s", "", "bar"}}};
  for (const double width : kWidths) {
    const XmlReader xml = Read(DrawBars(chart, width));
    const auto bars = OfClass(xml, "bar");
    ASSERT_EQ(bars.size(), 3u);
    EXPECT_NEAR(Of(bars[1], "width") / Of(bars[0], "width"), 0.25, 0.001);
    EXPECT_EQ(Of(bars[2], "width"), 0);
    EXPECT_EQ(xml.Texts("title")[1], "all of it");
  }
}

TEST(Charts, HeatMapHasEveryCell) {
  for (const auto& [rows, columns] : {std::pair<size_t, size_t>{24, 32}, {92, 160}, {1, 8}}) {
    HeatMap map{"layer", "expert", "tokens", std::vector<std::string>(rows, "12"), columns, std::vector<double>(rows * columns)};
    for (size_t i = 0; i < map.values.size(); ++i) map.values[i] = static_cast<double>(i % 11);
    for (const double width : kWidths) {
      const XmlReader xml = Read(DrawHeatMap(map, width));
      size_t cells = 0;
      for (const XmlElement& e : xml.elements) {
        if (e.name == "path")
          cells += static_cast<size_t>(std::count(e.attributes.at("d").begin(), e.attributes.at("d").end(), 'M'));
      }
      EXPECT_EQ(cells, rows * columns);
    }
  }
}

TEST(Charts, RooflinePlacesMarksUnderRoofs) {
  const RooflineChart chart{42e9,
                            {{"int8 1.21 TFLOP/s", 1.21e12}, {"bf16 480 GFLOP/s", 480e9}, {"f32 450 GFLOP/s", 450e9}},
                            {{"linear", "", 2, 70e9, "accent"},
                             {"attention", "", 1.8, 30e9, "accent"},
                             {"norm", "", .4, 3e9, "accent"},
                             {"softmax", "", .41, 3.1e9, "accent"},
                             {"prefill", "", 100, 470e9, "hollow"}}};
  for (const double width : kWidths) {
    const XmlReader xml = Read(DrawRoofline(chart, width));
    EXPECT_EQ(OfClass(xml, "mark").size(), 5u);
    EXPECT_EQ(OfClass(xml, "roof").size(), 4u);
    const std::vector<std::string> texts = xml.Texts("text");
    for (const char* name : {"int8 1.21 TFLOP/s", "f32 450 GFLOP/s", "reads 42.0 GB/s", "linear", "norm", "softmax", "prefill"}) {
      EXPECT_EQ(std::count(texts.begin(), texts.end(), name), 1) << name;
    }
    const auto mark = OfClass(xml, "mark")[0], slope = OfClass(xml, "roof").back();
    // Work of the slope at the mark's FLOPs a byte, on the logarithmic scale: the mark is below.
    const double along = (Of(mark, "cx") - Of(slope, "x1")) / (Of(slope, "x2") - Of(slope, "x1"));
    EXPECT_GT(Of(mark, "cy"), Of(slope, "y1") + along * (Of(slope, "y2") - Of(slope, "y1")));
  }
}

TEST(Charts, NothingAndZerosAreDrawn) {
  for (const double width : kWidths) {
    Read(DrawTracks({}, width));
    Read(DrawTracks({{{"none", 0}}, {{"total", "0", {0}}}}, width));
    Read(DrawLines({}, width));
    Read(DrawLines({"x", "y", {1}, {{"one", {0}, "grey"}}, {}, true}, width));
    Read(DrawBars({}, width));
    Read(DrawHeatMap({}, width));
    Read(DrawHeatMap({"layer", "expert", "tokens", {"0", "1"}, 2, {0, 0, 0, 0}}, width));
    Read(DrawRoofline({}, width));
    Read(DrawRoofline({0, {}, {{"linear", "", 2, 70e9, "accent"}}}, width));
  }
}

TEST(Figures, AFileHasItsColours) {
  const Figure figure{"parameters",
                      "Where <they> live",
                      "Most are experts.",
                      [](double width, double) { return DrawTracks(Parameters(), width); },
                      {}};
  const std::string file = FigureSvg(figure, "A & B");
  EXPECT_EQ(file.find("var("), std::string::npos);
  EXPECT_NE(file.find("prefers-color-scheme:dark"), std::string::npos);
  const XmlReader xml(file);
  EXPECT_EQ(xml.error, "");
  EXPECT_EQ(xml.elements[0].attributes.at("xmlns"), "http://www.w3.org/2000/svg");
  EXPECT_EQ(xml.Texts("title")[0], "A & B: Where <they> live");
  EXPECT_EQ(xml.Texts("text")[0], "A & B: Where <they> live");
  // On the page the same picture twice, for wide and narrow windows, in the page's colours.
  const std::string html = FigureHtml(figure);
  EXPECT_NE(html.find("picture narrow"), std::string::npos);
  EXPECT_NE(PageCss().find("var(--accent)"), std::string::npos);
}

}  // namespace
}  // namespace tally::page
