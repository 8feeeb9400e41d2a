// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/audit.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "engine/kernels/op.h"
#include "engine/kernels/unpack.h"
#include "engine/recipe/shard.h"
#include "engine/session/lookup_drafter.h"
#include "engine/session/scoped_sequence.h"
#include "engine/session/split.h"
#include "engine/studies/fit_parts.h"
#include "engine/studies/packed_size.h"
#include "engine/studies/page_proof.h"
#include "engine/weights/weights.h"

namespace tally {
namespace {

// Whether a head that is stored apart has the embedding's values.
bool HeadIsCopy(const PackedWeights& weights, const Recipe& recipe) {
  const WeightView &embedding = weights.Get(Role::kTokenEmbedding), &head = weights.Get(Role::kHead);
  if (recipe.tied_head || embedding.dtype != head.dtype) return false;
  std::vector<float> x(static_cast<size_t>(embedding.cols)), y(x.size());
  for (int64_t row = 0; row < embedding.rows; ++row) {
    UnpackRow(embedding, 0, row, x.data());
    UnpackRow(head, 0, row, y.data());
    if (std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

class Auditor {
 public:
  Auditor(Engine& engine, const ProbedWeights& probed, const AuditOptions& options)
      : engine_(engine),
        model_(engine.model()),
        options_(options),
        stacks_(probed.stacks),
        table_(probed.stored),
        types_(probed.types),
        weights_(*probed.packed),
        shard_(*probed.shard),
        lookup_(options.draft) {}

  Result<AuditReport> Run() {
    const Recipe& recipe = model_.recipe();
    if (engine_.processes() > 1) {
      TALLY_ASSIGN_OR_RETURN(books_, engine_.Books());
      HeldByRanks();
      facts_.gathered = [this](Role role, int32_t layer) {
        return GatheredAs(weights_.Get(role, layer).dtype, engine_.activations(), HwyTargetHasBf16Dot());
      };
    }
    report_.head_is_copy = !model_.not_run().head.empty() || (books_.empty() && HeadIsCopy(weights_, recipe));
    const std::vector<WeightInfo>& infos = weights_.infos();
    for (size_t i = 0; i < infos.size(); ++i) {
      if (!GetDTypeInfo(types_[i]).quantised || infos[i].packed_bytes < infos[i].parameters() * sizeof(float)) continue;
      report_.widened_stored += infos[i].stored_bytes;
      report_.widened_packed += infos[i].packed_bytes;
    }
    report_.stored =
        books_.empty() ? books::AuditStored(stacks_, table_, types_) : books::AuditStored(stacks_, table_, types_, books_);
    Add(report_.stored);
    facts_.kv = books::StorageOf(engine_.kv_type());
    TALLY_RETURN_IF_ERROR(CheckTokens(engine_, options_.prompt));
    TALLY_RETURN_IF_ERROR(CheckRoom());
    TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, ScopedSequence::New(engine_));
    if (options_.mmu) TALLY_RETURN_IF_ERROR(WatchPages());
    const BeforePasses passes(*this);
    const int32_t bill = options_.draft > 0 ? engine_.OpenBill() : kNoBill;
    const Status ran = RunAll(sequence.id(), bill);
    if (bill != kNoBill) engine_.CloseBill(bill);
    TALLY_RETURN_IF_ERROR(ran);
    for (const auto& [component, copy] : copies_) report_.copies.push_back(copy);
    return std::move(report_);
  }

 private:
  // While it lives, passes of the layer for prediction are audited.
  class BeforePasses {
   public:
    explicit BeforePasses(Auditor& auditor) : probe_(auditor.engine_.probe()) {
      probe_.SetBeforePass([&auditor](const PredictionPass& pass) { auditor.BeforePass(pass); });
    }
    BeforePasses(const BeforePasses&) = delete;
    BeforePasses& operator=(const BeforePasses&) = delete;
    ~BeforePasses() { probe_.SetBeforePass({}); }

   private:
    Probe& probe_;
  };

  Status RunAll(int32_t sequence, int32_t bill) {
    std::span<const int32_t> rest = options_.prompt;
    while (!rest.empty()) {
      const auto piece = rest.first(std::min(rest.size(), static_cast<size_t>(std::max<int64_t>(1, engine_.max_batch()))));
      rest = rest.subspan(piece.size());
      TALLY_RETURN_IF_ERROR(Step(sequence, bill, piece, {}, Phase::kPrefill, rest.empty()));
    }
    for (int64_t left = options_.decode_tokens; left > 0; --left) {
      TALLY_ASSIGN_OR_RETURN(const std::vector<int32_t> drafts, Drafts(sequence, bill, left));
      const int32_t next = tokens_.back();
      TALLY_RETURN_IF_ERROR(Step(sequence, bill, {&next, 1}, drafts, Phase::kDecode, true));
    }
    return {};
  }

  // Tokens that may follow those that there are. The steps that are left keep a position each.
  Result<std::vector<int32_t>> Drafts(int32_t sequence, int32_t bill, int64_t left) {
    const int64_t most = std::min({options_.draft, engine_.draft_rows(), engine_.context() - engine_.Length(sequence) - left});
    if (most <= 0) return std::vector<int32_t>();
    if (!engine_.predicts()) {
      const std::span<const int32_t> found = lookup_.Propose(tokens_, most);
      return std::vector<int32_t>(found.begin(), found.end());
    }
    const DraftWish wish{.sequence = sequence, .token = tokens_.back(), .most = most, .bill = bill};
    TALLY_ASSIGN_OR_RETURN(const auto drafts, engine_.Predict({&wish, 1}));
    std::vector<int32_t> copy = drafts[0];
    TALLY_RETURN_IF_ERROR(End());
    return copy;
  }

  AuditReport::Copy& CopyAt(Component component) {
    AuditReport::Copy& copy = copies_[component];
    copy.component = component;
    return copy;
  }

  void HeldByRanks() {
    uint64_t packed = 0;
    for (const ProcessBooks& b : books_) {
      report_.ranks.push_back({b.process, b.parameters, b.copied_parameters, b.stored_bytes, b.packed_bytes, {}, {}, {}});
      packed += b.packed_bytes;
      for (const WeightInfo& w : b.weights) {
        if (w.copied == 0) continue;
        CopyAt(w.component).parameters += w.copied;
        report_.packed_copies +=
            w.packed_bytes / w.parameters() * w.copied + w.packed_bytes % w.parameters() * w.copied / w.parameters();
      }
    }
    std::map<std::string, DType> types;
    for (size_t i = 0; i < table_.size(); ++i) types[table_[i].name] = types_[i];
    for (int role = 0; role < kRoles; ++role) {
      for (int32_t layer = -1; layer < model_.recipe().n_layers; ++layer) {
        const Role r = static_cast<Role>(role);
        const auto type = types.find(WeightName(r, layer));
        if (type == types.end() || !HasRole(model_.recipe(), r, layer)) continue;
        report_.packed_alone += PackedBytes(PackedView(model_.recipe(), {}, r, layer, PackedType(r, type->second)));
      }
    }
    report_.packed_padding = packed - report_.packed_copies - report_.packed_alone;
  }

  // What ranks did in a step.
  void AddRanks() {
    for (size_t r = 0; r < books_.size(); ++r) {
      AuditReport::Rank& rank = report_.ranks[r];
      for (const SiteAccount& a : books_[r].accounts) {
        rank.useful += a.account.useful;
        rank.copied += a.account.copied;
        rank.executed += a.account.executed;
        if (a.account.copied == Cost()) continue;
        CopyAt(a.site.component).work += a.account.copied;
      }
    }
  }

  // The prompt alone fits.
  Status CheckRoom() const {
    const auto prompt = static_cast<int64_t>(options_.prompt.size());
    if (options_.decode_tokens <= engine_.context() - prompt) return {};
    const int64_t trained = model_.recipe().context;
    return BadInput("the context has " + std::to_string(engine_.context()) + " positions" +
                    (trained > engine_.context() ? " of the model's " + std::to_string(trained) : "") +
                    ": too few for a prompt of " + std::to_string(prompt) + " and " + std::to_string(options_.decode_tokens) +
                    " decode steps");
  }

  Status WatchPages() {
    TALLY_ASSIGN_OR_RETURN(watch_, WeightWatch::New(weights_));
    report_.page_bytes = watch_->page_bytes();
    return {};
  }

  template <class Rows>
  void Add(const Rows& rows) {
    report_.compared += rows.size();
    report_.differing +=
        static_cast<uint64_t>(std::count_if(rows.begin(), rows.end(), [](const auto& r) { return !r.agrees(); }));
  }

  // Adds the most probable next token to the tokens, where logits were wanted, and before it the drafts that are the most probable ones.
  Status Step(int32_t sequence, int32_t bill, std::span<const int32_t> tokens, std::span<const int32_t> drafts, Phase phase,
              bool logits) {
    if (options_.interrupted && options_.interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
    const bool generated = phase == Phase::kDecode;
    std::vector<BatchRow> rows;
    for (const int32_t token : tokens) {
      rows.push_back({.token = token, .sequence = sequence, .generated = generated, .bill = bill});
    }
    rows.back().want_logits = logits;
    for (const int32_t token : drafts) {
      rows.push_back(
          {.token = token, .sequence = sequence, .want_logits = true, .generated = generated, .bill = bill, .draft = true});
    }
    std::set<int32_t> distinct(tokens.begin(), tokens.end());
    distinct.insert(drafts.begin(), drafts.end());
    const uint64_t n = rows.size(), length = static_cast<uint64_t>(engine_.Length(sequence));
    TALLY_RETURN_IF_ERROR(Begin(model_.recipe(), {.rows = n, .context = length + n, .logit_rows = logits ? 1 + drafts.size() : 0},
                                phase, distinct.size()));
    const books::StepFacts facts = facts_;
    step_tokens_.assign(tokens.begin(), tokens.end());
    step_tokens_.insert(step_tokens_.end(), drafts.begin(), drafts.end());
    const size_t step = report_.steps.size();
    Result<Mat<const float>> stepped = engine_.StepAll(rows);
    if (!stepped.ok()) {
      if (watch_ != nullptr && open_) (void)watch_->Stop();
      open_ = false;
      return stepped.status();
    }
    const Mat<const float> out = *stepped;
    TALLY_RETURN_IF_ERROR(End());
    if (!logits) return {};
    size_t accepted = 0;
    for (;; ++accepted) {
      const float* const row = out.Row(static_cast<int64_t>(accepted));
      tokens_.push_back(static_cast<int32_t>(std::max_element(row, row + out.cols) - row));
      if (accepted == drafts.size() || tokens_.back() != drafts[accepted]) break;
    }
    if (drafts.empty()) return {};
    TALLY_RETURN_IF_ERROR(engine_.KeepDrafts(sequence, static_cast<int64_t>(accepted)));
    AuditReport::Step& audited = report_.steps[step];
    audited.drafted = drafts.size();
    audited.accepted = accepted;
    const std::vector<books::AuditRow> in_vain =
        books::AuditInVain(model_.recipe(), facts, drafts.size() - accepted, engine_.ledger().drafts().in_vain);
    Add(in_vain);
    audited.audit.insert(audited.audit.end(), in_vain.begin(), in_vain.end());
    return {};
  }

  // A step of a stack begins.
  Status Begin(const Recipe& stack, const books::Workload& work, Phase phase, size_t distinct_tokens) {
    engine_.ledger().Reset();
    stack_ = &stack;
    facts_.work = work;
    facts_.phase = phase;
    facts_.distinct_tokens = distinct_tokens;
    facts_.distinct_positions = work.rows;
    open_ = true;
    return watch_ != nullptr ? watch_->Start() : Status();
  }

  // It has ended: compares its charges.
  Status End() {
    if (!std::exchange(open_, false)) return std::exchange(pass_failed_, Status());
    TouchedPages touched;
    if (watch_ != nullptr) {
      TALLY_ASSIGN_OR_RETURN(touched, watch_->Stop());
    }
    if (!pass_failed_.ok()) return std::exchange(pass_failed_, Status());
    const bool counted = !stack_->prediction();
    if (!counted) facts_.phase = engine_.ledger().last_step().phase;
    AuditReport::Step step{
        .phase = facts_.phase, .rows = facts_.work.rows, .context = facts_.work.context, .stack = stack_->stack};
    if (engine_.processes() > 1) {
      TALLY_ASSIGN_OR_RETURN(books_, engine_.Books());
      AddRanks();
    }
    const books::StepCharges charges = books_.empty() ? books::StepCharges(engine_.ledger(), facts_.phase)
                                                      : books::StepCharges(books_, facts_.phase, shard_.own_experts);
    step.audit = books::AuditStep(*stack_, table_, types_, charges, facts_);
    if (!books_.empty())
      std::ranges::copy(books::AuditCommunication(model_.recipe(), shard_, books_, step_tokens_, facts_),
                        std::back_inserter(step.audit));
    Add(step.audit);
    if (watch_ != nullptr) {
      step.pages = ComparePages(engine_.ledger(), weights_, watch_->page_bytes(), touched);
      Add(step.pages);
    }
    report_.steps.push_back(std::move(step));
    if (counted) CountExperts(charges);
    return {};
  }

  // The step or pass before it has ended, if there was one.
  void BeforePass(const PredictionPass& pass) {
    Status ended = End();
    const std::set<int32_t> distinct(pass.tokens.begin(), pass.tokens.end());
    const auto is_pass = [](const Recipe* stack) { return stack->prediction(); };
    const Status begun = Begin(**std::ranges::find_if(stacks_, is_pass),
                               {.rows = pass.tokens.size(),
                                .context = static_cast<uint64_t>(pass.context),
                                .logit_rows = static_cast<uint64_t>(pass.logit_rows),
                                .own_states = pass.own_states},
                               Phase::kDecode, distinct.size());
    if (pass_failed_.ok()) pass_failed_ = ended.ok() ? begun : ended;
  }

  void CountExperts(const books::StepCharges& charges) {
    for (const auto& [layer, tokens] : charges.expert_tokens()) {
      if (layer >= model_.recipe().n_layers) continue;
      const int32_t wanted = layer;
      auto found = std::find_if(report_.experts.begin(), report_.experts.end(), [&](const auto& e) { return e.layer == wanted; });
      if (found == report_.experts.end()) {
        AuditReport::Experts experts;
        experts.layer = layer;
        experts.tokens.resize(tokens.size());
        for (const WeightInfo& w : table_) {
          if (w.layer == layer && w.experts) experts.slice_bytes += w.stored_bytes / w.slices;
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
  const Model& model_;
  const AuditOptions& options_;
  const std::span<const Recipe* const> stacks_;
  const std::span<const WeightInfo> table_;
  const std::span<const DType> types_;
  const PackedWeights& weights_;
  const Shard& shard_;
  LookupDrafter lookup_;
  std::vector<int32_t> tokens_ = options_.prompt;  // and those that followed
  std::vector<int32_t> step_tokens_;
  const Recipe* stack_ = nullptr;  // of the step that runs, or ran last
  books::StepFacts facts_;         // the same
  bool open_ = false;              // it runs
  Status pass_failed_;             // before a pass
  std::unique_ptr<WeightWatch> watch_;
  std::vector<ProcessBooks> books_;  // of the last step, by rank; empty: one process
  std::map<Component, AuditReport::Copy> copies_;
  AuditReport report_;
};

}  // namespace

Result<AuditReport> Audit(Engine& engine, const AuditOptions& options) {
  const ProbedWeights* const probed = engine.probe().weights();
  if (probed == nullptr) return InternalError("the model was not made by LoadModel");
  return Auditor(engine, *probed, options).Run();
}

}  // namespace tally
