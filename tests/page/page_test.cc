// SPDX-License-Identifier: Apache-2.0
#include "engine/page/page.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/page/sample_run.h"
#include "tests/support/xml.h"

namespace tally::page {
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

constexpr const char* kFigures[] = {"parameters", "roofline", "flops", "bytes", "weights-and-kv",
                                    "bandwidth",  "experts",  "union", "time",  "speed"};

TEST(Page, HasTheVerdictFirstAndAllParts) {
  const std::string page = Page(SampleMoe());
  ASSERT_EQ(Body(page).error, "");
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_LT(page.find(kReportMark), 1024u);
  const size_t verdict = page.find("12,758 rows compared, all agree"), headlines = page.find("<dl ");
  ASSERT_NE(verdict, std::string::npos);
  EXPECT_LT(verdict, headlines);
  EXPECT_LT(page.find("<dt>active, head counted</dt><dd>17.25 %</dd><dd>3,608,307,264</dd>"), page.find("<main>"));
  for (const char* id : kFigures) EXPECT_EQ(Count(page, "<figure id=\"" + std::string(id) + "\">"), 1u) << id;
  for (const char* text : {"S-MBU", "arXiv 2412.07067", "78.27 %", "(weights read once a step + KV) / time / read bandwidth",
                           "X F E", "265,420,800", "20,914,757,184", "3,608,310,144", "roof 42.0 GB/s", "int8 1.21 TFLOP/s",
                           "gated_matmul", "V = 201,088 vocabulary", "AMD EPYC 9R14", "What is not here"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
}

TEST(Page, EveryPictureHasItsTitleDescriptionAndTable) {
  const std::string page = Page(SampleMoe());
  const size_t figures = Count(page, "<figure ");
  EXPECT_EQ(figures, std::size(kFigures));
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
  for (const ReportExperts& layer : run.experts) {
    std::string cells = "<th scope=\"row\" class=\"n\">" + std::to_string(layer.layer) + "</th>";
    for (const uint64_t tokens : layer.tokens) cells += "<td class=\"n\">" + std::to_string(tokens) + "</td>";
    EXPECT_NE(page.find(cells), std::string::npos) << layer.layer;
  }
  EXPECT_NE(page.find("<th scope=\"row\" class=\"n\">9</th><td class=\"n\">3,713,082,944</td><td class=\"n\">223,395</td>"),
            std::string::npos);  // depth
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
  run.title = run.description = run.source = run.version = run.date = run.machine = run.target = run.not_run_names = hostile;
  run.not_run = 1;
  run.facts = {{hostile, hostile}};
  run.absent = {hostile};
  run.symbols = {{hostile, hostile, 1}};
  run.roofs.how = hostile;
  for (ReportComponent& c : run.components) c.name = c.part = hostile;
  for (ReportMetric& m : run.metrics)
    m.name = m.phase = m.source = m.meaning = m.formula = m.with_numbers = m.denominator_name = hostile;
  for (ReportOpClass& c : run.op_classes) c.op = c.phase = c.peak_name = hostile;
  for (ReportRow& r : run.rows) r.component = r.op = r.phase = r.implementation = r.types = hostile;
  for (ReportForm& f : run.forms) f.group = f.name = f.formula = hostile;
  for (ReportRoofs::Peak& p : run.roofs.peaks) p.type = hostile;
  for (ReportSpeed& s : run.speed) s.work = s.kv = s.roof = hostile;
  run.audit = ReportAudit{2, 1, false, {{hostile, hostile, hostile, hostile, hostile, hostile, hostile}}};
  const std::vector<ReportData> runs = {run, run};
  for (const std::string& page : {Page(run), RenderPage(runs)}) {
    EXPECT_EQ(Body(page).error, "");
    EXPECT_EQ(Count(page, "<script>"), 1u);
    EXPECT_EQ(Count(page, "</script>"), 1u);
    EXPECT_EQ(Count(page, "</style>"), 1u);
    EXPECT_EQ(Count(page, "<img"), 0u);
  }
  for (const ReportFigure& figure : RenderFigures(run)) EXPECT_EQ(XmlReader(figure.svg).error, "") << figure.name;
}

TEST(Page, ADifferingAuditSaysWhichRows) {
  ReportData run = SampleDense();
  run.audit =
      ReportAudit{10, 1, false, {{"decode of 1 at depth 5", "FLOPs", "layer 0, ffn.down", "2 F E", "1,000", "", "1,001"}}};
  const std::string page = Page(run);
  EXPECT_NE(page.find("<p class=\"verdict bad\">1 of 10 rows compared differ</p>"), std::string::npos);
  EXPECT_NE(page.find("<td>1,001</td>"), std::string::npos);
}

TEST(Page, ComparesRuns) {
  const std::vector<ReportData> runs = {SampleMoe(), SampleDense()};
  const std::string page = RenderPage(runs);
  EXPECT_EQ(Body(page).error, "");
  EXPECT_EQ(Count(page, "<figure id=\"parameters\">") + Count(page, "<figure id=\"parameters-2\">"), 2u);
  EXPECT_EQ(Count(page, "<figure id=\"experts-2\">"), 0u);
  EXPECT_NE(page.find("Not in this run."), std::string::npos);
  EXPECT_NE(page.find("Differences of demo from gpt-oss-20b.gguf"), std::string::npos);
  EXPECT_NE(page.find("<th scope=\"row\">HFU of decode</th><td class=\"n\" data-v=\"0.06\">6.00 %</td><td class=\"n\" "
                      "data-v=\"0.031\">3.10 %</td>"),
            std::string::npos);
  EXPECT_NE(page.find("<th scope=\"row\">parameters</th><td class=\"n\">20,914,757,184</td><td class=\"n\">4,541,364</td>"),
            std::string::npos);
  // The same model twice: one scale, and names that tell them apart.
  const std::vector<ReportData> twice = {SampleMoe(), SampleMoe(3)};
  EXPECT_NE(RenderPage(twice).find("Differences of gpt-oss-20b.gguf (tally run) 2 from gpt-oss-20b.gguf (tally run) 1"),
            std::string::npos);
}

TEST(Page, PathsAreShortenedInTitles) {
  for (const auto& [name, shown] : {std::pair<const char*, const char*>{"/models/a/b.gguf", "b.gguf"},
                                    {"./model/", "model/"},
                                    {"Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"},
                                    {"/", "/"}}) {
    ReportData run;
    run.title = name;
    EXPECT_NE(Page(run).find("<h1>" + std::string(shown) + "</h1>"), std::string::npos) << name;
  }
}

TEST(Page, IsTheSameEachTimeAndSmall) {
  const std::string page = Page(SampleMoe());
  EXPECT_EQ(page, Page(SampleMoe()));
  EXPECT_LT(page.size(), 1'000'000u);
  EXPECT_LT(Page(SampleMoe(20000)).size(), 2 * page.size());  // many steps are drawn together
}

// Experts that were not in memory: a picture, a headline and the disk's bytes beside memory's, which other models do not have.
TEST(Page, OfAModelThatReadsExpertsFromDisk) {
  ReportData run = SampleMoe();
  EXPECT_EQ(Page(run).find("from disk"), std::string::npos);
  run.byte_kinds.emplace_back("weights from disk");
  for (ReportStep& step : run.steps) {
    step.span_ns = step.all.ns + 10'000'000;
    step.all.bytes.push_back(24 * 13'000'000);
    for (ReportWork& work : step.by_component) work.bytes.push_back(0);
    for (ReportExperts& layer : run.experts) layer.reads.push_back({step.number, 3, 1, step.number == 0 ? 1u : 0u});
  }
  for (ReportExperts& layer : run.experts) layer.slots = 12, layer.record_bytes = 13'000'000;
  const std::string page = Page(run);
  ASSERT_EQ(Body(page).error, "");
  EXPECT_EQ(Count(page, "<figure id=\"reads\">"), 1u);
  for (const char* text :
       {"<dt>experts in memory</dt><dd>75.00 %</dd><dd>of 19,200 that decode steps chose; 312 MB a token from disk</dd>",
        "Of 19,296 experts that the steps chose, 75.00 % were in memory; 4,824 were read from disk, 62.7 GB, 24 of "
        "them for the first time.",
        "3 steps each", "experts from disk, over the steps&#39; time with its waits: mean ", "bytes from disk, a token"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
}

TEST(Page, ARunThatKnowsNothingIsAPage) {
  EXPECT_EQ(Body(Page({})).error, "");
  EXPECT_TRUE(RenderFigures({}).empty());
  EXPECT_EQ(Body(RenderPage({})).error, "");
}

TEST(Page, FiguresStandAlone) {
  std::set<std::string> names;
  for (const ReportFigure& figure : RenderFigures(SampleMoe())) {
    const XmlReader xml(figure.svg);
    EXPECT_EQ(xml.error, "") << figure.name;
    EXPECT_EQ(xml.elements[0].attributes.count("xmlns"), 1u);
    EXPECT_TRUE(names.insert(figure.name).second);
    EXPECT_EQ(figure.svg.find("var("), std::string::npos);
  }
  EXPECT_EQ(names.size(), std::size(kFigures));
}

}  // namespace
}  // namespace tally::page
