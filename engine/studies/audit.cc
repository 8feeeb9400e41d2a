#include "engine/studies/audit.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "counters/books/weight_table.h"
#include "engine/machine/page_watch.h"
#include "engine/session/loaded_model.h"
#include "engine/session/scoped_sequence.h"
#include "engine/studies/page_proof.h"
#include "loaders/loaders.h"
#include "models/family.h"

namespace tally {
namespace {

// Whether a head that is stored apart has the embedding's bytes.
Result<bool> HeadIsCopy(const Inventory& inventory, const ModelSpec& spec) {
  const StoredTensor *embedding = nullptr, *head = nullptr;
  for (const TensorBinding& b : spec.bindings) {
    if (b.names.empty()) continue;
    if (b.role == Role::kTokenEmbedding) embedding = inventory.Find(b.names.front());
    if (b.role == Role::kHead) head = inventory.Find(b.names.front());
  }
  if (embedding == nullptr || head == nullptr || embedding->dtype != head->dtype || embedding->bytes != head->bytes) return false;
  TALLY_ASSIGN_OR_RETURN(const FileReader a, FileReader::Open(inventory.files[embedding->file].path));
  TALLY_ASSIGN_OR_RETURN(const FileReader b, FileReader::Open(inventory.files[head->file].path));
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  std::vector<uint8_t> x(std::min(kPiece, head->bytes)), y(x.size());
  for (uint64_t at = 0; at < head->bytes; at += kPiece) {
    const size_t n = static_cast<size_t>(std::min(kPiece, head->bytes - at));
    TALLY_RETURN_IF_ERROR(a.ReadAt(embedding->offset + at, std::span(x).first(n)));
    TALLY_RETURN_IF_ERROR(b.ReadAt(head->offset + at, std::span(y).first(n)));
    if (!std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n), y.begin())) return false;
  }
  return true;
}

class Auditor {
 public:
  Auditor(Engine& engine, const AuditOptions& options) : engine_(engine), options_(options) {}

  Result<AuditReport> Run() {
    TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadCheckpoint(options_.path));
    TALLY_ASSIGN_OR_RETURN(const ModelSpec spec, ReadModelSpec(inventory));
    table_ = books::WeightTable(inventory, spec);
    types_ = books::WeightTypes(inventory, spec);
    const auto same = [](const WeightInfo& a, const WeightInfo& b) {
      return a.name == b.name && a.slices == b.slices && a.rows == b.rows && a.cols == b.cols;
    };
    if (!std::ranges::equal(table_, engine_.ledger().weights(), same)) {
      return BadInput(options_.path + ": holds other tensors than the model that was loaded");
    }
    TALLY_ASSIGN_OR_RETURN(report_.head_is_copy, HeadIsCopy(inventory, spec));
    const Recipe& recipe = engine_.model().recipe();
    report_.stored = books::AuditStored(recipe, table_, types_);
    Add(report_.stored);
    facts_.kv_element_bytes = KvLayout{MakeStepperOptions(recipe, options_.load).decoder.kv, 1, 1}.KeyBytes();

    TALLY_RETURN_IF_ERROR(CheckTokens(engine_, options_.prompt));
    TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, ScopedSequence::New(engine_));
    if (options_.mmu) TALLY_RETURN_IF_ERROR(WatchPages());
    std::span<const int32_t> rest = options_.prompt;
    int32_t next = 0;
    while (!rest.empty()) {
      const auto piece = rest.first(std::min(rest.size(), static_cast<size_t>(std::max<int64_t>(1, engine_.max_batch()))));
      rest = rest.subspan(piece.size());
      TALLY_ASSIGN_OR_RETURN(next, Step(sequence.id(), piece, Phase::kPrefill, rest.empty()));
    }
    for (int64_t i = 0; i < options_.decode_tokens && engine_.Length(sequence.id()) < engine_.context(); ++i) {
      TALLY_ASSIGN_OR_RETURN(next, Step(sequence.id(), {&next, 1}, Phase::kDecode, true));
    }
    return std::move(report_);
  }

 private:
  Status WatchPages() {
    const auto* model = dynamic_cast<const LoadedModel*>(&engine_.model());
    if (model == nullptr || !model->weights().guarded()) {
      return BadInput(options_.path + ": the pages of weights are watched where the model was loaded with guard_slices");
    }
    weights_ = &model->weights();
    TALLY_ASSIGN_OR_RETURN(watch_, PageWatch::New(weights_->arena().data(), weights_->arena().size()));
    report_.page_bytes = watch_->page_bytes();
    return {};
  }

  template <class Rows>
  void Add(const Rows& rows) {
    report_.compared += rows.size();
    report_.differing +=
        static_cast<uint64_t>(std::count_if(rows.begin(), rows.end(), [](const auto& r) { return !r.agrees(); }));
  }

  // Gives the most probable next token, where logits were wanted.
  Result<int32_t> Step(int32_t sequence, std::span<const int32_t> tokens, Phase phase, bool logits) {
    if (options_.interrupted && options_.interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
    std::vector<BatchRow> rows;
    for (const int32_t token : tokens) rows.push_back({token, sequence, false, phase == Phase::kDecode});
    rows.back().want_logits = logits;
    engine_.ledger().Reset();
    if (watch_ != nullptr) TALLY_RETURN_IF_ERROR(watch_->Start());
    Result<Mat<const float>> stepped = engine_.Step(rows);
    std::vector<bool> touched;
    if (watch_ != nullptr) {
      TALLY_ASSIGN_OR_RETURN(touched, watch_->Stop());
    }
    TALLY_ASSIGN_OR_RETURN(const Mat<const float> out, std::move(stepped));
    facts_.phase = phase;
    facts_.work = {.sequences = 1,
                   .rows = tokens.size(),
                   .context = static_cast<uint64_t>(engine_.Length(sequence)),
                   .logit_rows = logits ? 1u : 0u};
    facts_.distinct_tokens = std::set<int32_t>(tokens.begin(), tokens.end()).size();
    facts_.distinct_positions = tokens.size();
    AuditReport::Step step{phase, facts_.work.rows, facts_.work.context, {}, {}};
    step.audit = books::AuditStep(engine_.model().recipe(), table_, types_, engine_.ledger(), facts_);
    Add(step.audit);
    if (watch_ != nullptr) {
      step.pages = ComparePages(engine_.ledger(), *weights_, watch_->page_bytes(), touched);
      Add(step.pages);
    }
    report_.steps.push_back(std::move(step));
    CountExperts();
    if (!logits) return 0;
    const float* row = out.Row(0);
    return static_cast<int32_t>(std::max_element(row, row + out.cols) - row);
  }

  void CountExperts() {
    for (const auto& [layer, tokens] : books::ExpertTokens(engine_.ledger())) {
      const int32_t wanted = layer;
      auto found = std::find_if(report_.experts.begin(), report_.experts.end(), [&](const auto& e) { return e.layer == wanted; });
      if (found == report_.experts.end()) {
        AuditReport::Experts experts;
        experts.layer = layer;
        experts.tokens.resize(tokens.size());
        for (const WeightInfo& w : table_) {
          if (w.layer == layer && w.slices > 1) experts.slice_bytes += w.stored_bytes / w.slices;
        }
        found = report_.experts.insert(report_.experts.end(), std::move(experts));
      }
      uint64_t used = 0;
      for (size_t e = 0; e < tokens.size(); ++e) {
        found->tokens[e] += tokens[e];
        used += tokens[e] > 0 ? 1 : 0;
      }
      found->step_union.push_back(used);
      found->run_union =
          static_cast<uint64_t>(std::count_if(found->tokens.begin(), found->tokens.end(), [](uint64_t n) { return n > 0; }));
    }
  }

  Engine& engine_;
  const AuditOptions& options_;
  std::vector<WeightInfo> table_;
  std::vector<DType> types_;
  books::StepFacts facts_;
  const PackedWeights* weights_ = nullptr;  // with mmu
  std::unique_ptr<PageWatch> watch_;
  AuditReport report_;
};

}  // namespace

Result<AuditReport> Audit(Engine& engine, const AuditOptions& options) { return Auditor(engine, options).Run(); }

}  // namespace tally
