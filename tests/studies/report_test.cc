// SPDX-License-Identifier: Apache-2.0
// A report's figures are the engine's own, whether they come from its records or from a ledger file.
#include "engine/studies/report.h"
#include "engine/recipe/recipe.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/page/page.h"
#include "engine/studies/report_metrics.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

const std::string kSparse = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gptoss/gptoss-a-top4of8-realyarn";

// A run of a small mixture of experts: its report, and the lines of its ledger.
struct Recorded {
  Opened opened;
  ReportData data;
  std::string lines;
};

Recorded Record() {
  Recorded r{Open(kSparse, SmallOptions()), {}, {}};
  if (r.opened.engine == nullptr) return r;
  Engine& engine = *r.opened.engine;
  RunInfo info = DescribeRun(engine, "run", "small", "0");
  info.roofs = {true, 2, 40e9, {{"f32", 2e11}, {"int8", 2e12}}, "made up"};
  RunReport report(info);
  engine.probe().SetRecorder([&](const OpRecord& record) {
    report.Add(record);
    r.lines += LedgerLine(record, engine.ledger().weights(), r.lines.empty() ? &info : nullptr) + "\n";
  });
  engine.ledger().Reset();
  const std::vector<int32_t> prompt = {1, 2, 3, 2, 1};
  const auto result = Generate(engine, prompt, {.max_tokens = 7, .sampling = {.temperature = 0}, .ignore_eos = true});
  EXPECT_TRUE(result.ok()) << result.status().message();
  engine.probe().SetRecorder(nullptr);
  r.data = report.Finish("here");
  return r;
}

uint64_t Sum(const std::vector<uint64_t>& values) {
  uint64_t sum = 0;
  for (const uint64_t v : values) sum += v;
  return sum;
}

void Add(const ReportWork& work, ReportWork& sum) {
  sum.flops += work.flops;
  sum.special += work.special;
  sum.executed_flops += work.executed_flops;
  sum.executed_special += work.executed_special;
  sum.ns += work.ns;
  sum.bytes.resize(work.bytes.size());
  for (size_t k = 0; k < work.bytes.size(); ++k) sum.bytes[k] += work.bytes[k];
}

TEST(Report, FiguresAreTheLedgersOwn) {
  const Recorded r = Record();
  ASSERT_NE(r.opened.engine, nullptr);
  Ledger& ledger = r.opened.engine->ledger();
  ASSERT_EQ(r.data.phases.size(), 2u);
  for (const ReportPhase& phase : r.data.phases) {
    SCOPED_TRACE(phase.name);
    const Phase p = phase.name == "decode" ? Phase::kDecode : Phase::kPrefill;
    const Account account = ledger.total(p);
    EXPECT_EQ(phase.steps, ledger.steps(p));
    EXPECT_EQ(phase.rows, ledger.rows(p));
    ReportWork steps, components, rows, classes;
    for (const ReportStep& step : r.data.steps) {
      if (step.phase != phase.name) continue;
      Add(step.all, steps);
      for (const ReportWork& work : step.by_component) Add(work, components);
      EXPECT_EQ(Sum(step.flops_by_class), step.all.flops);
      EXPECT_EQ(Sum(step.executed_flops_by_class), step.all.executed_flops);
      EXPECT_EQ(Sum(step.ns_by_op), step.all.ns);
    }
    for (const ReportRow& row : r.data.rows) {
      if (row.phase == phase.name) Add(row.work, rows);
    }
    for (const ReportOpClass& c : r.data.op_classes) {
      if (c.phase == phase.name) Add(c.work, classes);
    }
    for (const ReportWork& work : {phase.all, steps, components, rows, classes}) {
      EXPECT_EQ(work.flops, account.useful.TotalFlops());
      EXPECT_EQ(work.special, account.useful.TotalSpecial());
      EXPECT_EQ(work.executed_flops, account.executed.TotalFlops());
      for (int k = 0; k < kByteKinds; ++k) EXPECT_EQ(work.bytes[k], account.useful.Bytes(static_cast<ByteKind>(k)));
      EXPECT_EQ(work.ns, phase.all.ns);
    }
  }
}

// What lies between ops, the recorder's work among it, is in no figure.
TEST(Report, GapsBetweenOpsChangeNothing) {
  const SequenceRows rows = {0, 0, 1};
  Cost cost;
  cost.AddFlops(WorkClass::kLinear, 2'000'000, Arith::kF32);
  cost.AddBytes(ByteKind::kKvRead, 1'000'000);
  const OpDescription description;
  const auto with_gap = [&](uint64_t gap) {
    RunInfo info;
    info.roofs = {true, 1, 40e9, {{"f32", 2e11}}, "made up"};
    RunReport report(info);
    for (uint64_t i = 0; i < 2; ++i) {
      report.Add({.phase = Phase::kDecode,
                  .sequences = {&rows, 1},
                  .op = "attention",
                  .description = description,
                  .useful = cost,
                  .executed = cost,
                  .start_nanoseconds = i * (50'000 + gap),
                  .nanoseconds = 50'000});
    }
    return report.Finish("made up");
  };
  const ReportData data = with_gap(0);
  ASSERT_FALSE(data.metrics.empty());
  EXPECT_DOUBLE_EQ(data.metrics[0].value.value_or(0), 0.5);  // 2,000,000 bytes / 100 us / 40 GB/s
  const ReportData gaps = with_gap(900'000'000);
  EXPECT_TRUE(gaps == data);
  EXPECT_EQ(RenderPage({&gaps, 1}), RenderPage({&data, 1}));
}

TEST(Report, ParametersAgreeThreeWays) {
  const Recorded r = Record();
  ASSERT_NE(r.opened.engine, nullptr);
  const Ledger& ledger = r.opened.engine->ledger();
  ReportParameters parts{};
  for (const ReportComponent& c : r.data.components) {
    for (size_t k = 0; k < kReportConventions; ++k) parts[k] += c.parameters[k];
  }
  EXPECT_EQ(parts, r.data.parameters);
  for (const ParameterCounts& n : {r.opened.model->parameters(), books::ClosedFormCounts(r.opened.model->recipe())}) {
    EXPECT_EQ(parts[0], n.total);
    EXPECT_EQ(parts[1], n.active_all);
    EXPECT_EQ(parts[2], n.active_head);
    EXPECT_EQ(parts[3], n.active_none);
  }
  EXPECT_EQ(parts[4], ledger.parameters_touched(Phase::kDecode));
  EXPECT_EQ(parts[5], ledger.touched().parameters_ever());
  uint64_t forms = 0;
  for (const ReportForm& f : r.data.forms) forms += f.group == "parameters" ? f.value * f.times : 0;
  EXPECT_EQ(forms, parts[0]);
}

TEST(Report, ExpertsAndTheirUnions) {
  const Recorded r = Record();
  ASSERT_EQ(r.data.experts.size(), static_cast<size_t>(r.opened.model->recipe().n_layers));
  for (const ReportExperts& e : r.data.experts) {
    EXPECT_EQ(e.experts, 8u);
    EXPECT_EQ(e.top_k, 4u);
    EXPECT_EQ(Sum(e.tokens), 4u * (5 + 6));
    ASSERT_EQ(e.unions.size(), 7u);
    EXPECT_DOUBLE_EQ(e.unions[0].expected, 8 * (1 - 1.0 / 32));  // 5 rows, each without an expert in half of the cases
    EXPECT_DOUBLE_EQ(e.unions[1].expected, 4);
    EXPECT_EQ(e.unions[1].used, 4u);
    EXPECT_GE(e.unions[0].used, 4u);
    EXPECT_GE(e.run_union, e.unions[0].used);
  }
}

TEST(Report, OfALedgerFileIsTheSame) {
  Recorded r = Record();
  const TempFolder dir;
  const std::string path = dir.Write("run.jsonl", r.lines);
  Result<RunReport> read = ReadLedger(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->Finish("here") == r.data);
  // The beginning of a line, as a run that was killed leaves it, is no part.
  read = ReadLedger(dir.Write("cut.jsonl", r.lines.substr(0, r.lines.size() - 9)));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->Finish("here").steps.size(), r.data.steps.size());
  // Without the first line's "run": what is there, and a sentence on what is not.
  const size_t run = r.lines.find(",\"run\":{"), end = r.lines.find('\n');
  read = ReadLedger(dir.Write("old.jsonl", r.lines.substr(0, run) + "}" + r.lines.substr(end)));
  ASSERT_TRUE(read.ok()) << read.status().message();
  const ReportData old = read->Finish("here");
  EXPECT_FALSE(old.has_parameters);
  EXPECT_EQ(old.absent.size(), 2u);
  EXPECT_EQ(old.phases[1].all, r.data.phases[1].all);
}

TEST(Report, BadLedgersAreRefusedByLine) {
  const Recorded r = Record();
  const TempFolder dir;
  const std::string first = r.lines.substr(0, r.lines.find('\n') + 1), second = r.lines.substr(first.size());
  const auto refused = [&](const std::string& text, const std::string& part) {
    const Result<RunReport> read = ReadLedger(dir.Write("bad.jsonl", text));
    ASSERT_FALSE(read.ok()) << part;
    EXPECT_EQ(read.status().code(), StatusCode::kBadInput);
    EXPECT_NE(read.status().message().find(part), std::string::npos) << read.status().message();
    EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
  };
  const auto changed = [&](const std::string& what, const std::string& to) {
    std::string text = first;
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return at == std::string::npos ? text : text.replace(at, what.size(), to);
  };
  refused("", "an empty file");
  refused("hello\n", "line 1: not a line of --ledger: not valid JSON");
  refused("[1]\n", "expected a JSON object");
  refused("{\"vocab_size\": 5}\n", "'version' is not");
  refused(changed("\"version\":2", "\"version\":1"), "a ledger of version 1");
  refused(changed("\"phase\":\"prefill\"", "\"phase\":\"verify\""), "'phase' is not a name that is known");
  refused(changed("\"position\":0", "\"position\":-1"), "'position' is not a whole number");
  refused(changed("\"experts\":false,\"shape\":[1,", "\"experts\":false,\"shape\":[99999999999,"),
          "'shape' is not [slices, rows, columns]");
  refused(changed("\"top_k\":4", "\"top_k\":9"), "'top_k' is not a whole number up to 8");
  refused(first + r.lines.substr(r.lines.rfind('\n', r.lines.size() - 2) + 1) + second, "line 3: not a line of --ledger: 'step'");
  refused(first + "{}\n", "line 2");
  const Result<RunReport> missing = ReadLedger(dir / "none.jsonl");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("No such file"), std::string::npos) << missing.status().message();
}

TEST(Report, MetricsByHand) {
  MetricInput in;
  in.phase = "decode";
  in.seconds = 0.5;
  in.moved = 10'000'000'000;
  in.dense = 40'000'000'000;
  in.palm_flops = 4.4e11;
  in.useful = {20'000'000'000, 0, 200'000'000'000, 0};    // 0.1 s of f32, 0.1 s of int8
  in.executed = {20'000'000'000, 0, 300'000'000'000, 0};  // 0.1 s and 0.15 s
  ReportRoofs roofs = {true, 2, 40e9, {{"f32", 2e11}, {"int8", 2e12}}, "made up"};
  const auto value = [&](const char* name) {
    for (const ReportMetric& m : Metrics(in, roofs)) {
      if (m.name == name) return m.value;
    }
    return std::optional<double>();
  };
  EXPECT_DOUBLE_EQ(value("S-MBU").value_or(0), 0.5);
  EXPECT_DOUBLE_EQ(value("MBU").value_or(0), 2);
  EXPECT_DOUBLE_EQ(value("S-MFU").value_or(0), 0.4);
  EXPECT_DOUBLE_EQ(value("MFU").value_or(0), 0.8);  // at 2.2e11 / 0.2 s
  EXPECT_DOUBLE_EQ(value("HFU").value_or(0), 0.5);
  EXPECT_EQ(MixName(in.useful), "int8 90.9 %, f32 9.1 %");
  roofs.peaks.pop_back();  // a part of the mix has no peak
  EXPECT_FALSE(value("HFU").has_value());
  roofs.known = false;
  EXPECT_FALSE(value("S-MBU").has_value());
}

// Tokens are the rows that stayed: not drafts that were taken back, nor rows of a layer for prediction, which runs beside steps.
TEST(Report, DraftsThatWereNotAcceptedAreNoTokens) {
  RunReport report({});
  Cost cost;
  cost.AddFlops(WorkClass::kLinear, 70'000'000, Arith::kF32);
  const OpDescription description;
  const auto add = [&](uint64_t step, int32_t layer, const SequenceRows& rows, Phase phase = Phase::kDecode) {
    report.Add({.step = step,
                .phase = phase,
                .sequences = {&rows, 1},
                .site = {layer, Component::kFfnGateUp},
                .op = "matmul",
                .description = description,
                .useful = cost,
                .executed = cost,
                .nanoseconds = 1000});
  };
  add(0, 0, {0, 0, 10}, Phase::kPrefill);
  add(1, 0, {0, 10, 5});  // two of four drafts are accepted
  add(2, 2, {0, 10, 3});  // of the layer for prediction, then of the model
  add(2, -1, {0, 13, 1});
  add(2, 0, {0, 13, 1});
  add(3, 0, {0, 14, 3});                   // both are accepted
  add(4, 0, {0, 15, 9}, Phase::kPrefill);  // another request's
  const ReportData data = report.Finish("made up");
  ASSERT_EQ(data.steps.size(), 5u);
  const uint64_t rows[] = {10, 5, 1, 3, 9}, taken_back[] = {0, 2, 0, 0, 0};
  for (size_t i = 0; i < data.steps.size(); ++i) {
    EXPECT_EQ(data.steps[i].rows, rows[i]) << i;
    EXPECT_EQ(data.steps[i].taken_back, taken_back[i]) << i;
  }
  const std::string page = RenderPage({&data, 1});
  EXPECT_NE(page.find("7 tokens, 5.00 µs in the ops"), std::string::npos);
  EXPECT_NE(page.find("50,000,000, mean of depths 14 to 17"), std::string::npos);

  const SequenceRows twice[] = {{1, 0, 5}, {1, 1, 1}};  // what no engine writes
  RunReport odd({});
  odd.Add({.phase = Phase::kDecode,
           .sequences = twice,
           .site = {0, Component::kFfnGateUp},
           .op = "matmul",
           .description = description,
           .useful = Cost(),
           .executed = Cost(),
           .nanoseconds = 1000});
  EXPECT_EQ(odd.Finish("made up").steps.at(0).taken_back, 0u);
}

// gpt-oss-20b's tensors, and ops on them as if it had run 64 steps.
TEST(Report, PageOfALargeModelIsSmall) {
  const Result<CountedModel> model = CountModel({.model = "gpt-oss-20b"});
  ASSERT_TRUE(model.ok()) << model.status().message();
  RunInfo info;
  info.known = true;
  info.n_experts = 32;
  info.top_k = 4;
  for (const books::ParameterForm& p : model->count.tensors) {
    WeightInfo w;
    w.name = p.full_name();
    w.layer = p.layer;
    w.component = p.component;
    w.kind = p.kind;
    w.slices = static_cast<uint32_t>(p.slices);
    w.experts = p.expert;
    w.rows = p.rows;
    w.cols = p.cols;
    info.weights.push_back(std::move(w));
  }
  RunReport report(info);
  Cost cost;
  cost.AddFlops(WorkClass::kLinear, 123'456'789, Arith::kInt8);
  for (int k = 0; k < kByteKinds; ++k) cost.AddBytes(static_cast<ByteKind>(k), 123'456'789);
  const OpDescription description;
  uint64_t clock = 0;
  for (uint64_t step = 0; step < 64; ++step) {
    const SequenceRows rows = {0, static_cast<int64_t>(step), 1};
    for (size_t id = 0; id < info.weights.size(); ++id) {
      const WeightInfo& w = info.weights[id];
      WeightTouches touches;
      for (uint32_t slice = 0; slice < w.slices; slice += w.experts ? 8 : 1) {
        touches.push_back({static_cast<WeightId>(id), slice, 0, static_cast<uint32_t>(w.rows), 1});
      }
      report.Add({.step = step,
                  .index = id,
                  .phase = step == 0 ? Phase::kPrefill : Phase::kDecode,
                  .sequences = {&rows, 1},
                  .site = {w.layer, w.component},
                  .op = w.rows > 1 ? "matmul" : "norm",
                  .implementation = "hwy",
                  .description = description,
                  .useful = cost,
                  .executed = cost,
                  .touches = touches,
                  .start_nanoseconds = clock,
                  .nanoseconds = 123'456});
      clock += 234'567;
    }
  }
  const ReportData data = report.Finish("made up");
  EXPECT_EQ(data.parameters[0], 20'914'757'184u);
  EXPECT_EQ(data.parameters[2], 3'608'307'264u);
  EXPECT_EQ(data.experts.size(), 24u);
  const std::string page = RenderPage({&data, 1});
  EXPECT_LT(page.size(), 2'000'000u);
  EXPECT_LT(page.find(kReportMark), 1024u);
}

}  // namespace
}  // namespace tally
