// tally audit: runs a model and holds its ledger against closed form and checkpoint.
#include "engine/api/audit.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/page_report.h"
#include "engine/app/table.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

using books::AuditRow;
using books::WithThousands;

struct Flags {
  ModelFlags model;
  std::optional<std::string> prompt, tokens;
  int64_t decode = 8;
  bool json = false, mmu = false;
};

constexpr size_t kShownDifferences = 40;
constexpr const char* kDefaultPrompt = "O Romeo, Romeo! wherefore art thou Romeo?";

std::string Figure(const std::optional<uint64_t>& n) { return n.has_value() ? WithThousands(*n) : ""; }

bool ByClass(books::AuditAccount account) {
  return account == books::AuditAccount::kFlops || account == books::AuditAccount::kSpecial;
}

// The rows of all steps, added up over steps and layers.
struct Sum {
  uint64_t rows = 0, differing = 0, closed = 0;
  std::optional<uint64_t> inventory, ledger;
};
using SumKey = std::tuple<books::AuditAccount, Component, WorkClass>;

void AddRows(std::span<const AuditRow> rows, std::map<SumKey, Sum>& sums) {
  for (const AuditRow& r : rows) {
    Sum& s = sums[{r.account, r.component, r.work_class}];
    ++s.rows;
    s.differing += r.agrees() ? 0 : 1;
    s.closed += r.closed;
    if (r.inventory) s.inventory = s.inventory.value_or(0) + *r.inventory;
    if (r.ledger) s.ledger = s.ledger.value_or(0) + *r.ledger;
  }
}

Table SumTable(const char* title, const std::map<SumKey, Sum>& sums) {
  Table t{title, {"", "site", "class", "rows", "closed form", "files", "run", ""}, {}, {true, true, true}};
  for (const auto& [key, s] : sums) {
    const auto& [account, component, work_class] = key;
    if (s.closed == 0 && s.differing == 0) continue;
    const bool whole = account == books::AuditAccount::kTouchedSet;
    t.rows.push_back({std::string(AccountName(account)), whole ? "" : std::string(ComponentName(component)),
                      ByClass(account) ? std::string(kWorkClassNames[static_cast<size_t>(work_class)]) : "",
                      WithThousands(s.rows), WithThousands(s.closed), Figure(s.inventory), Figure(s.ledger),
                      s.differing == 0 ? "" : WithThousands(s.differing) + " differ"});
  }
  return t;
}

std::string StepName(const AuditReport::Step& step) {
  return std::string(step.phase == Phase::kPrefill ? "prefill" : "decode") + " of " + std::to_string(step.rows) + " up to " +
         std::to_string(step.context);
}

Table DifferenceTable(const AuditReport& report) {
  Table t{"rows that differ",
          {"step", "", "layer", "site", "class", "closed form", "files", "run", "formula"},
          {},
          {true, true, false, true, true, false, false, false, true}};
  auto add = [&](const std::string& step, std::span<const AuditRow> rows) {
    for (const AuditRow& r : rows) {
      if (r.agrees() || t.rows.size() >= kShownDifferences) continue;
      t.rows.push_back({step, std::string(AccountName(r.account)), std::to_string(r.layer),
                        r.tensor.empty() ? std::string(ComponentName(r.component)) : r.tensor,
                        ByClass(r.account) ? std::string(kWorkClassNames[static_cast<size_t>(r.work_class)]) : "",
                        WithThousands(r.closed), Figure(r.inventory), Figure(r.ledger), r.form});
    }
  };
  add("stored", report.stored);
  for (const AuditReport::Step& step : report.steps) add(StepName(step), step.audit);
  return t;
}

struct Balance {
  uint64_t least = 0, most = 0;
  double deviation = 0;
};
Balance BalanceOf(const std::vector<uint64_t>& tokens) {
  const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
  const double n = static_cast<double>(tokens.size());
  const double mean = static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), uint64_t{0})) / n;
  double squares = 0;
  for (const uint64_t x : tokens) squares += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean);
  return {*least, *most, std::sqrt(squares / n)};
}

Table ExpertTable(const AuditReport& report) {
  Table t{"tokens of each expert, layer by layer",
          {"layer", "least", "most", "deviation", "chosen in the run", "tokens"},
          {},
          {false, false, false, false, false, true}};
  for (const AuditReport::Experts& e : report.experts) {
    const Balance b = BalanceOf(e.tokens);
    std::string tokens;
    for (const uint64_t n : e.tokens) tokens += (tokens.empty() ? "" : " ") + std::to_string(n);
    t.rows.push_back({std::to_string(e.layer), WithThousands(b.least), WithThousands(b.most), Fixed(b.deviation, 2),
                      std::to_string(e.run_union) + " of " + std::to_string(e.tokens.size()), tokens});
  }
  return t;
}

// The experts that each step's rows chose between them, mean over the sparse layers, beside what is expected and what is possible.
Table UnionTable(const AuditReport& report, const Recipe& recipe) {
  Table t{"experts read by a step, mean of the sparse layers",
          {"step", "measured", "uniform", "at most", "bytes", "uniform", "at most"},
          {},
          {true}};
  const double X = recipe.n_experts, k = recipe.top_k, layers = static_cast<double>(report.experts.size());
  double slice = 0;  // bytes of one expert in every layer
  for (const AuditReport::Experts& e : report.experts) slice += static_cast<double>(e.slice_bytes);
  auto row = [&](const std::string& name, double measured, double bytes, double rows) {
    const double uniform = books::UniformExperts(X, k, rows), most = std::min(rows * k, X);
    t.rows.push_back({name, Fixed(measured, 2), Fixed(uniform, 2), Fixed(most, 0), WithThousands(bytes),
                      WithThousands(uniform * slice), WithThousands(most * slice)});
  };
  uint64_t all_rows = 0;
  for (size_t i = 0, n = 0; i < report.steps.size(); i += n) {  // decode steps, which all have one row, together
    for (n = 1; report.steps[i].phase == Phase::kDecode && i + n < report.steps.size();) ++n;
    double sum = 0, bytes = 0;
    for (size_t j = i; j < i + n; ++j) {
      for (const AuditReport::Experts& e : report.experts) {
        sum += static_cast<double>(e.step_union[j]);
        bytes += static_cast<double>(e.step_union[j] * e.slice_bytes);
      }
      all_rows += report.steps[j].rows;
    }
    const double mean = static_cast<double>(n);
    row(n > 1 ? "mean of " + std::to_string(n) + " decode steps" : StepName(report.steps[i]), sum / layers / mean, bytes / mean,
        static_cast<double>(report.steps[i].rows));
  }
  double sum = 0, bytes = 0;
  for (const AuditReport::Experts& e : report.experts) {
    sum += static_cast<double>(e.run_union);
    bytes += static_cast<double>(e.run_union * e.slice_bytes);
  }
  row("the run", sum / layers, bytes, static_cast<double>(all_rows));
  return t;
}

Json RowJson(const AuditRow& r) {
  Json row = {{"account", AccountName(r.account)}, {"layer", r.layer}, {"component", ComponentName(r.component)}};
  if (ByClass(r.account)) row["class"] = kWorkClassNames[static_cast<size_t>(r.work_class)];
  if (!r.tensor.empty()) row["tensor"] = r.tensor;
  row["form"] = r.form;
  row["closed"] = r.closed;
  if (r.inventory) row["files"] = *r.inventory;
  if (r.ledger) row["run"] = *r.ledger;
  row["agrees"] = r.agrees();
  return row;
}

Json RowsJson(std::span<const AuditRow> rows) {
  Json all = Json::array();
  for (const AuditRow& r : rows) all.push_back(RowJson(r));
  return all;
}

Json Document(const Flags& flags, const AuditReport& report) {
  Json steps = Json::array(), experts = Json::array();
  for (const AuditReport::Step& s : report.steps) {
    steps.push_back({{"phase", s.phase == Phase::kPrefill ? "prefill" : "decode"},
                     {"rows", s.rows},
                     {"context", s.context},
                     {"audit", RowsJson(s.audit)}});
    if (report.page_bytes > 0) steps.back()["pages"] = PagesJson(s);
  }
  for (const AuditReport::Experts& e : report.experts) {
    experts.push_back({{"layer", e.layer},
                       {"tokens", e.tokens},
                       {"expert_bytes", e.slice_bytes},
                       {"step_union", e.step_union},
                       {"run_union", e.run_union}});
  }
  Json all = {{"model", flags.model.model},          {"compared", report.compared},       {"differing", report.differing},
              {"head_is_copy", report.head_is_copy}, {"stored", RowsJson(report.stored)}, {"steps", std::move(steps)},
              {"experts", std::move(experts)}};
  if (report.page_bytes > 0) all["page_bytes"] = report.page_bytes;
  return all;
}

Result<std::vector<int32_t>> PromptTokens(const Flags& flags, const Loaded& loaded) {
  if (flags.tokens) return ParseTokens(*flags.tokens, "--tokens");
  const Tokenizer* tokenizer = loaded.model->tokenizer();
  if (tokenizer == nullptr) {
    if (flags.prompt) return BadInput(flags.model.model + ": the model has no tokenizer: give --tokens 1,2,3");
    std::vector<int32_t> tokens;  // any will do
    for (int32_t i = 0; i < 12; ++i) tokens.push_back((7 * i + 1) % loaded.model->recipe().vocab);
    return tokens;
  }
  TALLY_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                         tokenizer->Encode(flags.prompt.value_or(kDefaultPrompt), {.add_special = true}));
  if (tokens.empty()) return BadInput("the prompt has no tokens: at least one is needed to begin");
  return tokens;
}

Status Run(const Flags& flags) {
  if (flags.prompt && flags.tokens) return BadInput("give the prompt once: -p TEXT or --tokens 1,2,3");
  if (flags.decode < 0) return BadInput("-n must be 0 or more, not " + std::to_string(flags.decode));
  AuditOptions options;
  options.decode_tokens = flags.decode;
  TALLY_ASSIGN_OR_RETURN(options.load, ToLoadOptions(flags.model));
  options.mmu = options.load.guard_slices = flags.mmu;
  TALLY_ASSIGN_OR_RETURN(options.path, ModelPath(flags.model.model));
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, Load(flags.model.model, options.load));
  TALLY_ASSIGN_OR_RETURN(options.prompt, PromptTokens(flags, loaded));
  TALLY_ASSIGN_OR_RETURN(const AuditReport report, Audit(*loaded.engine, options));

  if (flags.json) {
    PrintJson(Document(flags, report));
  } else {
    std::map<SumKey, Sum> stored, run;
    AddRows(report.stored, stored);
    for (const AuditReport::Step& step : report.steps) AddRows(step.audit, run);
    Print(Printable(loaded.model->Description()) + "\n\n");
    Print(Render(SumTable("stored", stored), TableFormat::kText) + "\n");
    Print(Render(SumTable(("run, " + std::to_string(report.steps.size()) + " steps").c_str(), run), TableFormat::kText) + "\n");
    if (!report.experts.empty()) {
      Print(Render(UnionTable(report, loaded.model->recipe()), TableFormat::kText) + "\n");
      Print(Render(ExpertTable(report), TableFormat::kText) + "\n");
    }
    if (report.head_is_copy) {
      const ParameterCounts& n = loaded.model->parameters();
      const Recipe& r = loaded.model->recipe();
      const uint64_t copy = static_cast<uint64_t>(r.vocab) * static_cast<uint64_t>(r.d_model);
      Print("the head is a copy of the embedding, byte for byte: " + WithThousands(n.total) + " parameters as stored, " +
            WithThousands(n.total - copy) + " with both as one\n\n");
    }
    if (report.page_bytes > 0) {
      Print(Render(PageStepTable(report), TableFormat::kText) + "\n");
      Print(Render(PageSiteTable(report), TableFormat::kText) + "\n");
      if (const Table findings = PageFindingTable(report); !findings.rows.empty()) {
        Print(Render(findings, TableFormat::kText) + "\n");
      }
    }
    if (const Table rows = DifferenceTable(report); !rows.rows.empty()) Print(Render(rows, TableFormat::kText) + "\n");
    Print(WithThousands(report.compared) + " rows compared, " +
          (report.differing == 0 ? std::string("all agree") : WithThousands(report.differing) + " differ") + "\n");
  }
  if (report.differing == 0) return {};
  return Status(StatusCode::kDisagreement, flags.model.model + ": " + std::to_string(report.differing) + " of " +
                                               std::to_string(report.compared) + " rows of the accounts differ");
}

}  // namespace

Action AddAudit(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand(
      "audit", "Run a model and compare what its kernels were charged with closed form and checkpoint, to the integer");
  AddModelFlags(*c, flags->model);
  c->add_option("-p,--prompt", flags->prompt, "prompt text (default: a line of verse)")->allow_extra_args(false);
  c->add_option("--tokens", flags->tokens, "prompt as token ids: 1,2,3")->allow_extra_args(false);
  AddNumber(*c, "-n,--decode", flags->decode, "tokens to decode after the prompt");
  c->add_flag("--mmu", flags->mmu, "the pages of the weights too: those touched, by page faults, must be those charged (slower)");
  c->add_flag("--json", flags->json, "one JSON document on standard output, every row of every step in it");
  c->footer("Exit code 3: the accounts differ; the rows and pages that do are printed.");
  return [flags] { return Report(Run(*flags)); };
}

}  // namespace tally::app
