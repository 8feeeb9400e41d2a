// SPDX-License-Identifier: Apache-2.0
// Every struct of the public headers with one member named and the others left to their defaults: no warning with -Wextra.
#include <tally/inventory.h>
#include <tally/record.h>
#include <tally/tally.h>

#define TALLY_DESIGNATED(type, member)             \
  do {                                             \
    [[maybe_unused]] const type one{.member = {}}; \
  } while (false)

int main() {
  TALLY_DESIGNATED(tally::DTypeInfo, name);
  TALLY_DESIGNATED(tally::ArithmeticPeaks, f32);
  TALLY_DESIGNATED(tally::ModelSizes, family);
  TALLY_DESIGNATED(tally::PartNotRun, name);
  TALLY_DESIGNATED(tally::EncodeOptions, add_special);
  TALLY_DESIGNATED(tally::BatchRow, token);
  TALLY_DESIGNATED(tally::ProbedWeights, stacks);
  TALLY_DESIGNATED(tally::PredictionPass, tokens);
  TALLY_DESIGNATED(tally::GenerateOptions, max_tokens);
  TALLY_DESIGNATED(tally::RequestOptions, max_tokens);
  TALLY_DESIGNATED(tally::RequestEvent, token);
  TALLY_DESIGNATED(tally::AnswerStart, thinking_begin);
  TALLY_DESIGNATED(tally::GrammarSpeedOptions, make);
  TALLY_DESIGNATED(tally::GrammarSpeed, compile_seconds);
  TALLY_DESIGNATED(tally::CallNotation, begin);
  TALLY_DESIGNATED(tally::CallSign, text);
  TALLY_DESIGNATED(tally::CallTool, name);
  TALLY_DESIGNATED(tally::CallGrammarOptions, most);
  TALLY_DESIGNATED(tally::AnswerChannels, message_begin);
  TALLY_DESIGNATED(tally::AnswerCalls, grammar);
  TALLY_DESIGNATED(tally::SchemaOptions, space);
  TALLY_DESIGNATED(tally::SchemaKeyword, name);
  TALLY_DESIGNATED(tally::Vocabulary::Node, size);
  TALLY_DESIGNATED(tally::SchedulerOptions, step_seconds);
  TALLY_DESIGNATED(tally::CallOptions, new_id);
  TALLY_DESIGNATED(tally::TokenLogprobs, logprob);
  TALLY_DESIGNATED(tally::GenerateOptions, interrupted);
  TALLY_DESIGNATED(tally::GenerateResult, tokens);
  TALLY_DESIGNATED(tally::EngineOptions, threads);
  TALLY_DESIGNATED(tally::EngineOptions, context);
  TALLY_DESIGNATED(tally::LoadOptions, guard_slices);
  TALLY_DESIGNATED(tally::MemoryPlan, packed_weights);
  TALLY_DESIGNATED(tally::SamplerConfig, repeat_penalty);
  TALLY_DESIGNATED(tally::SamplingOptions, temperature);
  TALLY_DESIGNATED(tally::AuditOptions, prompt);
  TALLY_DESIGNATED(tally::PageFinding, slice);
  TALLY_DESIGNATED(tally::PageRow, tensor);
  TALLY_DESIGNATED(tally::AuditReport, stored);
  TALLY_DESIGNATED(tally::CountRequest, model);
  TALLY_DESIGNATED(tally::CountedModel, name);
  TALLY_DESIGNATED(tally::Inspection, inventory);
  TALLY_DESIGNATED(tally::LogitsCallbacks, take);
  TALLY_DESIGNATED(tally::PerplexityOptions, window);
  TALLY_DESIGNATED(tally::Divergence, mean);
  TALLY_DESIGNATED(tally::PerplexityReport, scored);
  TALLY_DESIGNATED(tally::QuantizeOptions, type);
  TALLY_DESIGNATED(tally::QuantizeReport, tensors);
  TALLY_DESIGNATED(tally::SpeedOptions, prompts);
  TALLY_DESIGNATED(tally::CallsError, field);
  TALLY_DESIGNATED(tally::TokenRun, take);
  TALLY_DESIGNATED(tally::Table, title);
  TALLY_DESIGNATED(tally::CsvTables, counts);
  TALLY_DESIGNATED(tally::TrainingBudget, tokens);
  TALLY_DESIGNATED(tally::SpeedRate, median);
  TALLY_DESIGNATED(tally::SpeedPoint, threads);
  TALLY_DESIGNATED(tally::MeasuredRoofs, threads);
  TALLY_DESIGNATED(tally::SpeedReport, prefill);
  TALLY_DESIGNATED(tally::SynthOptions, type);
  TALLY_DESIGNATED(tally::SynthReport, tensors);
  TALLY_DESIGNATED(tally::books::ParameterCounts, total);
  TALLY_DESIGNATED(tally::books::NotRun, tensors);
  TALLY_DESIGNATED(tally::books::RunInput, prompt_tokens);
  TALLY_DESIGNATED(tally::books::RunFigures, prompt_tokens);
  TALLY_DESIGNATED(tally::books::ParameterForm, name);
  TALLY_DESIGNATED(tally::books::Workload, sequences);
  TALLY_DESIGNATED(tally::books::WorkForm, layer);
  TALLY_DESIGNATED(tally::books::KvStorage, element_bytes);
  TALLY_DESIGNATED(tally::books::CountOptions, prompt);
  TALLY_DESIGNATED(tally::books::FlopsRow, part);
  TALLY_DESIGNATED(tally::books::FlopsCount, workload);
  TALLY_DESIGNATED(tally::books::WeightTraffic, uniform);
  TALLY_DESIGNATED(tally::books::StepCount, kv_elements_per_token);
  TALLY_DESIGNATED(tally::LayerCost, layer);
  TALLY_DESIGNATED(tally::KnownModelLine, name);
  TALLY_DESIGNATED(tally::books::PublishedFigures, total);
  TALLY_DESIGNATED(tally::books::PrintedNumber, value);
  TALLY_DESIGNATED(tally::books::ClaimCheck, figure);
  TALLY_DESIGNATED(tally::books::AuditRow, account);
  TALLY_DESIGNATED(tally::books::StepFacts, work);
  TALLY_DESIGNATED(tally::WeightTouch, id);
  TALLY_DESIGNATED(tally::Operand, name);
  TALLY_DESIGNATED(tally::OpDescription, operands);
  TALLY_DESIGNATED(tally::Site, layer);
  TALLY_DESIGNATED(tally::WeightInfo, name);
  TALLY_DESIGNATED(tally::Account, useful);
  TALLY_DESIGNATED(tally::BookedRow, phase);
  TALLY_DESIGNATED(tally::BillWork, rows);
  TALLY_DESIGNATED(tally::Bill, work);
  TALLY_DESIGNATED(tally::StepRecord, phase);
  TALLY_DESIGNATED(tally::SiteCost, site);
  TALLY_DESIGNATED(tally::SequenceRows, sequence);
  TALLY_DESIGNATED(tally::RowRange, begin);
  TALLY_DESIGNATED(tally::StoredTensor, name);
  TALLY_DESIGNATED(tally::FileStamp, device);
  TALLY_DESIGNATED(tally::InventoryFile, path);
}
