// SPDX-License-Identifier: Apache-2.0
#include "engine/report/page.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/report/sample_run.h"
#include "tests/support/xml.h"

namespace tally::report {
namespace {

std::string Page(const ReportData& run) { return RenderPage({&run, 1}); }

size_t Count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

// The page's elements but for head and script, which are HTML that XML does not know; `&` and `<` have to be escaped in both.
XmlReader Body(const std::string& page) {
  const size_t from = page.find("<header>"), to = page.find("<script>");
  std::string body = "<body>" + page.substr(from, to - from) + "</body>";
  return XmlReader(body);
}

TEST(Page, HasTheVerdictFirstAndAllParts) {
  const std::string page = Page(SampleMoe());
  const XmlReader body = Body(page);
  ASSERT_EQ(body.error, "");
  const size_t verdict = page.find("12,758 rows compared, all agree");
  ASSERT_NE(verdict, std::string::npos);
  EXPECT_LT(verdict, page.find("<dl "));
  EXPECT_LT(page.find("8.84 tokens/s"), page.find("<main>"));
  for (const char* id : {"parameters", "flops", "bytes", "depth", "bandwidth", "experts", "union", "roofline", "time"}) {
    EXPECT_EQ(Count(page, "<figure id=\"" + std::string(id) + "\">"), 1u) << id;
  }
  for (const char* text : {"S-MBU", "dense MBU", "(union of weights + KV) / time / roof", "42.0 GB/s, measured with 2 threads", "X (3 E F + 2 F + E)",
                           "796,538,880", "20,914,757,184", "roof 42.0 GB/s", "int8 1.21 TFLOP/s", "linear bf16"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
}

TEST(Page, EveryPictureHasItsTitleDescriptionAndTable) {
  const std::string page = Page(SampleMoe());
  const size_t figures = Count(page, "<figure ");
  EXPECT_EQ(figures, 9u);
  EXPECT_EQ(Count(page, "<svg role=\"img\""), 2 * figures);  // for wide and narrow windows
  EXPECT_EQ(Count(page, "<desc>"), 2 * figures);
  EXPECT_EQ(Count(page, "<details>"), figures);
  const std::vector<std::string> captions = Body(page).Texts("figcaption");
  EXPECT_EQ(captions.size(), figures);
  for (const std::string& caption : captions) EXPECT_GT(caption.size(), 20u);
  std::set<std::string> ids;
  for (const XmlElement& e : Body(page).elements) {
    if (!e.attributes.contains("id")) continue;
    EXPECT_TRUE(ids.insert(e.attributes.at("id")).second) << e.attributes.at("id");
  }
}

TEST(Page, TablesHaveTheData) {
  const ReportData run = SampleMoe();
  const std::string page = Page(run);
  for (const LayerExperts& layer : run.experts) {
    std::string cells = "<th scope=\"row\" class=\"n\">" + std::to_string(layer.layer) + "</th>";
    for (const uint64_t tokens : layer.tokens) cells += "<td class=\"n\">" + std::to_string(tokens) + "</td>";
    EXPECT_NE(page.find(cells), std::string::npos) << layer.layer;
  }
  EXPECT_NE(page.find("<td class=\"n\">3,714,842,496</td><td class=\"n\">491,520</td>"), std::string::npos);  // depth 9
}

TEST(Page, AsksForNothing) {
  const std::string page = Page(SampleMoe());
  for (const char* text : {"http:", "https:", "src=", "@import", "url("}) {
    size_t allowed = 0;
    if (std::string(text) == "http:") allowed = Count(page, "\"http://www.w3.org/2000/svg\"");  // a name, in the script
    EXPECT_EQ(Count(page, text), allowed) << text;
  }
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(Page, HostileNamesAreText) {
  const std::string hostile = "</title></style></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&";
  ReportData run = SampleMoe(3);
  run.model = run.run = hostile;
  run.facts = {hostile};
  run.headlines = {{hostile, hostile, hostile}};
  run.symbols = {hostile};
  for (ModelPart& part : run.parts) part.name = hostile;
  for (CountedParameters& c : run.conventions) c.name = c.meaning = hostile;
  for (std::string& c : run.components) c = hostile;
  for (Metric& m : run.metrics) m.name = m.meaning = m.formula = m.denominator = hostile;
  for (OpClass& c : run.op_classes) c.name = hostile;
  for (OpRow& o : run.ops) o.component = o.op = o.phase = o.implementation = o.layers = hostile;
  for (ClosedForm& f : run.closed_forms) f.name = f.expression = hostile;
  for (MachineRoofs::Peak& p : run.roofs.peaks) p.name = hostile;
  run.roofs.how = hostile;
  run.audit = AuditVerdict{2, 1, {{hostile, hostile, hostile, hostile, hostile}}};
  const std::vector<ReportData> runs = {run, run};
  for (const std::string& page : {Page(run), RenderPage(runs)}) {
    EXPECT_EQ(Body(page).error, "");
    EXPECT_EQ(Count(page, "<script>"), 1u);
    EXPECT_EQ(Count(page, "</script>"), 1u);
    EXPECT_EQ(Count(page, "</style>"), 1u);
    EXPECT_EQ(Count(page, "<img"), 0u);
  }
  for (const NamedSvg& figure : RenderFigures(run)) EXPECT_EQ(XmlReader(figure.svg).error, "") << figure.name;
}

TEST(Page, ADifferingAuditSaysWhichRows) {
  ReportData run = SampleDense();
  run.audit = AuditVerdict{10, 1, {{"FLOPs", "ffn.down", "1,000", "", "1,001"}}};
  const std::string page = Page(run);
  EXPECT_NE(page.find("<p class=\"verdict bad\">1 of 10 rows differ</p>"), std::string::npos);
  EXPECT_NE(page.find("<td>1,001</td>"), std::string::npos);
}

TEST(Page, ComparesRuns) {
  const std::vector<ReportData> runs = {SampleMoe(), SampleDense()};
  const std::string page = RenderPage(runs);
  EXPECT_EQ(Body(page).error, "");
  EXPECT_EQ(Count(page, "<figure id=\"parameters\">") + Count(page, "<figure id=\"parameters-2\">"), 2u);
  EXPECT_EQ(Count(page, "<figure id=\"experts-2\">"), 0u);
  EXPECT_NE(page.find("Not in this run."), std::string::npos);
  EXPECT_NE(page.find("Differences of demo.jsonl from gpt-oss-20b.jsonl"), std::string::npos);
  EXPECT_NE(page.find("<th scope=\"row\">HFU</th><td class=\"n\" data-v=\"0.043\">4.30 %</td><td class=\"n\" data-v=\"0.031\">3.10 %</td>"), std::string::npos);
}

TEST(Page, IsTheSameEachTimeAndSmall) {
  const std::string page = Page(SampleMoe());
  EXPECT_EQ(page, Page(SampleMoe()));
  EXPECT_LT(page.size(), 800'000u);
  EXPECT_LT(Page(SampleMoe(20000)).size(), 2 * page.size());  // many steps are drawn together
}

TEST(Page, ARunThatKnowsNothingIsAPage) {
  EXPECT_EQ(Body(Page({})).error, "");
  EXPECT_TRUE(RenderFigures({}).empty());
  EXPECT_EQ(Body(RenderPage({})).error, "");
}

TEST(Page, FiguresStandAlone) {
  std::set<std::string> names;
  for (const NamedSvg& figure : RenderFigures(SampleMoe())) {
    const XmlReader xml(figure.svg);
    EXPECT_EQ(xml.error, "") << figure.name;
    EXPECT_EQ(xml.elements[0].attributes.count("xmlns"), 1u);
    EXPECT_TRUE(names.insert(figure.name).second);
    EXPECT_EQ(figure.svg.find("var("), std::string::npos);
  }
  EXPECT_EQ(names.size(), 9u);
}

}  // namespace
}  // namespace tally::report
