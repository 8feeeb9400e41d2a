// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/metrics.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "counters/books/books.h"

namespace tally {
namespace {

std::string Number(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", x);
  std::string shortest = text;
  std::snprintf(text, sizeof text, "%g", x);
  return std::stod(text) == x ? text : shortest;
}

void Describe(std::string_view name, std::string_view type, std::string_view help, std::string* text) {
  *text +=
      "# HELP " + std::string(name) + " " + std::string(help) + "\n# TYPE " + std::string(name) + " " + std::string(type) + "\n";
}

void Sample(std::string_view name, const std::string& labels, const std::string& value, std::string* text) {
  *text += std::string(name) + (labels.empty() ? "" : "{" + labels + "}") + " " + value + "\n";
}

void One(std::string_view name, std::string_view type, std::string_view help, uint64_t value, std::string* text) {
  Describe(name, type, help, text);
  Sample(name, "", std::to_string(value), text);
}

std::string Label(std::string_view name, std::string_view value) { return std::string(name) + "=\"" + std::string(value) + "\""; }

// A name may have any characters.
std::string ModelLabel(std::string_view model) {
  std::string value;
  for (const char c : model) {
    if (c == '\\' || c == '"') value += '\\';
    value += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return Label("model", value);
}

// Experts that the steps have read in each layer. An expert counts once a step, however many rows it has. The number is the bytes read of
// the experts' last matrices, divided by those of one expert.
void ExpertMetrics(const Ledger& ledger, std::string* text) {
  std::map<int32_t, uint64_t> expert_bytes;  // by layer
  for (const WeightInfo& w : ledger.weights()) {
    if (w.experts && w.component == Component::kFfnDown) expert_bytes[w.layer] += w.packed_bytes / w.slices;
  }
  if (expert_bytes.empty()) return;
  Describe("tally_experts_read_total", "counter", "Experts that steps read, by layer: one that several rows chose counts once.",
           text);
  for (const auto& [layer, bytes] : expert_bytes) {
    uint64_t read = 0;
    for (const Phase p : kAllPhases) read += ledger.at(p, {layer, Component::kFfnDown}).useful.Bytes(ByteKind::kWeightsPacked);
    Sample("tally_experts_read_total", Label("layer", std::to_string(layer)), std::to_string(read / bytes), text);
  }
}

// Of a model that reads experts or layers from disk.
void DiskMetrics(const Ledger& ledger, std::string* text) {
  std::map<int32_t, uint64_t> whole;
  for (const Phase p : kAllPhases) {
    for (const auto& [layer, bytes] : books::LayerBytesFromDisk(ledger, p)) whole[layer] += bytes;
  }
  if (!whole.empty()) {
    Describe("tally_layer_disk_bytes_total", "counter", "Bytes of layers that steps read from disk, by layer.", text);
    for (const auto& [layer, bytes] : whole) {
      Sample("tally_layer_disk_bytes_total", Label("layer", std::to_string(layer)), std::to_string(bytes), text);
    }
  }
  std::map<size_t, ExpertUses> layers;
  for (const Phase p : kAllPhases) {
    const std::span<const ExpertUses> uses = ledger.expert_uses(p);
    for (size_t layer = 0; layer < uses.size(); ++layer) {
      if (uses[layer] != ExpertUses()) layers[layer] += uses[layer];
    }
  }
  if (layers.empty()) return;
  const auto by_layer = [&](const char* name, const char* help, uint64_t ExpertUses::*of) {
    Describe(name, "counter", help, text);
    for (const auto& [layer, uses] : layers) Sample(name, Label("layer", std::to_string(layer)), std::to_string(uses.*of), text);
  };
  by_layer("tally_expert_hits_total", "Experts that steps found in memory, by layer.", &ExpertUses::hits);
  by_layer("tally_expert_misses_total", "Experts that steps read from disk, by layer.", &ExpertUses::misses);
  by_layer("tally_expert_disk_bytes_total", "Bytes of experts that steps read from disk, by layer.", &ExpertUses::disk_bytes);
}

}  // namespace

void Histogram::Add(double seconds) {
  const auto at = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  ++counts_[static_cast<size_t>(at)];
  sum_ += seconds;
}

void Histogram::Write(std::string_view name, std::string_view help, std::string* text) const {
  Describe(name, "histogram", help, text);
  uint64_t sum = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    sum += counts_[i];
    Sample(std::string(name) + "_bucket", Label("le", i < kBounds.size() ? Number(kBounds[i]) : "+Inf"), std::to_string(sum),
           text);
  }
  Sample(std::string(name) + "_sum", "", Number(sum_), text);
  Sample(std::string(name) + "_count", "", std::to_string(sum), text);
}

void RequestCounts::Count(std::string_view path, int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[{std::string(path), status}];
}

std::string RequestCounts::Text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  Describe("tally_requests_total", "counter", "Requests by path and status of HTTP.", &text);
  for (const auto& [what, n] : requests_) {
    Sample("tally_requests_total", Label("path", what.first) + "," + Label("status", std::to_string(what.second)),
           std::to_string(n), &text);
  }
  return text;
}

void Metrics::CountFirstToken(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.Add(seconds);
}

void Metrics::CountTokens(int64_t n, double seconds) {
  const std::lock_guard lock(mutex_);
  for (int64_t i = 0; i < n; ++i) token_.Add(seconds / static_cast<double>(n));
}

void Metrics::CountUsage(const ApiUsage& usage) {
  const std::lock_guard lock(mutex_);
  usage_.prompt_tokens += usage.prompt_tokens;
  usage_.cached_tokens += usage.cached_tokens;
  usage_.completion_tokens += usage.completion_tokens;
  usage_.drafted_tokens += usage.drafted_tokens;
  usage_.accepted_tokens += usage.accepted_tokens;
}

void Metrics::CountCancelled() {
  const std::lock_guard lock(mutex_);
  ++cancelled_;
}

void Metrics::CountBills(std::span<const std::shared_ptr<Request>> choices) {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Request>& choice : choices) {
    const BillWork work = choice->result().bill.total();
    billed_rows_ += work.rows;
    billed_flops_ += work.useful.TotalFlops();
    rows_again_ += work.rows_again;
    rows_in_vain_ += work.rows_in_vain;
  }
}

std::string Metrics::Text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  One("tally_requests_cancelled_total", "counter", "Requests whose client left before it had its answer.", cancelled_, &text);
  One("tally_prompt_tokens_total", "counter", "Tokens of prompts, cached ones included.",
      static_cast<uint64_t>(usage_.prompt_tokens), &text);
  One("tally_cached_tokens_total", "counter", "Tokens of prompts that did not have to run.",
      static_cast<uint64_t>(usage_.cached_tokens), &text);
  One("tally_completion_tokens_total", "counter", "Tokens that were generated.", static_cast<uint64_t>(usage_.completion_tokens),
      &text);
  One("tally_drafted_tokens_total", "counter", "Tokens that were drafted.", static_cast<uint64_t>(usage_.drafted_tokens), &text);
  One("tally_accepted_tokens_total", "counter", "Of these, the tokens that were drawn.",
      static_cast<uint64_t>(usage_.accepted_tokens), &text);
  One("tally_billed_rows_total", "counter", "Rows on the bills of requests that have ended.", billed_rows_, &text);
  One("tally_billed_flops_total", "counter", "Floating-point operations on these bills.", billed_flops_, &text);
  One("tally_rows_again_total", "counter", "Rows on these bills that ran at a position that had run before.", rows_again_, &text);
  One("tally_rows_in_vain_total", "counter", "Rows on these bills whose results were dropped.", rows_in_vain_, &text);
  first_token_.Write("tally_time_to_first_token_seconds", "From a request's arrival to its first token.", &text);
  token_.Write("tally_time_per_token_seconds", "From a token to the next one of its answer.", &text);
  return text;
}

std::string EngineMetrics(Engine& engine, const LoopState& state) {
  std::string text;
  One("tally_requests_running", "gauge", "Choices that run.", state.running, &text);
  One("tally_requests_waiting", "gauge", "Choices that wait for room.", state.waiting, &text);
  Describe("tally_busy_seconds_total", "counter", "Seconds in which there were requests.", &text);
  Sample("tally_busy_seconds_total", "", Number(state.busy_seconds), &text);
  Describe("tally_step_seconds_total", "counter", "Of these, in steps and sampling; the rest is the server's own time.", &text);
  Sample("tally_step_seconds_total", "", Number(state.step_seconds), &text);
  One("tally_kv_bytes", "gauge", "Bytes of the KV cache that live sequences hold.", engine.KvBytesInUse(), &text);
  One("tally_kv_budget_bytes", "gauge", "Bytes that the KV cache may take.", engine.KvBudget(), &text);
  const Ledger& ledger = engine.ledger();
  std::array<Account, kAllPhases.size()> accounts;
  for (size_t p = 0; p < accounts.size(); ++p) accounts[p] = ledger.total(kAllPhases[p]);
  const auto by_phase = [&](const char* name, const char* help, const auto& value) {
    Describe(name, "counter", help, &text);
    for (size_t p = 0; p < accounts.size(); ++p) {
      Sample(name, Label("phase", kPhaseNames[static_cast<size_t>(kAllPhases[p])]),
             std::to_string(value(kAllPhases[p], accounts[p])), &text);
    }
  };
  by_phase("tally_steps_total", "Steps of the engine.", [&](Phase p, const Account&) { return ledger.steps(p); });
  by_phase("tally_rows_total", "Rows that ran.", [&](Phase p, const Account&) { return ledger.rows(p); });
  by_phase("tally_flops_total", "Useful floating-point operations.",
           [](Phase, const Account& a) { return a.useful.TotalFlops(); });
  by_phase("tally_parameters_touched_total", "Parameters touched, summed over steps.",
           [&](Phase p, const Account&) { return ledger.parameters_touched(p); });
  ExpertMetrics(ledger, &text);
  DiskMetrics(ledger, &text);
  Describe("tally_bytes_total", "counter", "Bytes moved, by kind.", &text);
  for (size_t k = 0; k < kByteKindNames.size(); ++k) {
    uint64_t bytes = 0;
    for (const Account& a : accounts) bytes += a.useful.Bytes(static_cast<ByteKind>(k));
    Sample("tally_bytes_total", Label("kind", kByteKindNames[k]), std::to_string(bytes), &text);
  }
  return text;
}

std::string ModelsMetrics(std::span<const ModelCounts> models, uint64_t bytes, uint64_t budget) {
  std::string text;
  const auto by_model = [&](const char* name, const char* type, const char* help, const auto& value) {
    Describe(name, type, help, &text);
    for (const ModelCounts& model : models) Sample(name, ModelLabel(model.name), std::to_string(value(model)), &text);
  };
  by_model("tally_model_loaded", "gauge", "1: the model is in memory.", [](const ModelCounts& m) { return m.loaded ? 1 : 0; });
  by_model("tally_model_bytes", "gauge", "Bytes that the model takes in memory, its KV cache included.",
           [](const ModelCounts& m) { return m.bytes; });
  by_model("tally_model_loads_total", "counter", "Times that it was loaded.", [](const ModelCounts& m) { return m.loads; });
  by_model("tally_model_drops_total", "counter", "Times that it gave way to another.",
           [](const ModelCounts& m) { return m.drops; });
  One("tally_models_bytes", "gauge", "Bytes that the models in memory take.", bytes, &text);
  One("tally_models_budget_bytes", "gauge", "Bytes that they may take.", budget, &text);
  return text;
}

std::string JoinMetrics(std::span<const std::pair<std::string, std::string>> texts_by_model) {
  std::vector<std::pair<std::string, std::string>> families;  // HELP and TYPE; samples
  for (const auto& [model, text] : texts_by_model) {
    const std::string label = ModelLabel(model);
    std::string* samples = nullptr;
    for (size_t at = 0; at < text.size();) {
      const size_t line_end = text.find('\n', at), type_end = text.find('\n', line_end + 1);
      if (text[at] == '#') {  // both lines
        const std::string head = text.substr(at, type_end + 1 - at);
        auto family = std::ranges::find(families, head, &std::pair<std::string, std::string>::first);
        if (family == families.end()) family = families.insert(families.end(), {head, ""});
        samples = &family->second;
        at = type_end + 1;
        continue;
      }
      const std::string line = text.substr(at, line_end - at);
      const size_t brace = line.find('{'), name_end = std::min(brace, line.find(' '));
      *samples += line.substr(0, name_end) + "{" + label;
      *samples += name_end == brace ? "," + line.substr(brace + 1) : "}" + line.substr(name_end);
      *samples += "\n";
      at = line_end + 1;
    }
  }
  std::string all;
  for (const auto& [head, samples] : families) all += head + samples;
  return all;
}

}  // namespace tally
