// SPDX-License-Identifier: Apache-2.0
// The report of a model that is counted and not run: decode steps of one token, at lengths up to the context.
#include <algorithm>
#include <map>
#include <utility>

#include "counters/books/books.h"
#include "engine/recipe/recipe.h"
#include "engine/studies/count_figures.h"
#include "engine/studies/report.h"

namespace tally {
namespace {

constexpr uint64_t kLengths = 32;

void AddParameters(const CountedModel& m, ReportData& d) {
  for (int part = 0; part < books::kParts; ++part) {
    d.components.emplace_back();
    d.components.back().name = d.components.back().part = books::PartName(static_cast<books::Part>(part));
  }
  for (const books::ParameterForm& p : m.count.tensors) {
    if (p.apart()) continue;
    const bool ends = p.kind != WeightInfo::Kind::kBlock,
               head = p.kind == WeightInfo::Kind::kHead || p.kind == WeightInfo::Kind::kTiedEmbeddingHead;
    const uint64_t n = p.active.value();
    const ReportParameters parameters = {p.count.value(), n, ends && !head ? 0 : n, ends ? 0 : n, p.touched.value(), 0};
    ReportComponent& c = d.components[static_cast<size_t>(books::PartOf(p.component, p.expert))];
    ++c.tensors;
    for (size_t k = 0; k < kReportConventions; ++k) {
      c.parameters[k] += parameters[k];
      d.parameters[k] += parameters[k];
    }
  }
  d.tied = m.count.recipe->tied_head;
}

Status AddStep(const CountedModel& m, uint64_t context, ReportData& d) {
  books::CountOptions options = m.count.options;
  options.context = context;
  options.prompt = 1;  // not shown
  options.batch = 1;
  TALLY_ASSIGN_OR_RETURN(const books::Count count, books::CountRecipe(m.count.recipe, std::move(options)));
  ReportStep step{.number = d.steps.size(), .phase = "decode", .rows = 1, .logit_rows = 1, .context = context};
  step.parameters_touched = count.touched;
  step.by_component.resize(d.components.size());
  for (const books::FlopsRow& row : count.decode.rows) {
    const auto form = row.flops[static_cast<size_t>(books::FlopsView::kEverything)].number();
    const uint64_t flops = form ? form->value() : 0;
    step.by_component[static_cast<size_t>(row.part)].flops = flops;
    step.all.flops += flops;
  }
  for (ReportWork& work : step.by_component) work.bytes.resize(d.byte_kinds.size());
  if (const auto read = count.kv_bytes_read.number()) {
    step.all.bytes = {count.weight_bytes_per_token, *read + 2 * count.state_bytes, count.kv_bytes_per_token};
  }
  d.steps.push_back(std::move(step));
  return {};
}

}  // namespace

Result<ReportData> ReportOf(const CountedModel& model) {
  const books::Count& count = model.count;
  ReportData d;
  d.title = model.name;
  d.description = count.recipe->family + ", " + std::to_string(count.recipe->n_layers) + " layers, " + model.stored_as;
  d.source = "tally count";
  d.has_parameters = true;
  d.decode_steps = 1;  // of the touched parameters
  if (count.kv_bytes_read.whole()) d.byte_kinds = {"weights packed", "KV read", "KV written"};
  AddParameters(model, d);
  const uint64_t trained = static_cast<uint64_t>(std::max(count.recipe->context, 0));
  const uint64_t longest = std::max({trained, count.options.context, kLengths});
  for (uint64_t i = 0; i <= kLengths; ++i) {
    TALLY_RETURN_IF_ERROR(AddStep(model, std::max<uint64_t>(1, longest / kLengths * i), d));
  }
  d.absent = {
      "Nothing ran: figures are counted from the configuration. Bytes are those of weights as stored, and of a KV cache of "
      "type " +
      KvNameOf(count) + "."};
  if (const std::string partial = books::PartialWords(count); !partial.empty()) {
    d.absent.push_back("Figures that are only part are left out; " + partial + ".");
  }
  return d;
}

}  // namespace tally
