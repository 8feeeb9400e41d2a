// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/ledger_report.h"

#include "engine/reports/values.h"

namespace tally {
namespace {

Value WorkOf(const Account& account) {
  return {{"flops", account.useful.TotalFlops()},
          {"executed_flops", account.executed.TotalFlops()},
          {"special", account.useful.TotalSpecial()},
          {"bytes", BytesJson(account.useful)},
          {"flops_by_class", FlopsByClass(account.useful)}};
}

Value CountsOf(const books::ParameterCounts& p) {
  return {{"total", p.total}, {"active_all", p.active_all}, {"active_head", p.active_head}, {"active_none", p.active_none}};
}

}  // namespace

Value LedgerDocument(const Ledger& ledger, const books::ParameterCounts& parameters) {
  Value phases = Value::Object(), sites = Value::Array();
  for (int i = 0; i < kPhases; ++i) {
    const Phase phase = static_cast<Phase>(i);
    Value of = {{"steps", ledger.steps(phase)}, {"rows", ledger.rows(phase)}, {"logit_rows", ledger.logit_rows(phase)}};
    of["parameters_touched"] =
        ledger.steps(phase) == 0
            ? Value(0)
            : Number(static_cast<double>(ledger.parameters_touched(phase)) / static_cast<double>(ledger.steps(phase)));
    of.Update(WorkOf(ledger.total(phase)));
    phases[kPhaseNames[static_cast<size_t>(i)]] = of;
    for (const auto& [site, account] : ledger.sites(phase)) {
      Value row = {{"phase", kPhaseNames[static_cast<size_t>(i)]},
                   {"layer", site.layer >= 0 ? Value(site.layer) : Value()},
                   {"component", ComponentName(site.component)},
                   {"ops", account.ops}};
      row.Update(WorkOf(account));
      sites.Add(row);
    }
  }
  Value document = {{"phases", phases}, {"sites", sites}, {"parameters", CountsOf(parameters)}};
  if (Value experts = ExpertsJson(ledger); !experts.IsNull()) document["experts"] = std::move(experts);
  if (Value layers = StreamedLayersJson(ledger); !layers.IsNull()) document["streamed_layers"] = std::move(layers);
  return document;
}

Value RunFiguresDocument(const books::RunFigures& f) {
  Value classes = Value::Object(), bytes = Value::Object();
  for (size_t c = 0; c < kWorkClassNames.size(); ++c) {
    if (f.work[c].useful > 0) classes[kWorkClassNames[c]] = Number(f.work[c].useful);
  }
  for (size_t k = 0; k < kByteKindNames.size(); ++k) bytes[kByteKindNames[k]] = Number(f.bytes_per_token[k]);
  return {{"prompt_tokens", f.prompt_tokens},
          {"generated_tokens", f.generated_tokens},
          {"prompt_seconds", f.prompt_seconds},
          {"generate_seconds", f.generate_seconds},
          {"prompt_tokens_per_second", f.prompt_tokens_per_second},
          {"decode_tokens_per_second", f.decode_tokens_per_second},
          {"threads", f.threads},
          {"target", f.target},
          {"decode_steps", f.decode_steps},
          {"decode_tokens", f.decode_tokens},
          {"flops_per_token", Number(f.all.useful)},
          {"executed_flops_per_token", Number(f.all.executed)},
          {"special_per_token", Number(f.all.special)},
          {"flops_per_token_by_class", classes},
          {"bytes_per_token", bytes},
          {"decode_gigabytes_per_second", f.decode_gigabytes_per_second},
          {"parameters", CountsOf(f.parameters)},
          {"touched_per_decode_step", Number(f.touched_per_decode_step)},
          {"touched_in_run", f.touched_in_run}};
}

}  // namespace tally
