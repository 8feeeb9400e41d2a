// SPDX-License-Identifier: Apache-2.0
#include "engine/page/live_figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/page/sample_live.h"
#include "tests/support/xml.h"

namespace tally {
namespace {

using Json = nlohmann::json;

// The JSON of an event; null: it is no event.
Json Parsed(const std::string& event) {
  const std::string head = "event: step\ndata: ";
  EXPECT_TRUE(event.starts_with(head));
  EXPECT_TRUE(event.ends_with("}\n\n"));
  EXPECT_EQ(event.find('\n', head.size()), event.size() - 2) << "the data is one line";
  return Json::parse(event.substr(std::min(head.size(), event.size())), nullptr, false);
}

void ExpectPictures(const Json& json, const std::set<std::string>& names) {
  std::set<std::string> found;
  for (const auto& [name, svg] : json.at("pictures").items()) {
    found.insert(name);
    const XmlReader xml(svg.get<std::string>());
    EXPECT_EQ(xml.error, "") << name;
    EXPECT_EQ(xml.elements.at(0).name, "svg") << name;
    EXPECT_FALSE(xml.Texts("title").at(0).empty()) << name;
    EXPECT_EQ(svg.get<std::string>().find(" style="), std::string::npos) << "the page's policy refuses it";
  }
  EXPECT_EQ(found, names);
}

TEST(LiveFigures, AnEventHasFiguresAndPictures) {
  const Json first = Parsed(LiveEvent(page::SampleLive(100), LiveParts::kAll));
  ExpectPictures(first, {"parameters", "time", "recent", "bytes", "flops", "roofline", "memory", "experts"});
  EXPECT_EQ(first.at("model"), "gpt-oss-20b");
  EXPECT_EQ(first.at("parameters").at("total"), 20914757184u);
  EXPECT_EQ(first.at("step").at("bytes"), 2105000000u + 49152 * 141);  // weights as packed, KV read and written
  EXPECT_EQ(first.at("step").at("flops_by_class").at("linear"), 7216620288u);
  EXPECT_DOUBLE_EQ(first.at("token").at("bytes").get<double>(), 2105000000.0 + 49152 * 141);
  EXPECT_DOUBLE_EQ(first.at("roofs").at("read_seconds").get<double>(), (2105000000.0 + 49152 * 141) / 42e9);
  EXPECT_DOUBLE_EQ(first.at("roofs").at("flops_seconds").get<double>(),
                   7100000000 / 1.21e12 + (122537328 + 400000 * 140) / 250e9);

  const Json later = Parsed(LiveEvent(page::SampleLive(101), LiveParts::kChanging));
  ExpectPictures(later, {"parameters", "time", "recent", "bytes", "flops", "roofline", "memory"});
  EXPECT_NE(later.at("experts"), first.at("experts"));
}

TEST(LiveFigures, FiguresOfATokenAreMeansOfTheRows) {
  LiveFigures figures = page::SampleLive(3);
  const Json one = Parsed(LiveEvent(figures, LiveParts::kChanging));
  figures.step.rows = 4;
  const Json four = Parsed(LiveEvent(figures, LiveParts::kChanging));
  for (const char* name : {"seconds", "flops", "bytes"}) {
    EXPECT_DOUBLE_EQ(four.at("token").at(name).get<double>() * 4, one.at("token").at(name).get<double>()) << name;
    EXPECT_EQ(four.at("step").at(name), one.at("step").at(name)) << name;
  }
}

TEST(LiveFigures, RecentStepsAreDrawnInTheirOrder) {
  LiveFigures figures;
  figures.recent = {{4, 1, 0.05, 1000}};
  ExpectPictures(Parsed(LiveEvent(figures, LiveParts::kAll)), {});  // one is no line
  figures.recent = {{4, 1, 0.05, 1000}, {4, 1, 0.05, 1000}, {5, 0, 0.05, 0}, {3, 1, 1, 1}, {6, 2, 0.2, 1000}};
  const Json json = Parsed(LiveEvent(figures, LiveParts::kAll));
  ExpectPictures(json, {"recent"});
  EXPECT_NE(json.at("pictures").at("recent").get<std::string>().find("The last 2 steps."), std::string::npos);
}

TEST(LiveFigures, EachExpertHasALetter) {
  LiveFigures figures;
  figures.experts = {{0, {0, 1, 0}, {0, 10, 5}}, {2, {0, 0, 2}, {1, 0, 2}}};
  const Json json = Parsed(LiveEvent(figures, LiveParts::kAll));
  EXPECT_EQ(json.at("experts"), "aKfbaC");
  const XmlReader xml(json.at("pictures").at("experts").get<std::string>());
  EXPECT_EQ(std::count_if(xml.elements.begin(), xml.elements.end(), [](const XmlElement& e) { return e.name == "path"; }), 12)
      << "a path for each shade and for what is lit";
  EXPECT_TRUE(xml.elements[0].attributes.count("data-grid") && xml.elements[0].attributes.count("data-gap"));
}

TEST(LiveFigures, EventsStaySmall) {
  const LiveFigures large = page::SampleLive(200, 48, 256, 8);
  EXPECT_LT(LiveEvent(large, LiveParts::kAll).size(), 40'000u);
  EXPECT_LT(LiveEvent(large, LiveParts::kChanging).size(), 32'000u);
}

TEST(LiveFigures, WhatIsNotKnownIsNotShown) {
  const Json none = Parsed(LiveEvent({}, LiveParts::kAll));
  ExpectPictures(none, {});
  EXPECT_EQ(none.at("experts"), "");

  LiveFigures figures = page::SampleLive(3);
  figures.roofs = {};
  figures.experts = {};
  figures.parameters = figures.budget_bytes = figures.kv_bytes = 0;
  const Json some = Parsed(LiveEvent(figures, LiveParts::kAll));
  ExpectPictures(some, {"time", "recent", "bytes", "flops"});
  EXPECT_EQ(some.at("roofs").at("read_seconds"), 0);

  figures.roofs = {true, 2, 42e9, {{"f32", 250e9}}, ""};  // no peak of int8: the time of all arithmetic is not known
  EXPECT_EQ(Parsed(LiveEvent(figures, LiveParts::kAll)).at("roofs").at("flops_seconds"), 0);
}

TEST(LiveFigures, HostileNamesAreEscaped) {
  const std::string hostile = "</script><img src=x onerror=alert(1)>\n\ndata: \x01\xff\"'&";
  LiveFigures figures = page::SampleLive(3);
  figures.model = figures.step.flops_by_class[0].name = figures.step.flops_by_type[0].name = figures.roofs.peaks[0].type =
      hostile;
  const std::string event = LiveEvent(figures, LiveParts::kAll);
  const Json json = Parsed(event);
  ASSERT_TRUE(json.is_object());
  EXPECT_TRUE(json.at("model").get<std::string>().starts_with("</script><img src=x onerror=alert(1)>\n\ndata: \x01"));
  for (const auto& [name, svg] : json.at("pictures").items()) {
    EXPECT_EQ(XmlReader(svg.get<std::string>()).error, "") << name;
    EXPECT_EQ(svg.get<std::string>().find("<img"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace tally
