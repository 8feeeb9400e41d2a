// SPDX-License-Identifier: Apache-2.0
#include "engine/page/svg.h"

#include <gtest/gtest.h>

#include "engine/page/axis.h"
#include "engine/page/labels.h"
#include "tests/support/xml.h"

namespace tally::page {
namespace {

TEST(Svg, TextIsEscaped) {
  EXPECT_EQ(Escape("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(Escape("caf\xc3\xa9 \xf0\x9f\x99\x82"), "caf\xc3\xa9 \xf0\x9f\x99\x82");
  // No UTF-8, and what XML excludes.
  EXPECT_EQ(Escape("a\xff\x01\x1b[0m\xc3"), "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd[0m\xef\xbf\xbd");
  EXPECT_EQ(Escape("\xef\xbf\xbe"), "\xef\xbf\xbd");
}

TEST(Svg, ElementsAreWellFormedWhateverTheNames) {
  const std::string hostile = "</text><script>alert(1)</script>\" onload=\"alert(2)&\x02";
  const std::string shown = "</text><script>alert(1)</script>\" onload=\"alert(2)&\xef\xbf\xbd";
  Svg svg(100, 50);
  svg.Rect(0, 0, 10.04, 5, "bar", hostile, 0.25);
  svg.Text({1, 2}, hostile, "muted", Anchor::kEnd);
  svg.Data("plot", hostile);
  const XmlReader xml(svg.Element(hostile, hostile, "picture", "text{}"));
  ASSERT_EQ(xml.error, "");
  EXPECT_EQ(xml.Texts("title"), (std::vector<std::string>{shown, shown}));
  EXPECT_EQ(xml.Texts("desc"), std::vector<std::string>{shown});
  EXPECT_EQ(xml.Texts("text"), (std::vector<std::string>{Fit(shown, 100), shown}));  // the title as far as it fits, and its own
  EXPECT_TRUE(xml.Texts("script").empty());
  EXPECT_EQ(xml.elements[0].attributes.at("data-plot"), shown);
  EXPECT_EQ(xml.elements[0].attributes.at("role"), "img");
  EXPECT_EQ(xml.elements[0].attributes.at("viewBox"), "-12 -36 124 98");  // a margin and the title
  EXPECT_FALSE(xml.elements[0].attributes.contains("onload"));
}

TEST(Svg, LengthsHaveOneDecimal) {
  EXPECT_EQ(Length(12), "12");
  EXPECT_EQ(Length(12.34), "12.3");
  EXPECT_EQ(Length(-0.26), "-0.3");
  EXPECT_EQ(Length(-0.01), "0");
  EXPECT_EQ(Length(0.0 / 0.0), "0");
}

TEST(Svg, WidthsOfText) {
  EXPECT_EQ(TextWidth("", 10), 0);
  EXPECT_NEAR(TextWidth("0000", 10), 25.6, 1e-9);
  EXPECT_GT(TextWidth("WWW"), TextWidth("iii"));
  EXPECT_EQ(Fit("attention", 1000), "attention");
  EXPECT_EQ(Fit("attention", 40), "atte\xe2\x80\xa6");
  EXPECT_LE(TextWidth(Fit("caf\xc3\xa9 caf\xc3\xa9 caf\xc3\xa9", 50)), 50);
}

TEST(Axis, Ticks) {
  EXPECT_EQ(LinearTicks(0, 10, 6), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(LinearTicks(8, 207, 4), (std::vector<double>{100, 200}));
  EXPECT_EQ(LinearTicks(3, 3, 4), std::vector<double>{3});
  EXPECT_EQ(LogTicks(0.5, 200, 6), (std::vector<double>{1, 10, 100}));
  EXPECT_EQ(LogTicks(1, 1e9, 5), (std::vector<double>{1, 100, 1e4, 1e6, 1e8}));
  EXPECT_EQ(LogTicks(1.5, 9, 6), (std::vector<double>{2, 5}));
  EXPECT_EQ(RoundUp(8.3e9), 1e10);
  EXPECT_EQ(RoundUp(1.1), 1.2);
  EXPECT_EQ(RoundUp(0), 1);
}

TEST(Axis, Positions) {
  const Axis linear{0, 10, 100, 0}, log{1, 100, 0, 50, true};
  EXPECT_EQ(linear.At(2.5), 75);
  EXPECT_EQ(linear.At(11), 0);
  EXPECT_NEAR(log.At(10), 25, 1e-9);
  EXPECT_EQ(log.At(0), 0);
}

TEST(Axis, Numbers) {
  EXPECT_EQ(Thousands(0), "0");
  EXPECT_EQ(Thousands(4187440704), "4,187,440,704");
  EXPECT_EQ(Si(4187440704, "FLOP"), "4.19 GFLOP");
  EXPECT_EQ(Si(0.00123, "s"), "1.23 ms");
  EXPECT_EQ(Si(999.7, "B"), "1.00 kB");
  EXPECT_EQ(Si(17, "B"), "17 B");
  EXPECT_EQ(TickText(2e9), "2 G");
  EXPECT_EQ(TickText(0), "0");
  EXPECT_EQ(TickText(0.5), "0.5");
  EXPECT_EQ(Percent(0.1725), "17.25 %");
  EXPECT_EQ(Percent(1e-6), "< 0.01 %");
  EXPECT_EQ(Percent(0), "0.00 %");
  EXPECT_EQ(Decimal(59), "59");
  EXPECT_EQ(Decimal(0.12345), "0.123");
  EXPECT_EQ(Decimal(12345), "12,345");
}

TEST(Labels, SpreadKeepsGapsAndBounds) {
  const std::vector<double> wanted = {10, 11, 12, 95}, gaps = {15, 15, 15, 15};
  EXPECT_EQ(Spread(wanted, gaps, 5, 100), (std::vector<double>{10, 25, 40, 95}));
  EXPECT_EQ(Spread({{90, 95}}, gaps, 0, 100), (std::vector<double>{85, 100}));
  EXPECT_TRUE(Spread({}, {}, 0, 1).empty());
}

TEST(Labels, NoLabelCoversAnother) {
  LabelPlacer placer({0, 0, 300, 200});
  std::vector<Box> placed;
  for (int i = 0; i < 8; ++i) {
    const std::optional<Point> at = placer.Beside({150, 100}, 4, "label");
    ASSERT_TRUE(at) << i;
    for (const Box& box : placed) EXPECT_FALSE(box.Meets(TextBox(*at, "label"))) << i;
    placed.push_back(TextBox(*at, "label"));
  }
  EXPECT_FALSE(LabelPlacer({0, 0, 20, 20}).Beside({10, 10}, 4, "too long for it"));
}

}  // namespace
}  // namespace tally::page
