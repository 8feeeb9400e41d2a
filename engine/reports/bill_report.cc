// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/bill_report.h"

#include <string>
#include <vector>

#include "engine/reports/values.h"

namespace tally {
namespace {

Value WorkJson(const BillWork& work) {
  return {{"rows", work.rows},
          {"logit_rows", work.logit_rows},
          {"rows_again", work.rows_again},
          {"rows_in_vain", work.rows_in_vain},
          {"flops", work.useful.TotalFlops()},
          {"special", work.useful.TotalSpecial()},
          {"bytes", BytesJson(work.useful)},
          {"flops_by_class", FlopsByClass(work.useful)}};
}

}  // namespace

Value BillDocument(std::span<const std::shared_ptr<Request>> choices, const books::ParameterCounts& parameters,
                   std::span<const WeightInfo> weights) {
  int64_t prompt_tokens = 0, decode_tokens = 0, decode_steps = 0, forced_tokens = 0, preemptions = 0;
  uint64_t kv_bytes = 0;
  double prompt_seconds = 0, first_token_seconds = 0, generate_seconds = 0;
  Bill bill;
  for (const std::shared_ptr<Request>& choice : choices) {
    const GenerateResult& r = choice->result();
    prompt_tokens += r.prompt_tokens;
    decode_tokens += r.decode_tokens;
    decode_steps += r.decode_steps;
    forced_tokens += r.forced;
    preemptions += choice->preemptions();
    prompt_seconds += r.prompt_seconds;
    generate_seconds += r.generate_seconds;
    bill += r.bill;
    kv_bytes += choice->held_bytes();
    if (r.first_token_seconds > 0 && (first_token_seconds == 0 || r.first_token_seconds < first_token_seconds)) {
      first_token_seconds = r.first_token_seconds;
    }
  }
  Value json = {{"prompt_tokens", prompt_tokens},
                {"decode_tokens", decode_tokens},
                {"decode_steps", decode_steps},
                {"preemptions", preemptions},
                {"prompt_seconds", prompt_seconds},
                {"first_token_seconds", first_token_seconds},
                {"generate_seconds", generate_seconds},
                {"prefill", WorkJson(bill.at(Phase::kPrefill))},
                {"decode", WorkJson(bill.at(Phase::kDecode))},
                {"parameters_touched", bill.parameters_touched()},
                {"parameters_active", parameters.active_all},
                {"kv_bytes", kv_bytes}};
  if (forced_tokens > 0) json["forced_tokens"] = forced_tokens;
  if (const DraftWork& drafts = bill.drafts; drafts.rows > 0) {
    json["drafts"] = {{"rows", drafts.rows},
                      {"accepted", drafts.accepted},
                      {"not_accepted", drafts.rejected},
                      {"not_accepted_flops", drafts.in_vain.TotalFlops()},
                      {"not_accepted_bytes", BytesJson(drafts.in_vain)}};
    if (drafts.predicting != Cost()) {
      json["drafts"]["predicting_flops"] = drafts.predicting.TotalFlops();
      json["drafts"]["predicting_bytes"] = BytesJson(drafts.predicting);
    }
  }
  for (size_t id = 0; id < weights.size(); ++id) {
    const WeightInfo& w = weights[id];
    if (!w.experts || w.component != Component::kFfnDown || w.rows == 1) continue;
    json["experts_touched"][std::to_string(w.layer)] = bill.touched.touched(static_cast<WeightId>(id)) / (w.rows * w.cols);
  }
  return json;
}

}  // namespace tally
