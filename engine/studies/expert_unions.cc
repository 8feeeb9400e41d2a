// SPDX-License-Identifier: Apache-2.0
// The experts that the steps of an audit read.
#include <algorithm>
#include <utility>

#include "counters/books/books.h"
#include "engine/recipe/recipe.h"
#include "engine/studies/audit.h"

namespace tally {

bool IsDecode(const AuditReport::Step& step) { return step.phase == Phase::kDecode && step.of_text(); }

std::string StepName(const AuditReport::Step& step) {
  const std::string rows = std::string(step.kind()) + " of " + std::to_string(step.rows);
  return step.context == step.rows ? rows : rows + " at depth " + std::to_string(step.context);
}

std::vector<ExpertUnion> ExpertUnions(const AuditReport& report, const Recipe& recipe) {
  std::vector<ExpertUnion> unions;
  const double X = recipe.all.experts.n_experts, k = recipe.all.experts.top_k,
               layers = static_cast<double>(report.experts.size());
  double slice = 0;  // bytes of one expert in every layer
  for (const AuditReport::Experts& e : report.experts) slice += static_cast<double>(e.slice_bytes);
  auto add = [&](const std::string& name, double measured, double bytes, double rows) {
    const double uniform = books::UniformExperts(X, k, rows), most = std::min(rows * k, X);
    unions.push_back({name, rows, measured, uniform, most, bytes, uniform * slice, most * slice});
  };
  std::vector<const AuditReport::Step*> steps;
  for (const AuditReport::Step& step : report.steps) {
    if (step.of_text()) steps.push_back(&step);
  }
  uint64_t all_rows = 0;
  for (size_t i = 0, n = 0; i < steps.size(); i += n) {  // decode steps together
    for (n = 1; steps[i]->phase == Phase::kDecode && i + n < steps.size();) ++n;
    double sum = 0, bytes = 0, rows = 0;
    for (size_t j = i; j < i + n; ++j) {
      for (const AuditReport::Experts& e : report.experts) {
        sum += static_cast<double>(e.step_union[j]);
        bytes += static_cast<double>(e.step_union[j] * e.slice_bytes);
      }
      all_rows += steps[j]->rows;
      rows += static_cast<double>(steps[j]->rows);
    }
    const double mean = static_cast<double>(n);
    add(n > 1 ? "mean of " + std::to_string(n) + " decode steps" : StepName(*steps[i]), sum / layers / mean, bytes / mean,
        rows / mean);
  }
  double sum = 0, bytes = 0;
  for (const AuditReport::Experts& e : report.experts) {
    sum += static_cast<double>(e.run_union);
    bytes += static_cast<double>(e.run_union * e.slice_bytes);
  }
  add("the run", sum / layers, bytes, static_cast<double>(all_rows));
  return unions;
}

}  // namespace tally
