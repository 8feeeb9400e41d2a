// SPDX-License-Identifier: Apache-2.0
// The report of a model that is counted and not run: decode steps of one token, at lengths up to the context.
#include <algorithm>
#include <map>
#include <utility>

#include "counters/books/books.h"
#include "engine/studies/report.h"

namespace tally {
namespace {

constexpr uint64_t kLengths = 32;

// The parts that have parameters or work, in the order of ParameterParts; a layer's feed-forward is "experts" if that has experts.
class Parts {
 public:
  explicit Parts(const books::Count& count) {
    for (const books::ParameterForm& p : count.tensors) {
      if (p.expert) experts_[{p.layer, p.component}] = true;
    }
  }
  size_t Of(int32_t layer, Component component) const {
    return books::ParameterPartOf(component, experts_.contains({layer, component}));
  }

 private:
  std::map<std::pair<int32_t, Component>, bool> experts_;
};

void AddParameters(const CountedModel& m, ReportData& d) {
  d.components.resize(books::ParameterParts().size());
  for (size_t i = 0; i < d.components.size(); ++i) d.components[i].name = d.components[i].part = books::ParameterParts()[i];
  for (const books::ParameterForm& p : m.count.tensors) {
    if (p.prediction) continue;
    const bool ends = p.kind != WeightInfo::Kind::kBlock,
               head = p.kind == WeightInfo::Kind::kHead || p.kind == WeightInfo::Kind::kTiedEmbeddingHead;
    const uint64_t n = p.active.value();
    const ReportParameters parameters = {p.count.value(), n, ends && !head ? 0 : n, ends ? 0 : n, p.touched.value(), 0};
    ReportComponent& c = d.components[books::ParameterPartOf(p.component, p.expert)];
    ++c.tensors;
    for (size_t k = 0; k < kReportConventions; ++k) {
      c.parameters[k] += parameters[k];
      d.parameters[k] += parameters[k];
    }
  }
  d.tied = m.count.recipe.tied_head;
}

Status AddStep(const CountedModel& m, const Parts& parts, uint64_t context, ReportData& d) {
  books::CountOptions options = m.count.options;
  options.context = context;
  options.prompt = 1;  // not shown
  options.batch = 1;
  TALLY_ASSIGN_OR_RETURN(const books::Count count, books::CountRecipe(m.count.recipe, std::move(options)));
  ReportStep step{.number = d.steps.size(), .phase = "decode", .rows = 1, .logit_rows = 1, .context = context};
  step.parameters_touched = count.touched;
  step.by_component.resize(d.components.size());
  for (const books::WorkForm& site : count.decode.sites) {
    step.by_component[parts.Of(site.layer, site.component)].flops += site.flops.value();
    step.all.flops += site.flops.value();
  }
  for (ReportWork& work : step.by_component) work.bytes.resize(d.byte_kinds.size());
  step.all.bytes = {count.weight_bytes_per_token, count.kv_bytes_at_context + 2 * count.state_bytes, count.kv_bytes_per_token};
  d.steps.push_back(std::move(step));
  return {};
}

}  // namespace

Result<ReportData> ReportOf(const CountedModel& model) {
  const books::Count& count = model.count;
  ReportData d;
  d.title = model.name;
  d.description = count.recipe.family + ", " + std::to_string(count.recipe.n_layers) + " layers, " + model.stored_as;
  d.source = "tally count";
  d.has_parameters = true;
  d.decode_steps = 1;  // of the touched parameters
  d.byte_kinds = {"weights packed", "KV read", "KV written"};
  AddParameters(model, d);
  const uint64_t trained = static_cast<uint64_t>(std::max(count.recipe.context, 0));
  const uint64_t longest = std::max({trained, count.options.context, kLengths});
  const Parts parts(count);
  for (uint64_t i = 0; i <= kLengths; ++i) {
    TALLY_RETURN_IF_ERROR(AddStep(model, parts, std::max<uint64_t>(1, longest / kLengths * i), d));
  }
  d.absent = {
      "Nothing ran: figures are counted from the configuration. Bytes are those of weights as stored, and of an f16 KV cache."};
  return d;
}

}  // namespace tally
