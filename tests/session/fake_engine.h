// SPDX-License-Identifier: Apache-2.0
// An engine without a network: the next token is a function of the last one and its position, so that what is made of an engine
// can be tested by hand.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/tally.h"
#include "engine/recipe/recipe.h"

namespace tally {

// Each id is one of the given byte strings; ids in `ends` are control tokens.
class FakeTokenizer final : public Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> bytes, std::vector<int32_t> ends = {})
      : bytes_(std::move(bytes)), ends_(std::move(ends)) {}
  Result<std::vector<int32_t>> Encode(std::string_view, EncodeOptions) const override { return BadInput("not needed"); }
  Result<std::vector<int32_t>> EncodeSegments(std::span<const TextSegment>, size_t) const override {
    return BadInput("not needed");
  }
  std::string ControlText(int32_t id) const override { return IsControl(id) ? bytes_[static_cast<size_t>(id)] : ""; }
  std::string TokenBytes(int32_t id) const override {
    return id >= 0 && id < vocab_size() ? bytes_[static_cast<size_t>(id)] : "";
  }
  std::string Decode(std::span<const int32_t> ids) const override {
    std::string out;
    for (const int32_t id : ids) out += TokenBytes(id);
    return out;
  }
  bool DropsLeadingSpace() const override { return false; }
  bool IsControl(int32_t id) const override { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }
  int32_t vocab_size() const override { return static_cast<int32_t>(bytes_.size()); }
  int32_t bos() const override { return -1; }
  std::vector<int32_t> eos() const override { return ends_; }
  std::string Description() const override { return "fake"; }

 private:
  std::vector<std::string> bytes_;
  std::vector<int32_t> ends_;
};

class FakeModel final : public Model {
 public:
  const Recipe& recipe() const override { return recipe_; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  const Status& tokenizer_status() const override { return tokenizer_status_; }
  const std::vector<std::string>& notes() const override { return notes_; }
  const Result<std::vector<ChatTemplateSource>>& chat_templates() const override { return chat_templates_; }
  const MemoryPlan& memory_plan() const override { return plan_; }
  const ParameterCounts& parameters() const override { return parameters_; }
  const books::NotRun& not_run() const override { return not_run_; }
  std::string Description() const override { return "fake"; }
  std::span<const DType> matrix_types() const override { return {}; }

  Recipe recipe_;
  std::vector<std::string> notes_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Status tokenizer_status_;
  Result<std::vector<ChatTemplateSource>> chat_templates_ = std::vector<ChatTemplateSource>();
  MemoryPlan plan_;
  ParameterCounts parameters_;
  books::NotRun not_run_;
};

class FakeEngine : public Engine, public Probe {
 public:
  explicit FakeEngine(int32_t vocab, int64_t context = 64) : model_(std::make_shared<FakeModel>()) {
    model_->recipe_.vocab = vocab;
    model_->plan_.context = context;
    next = [vocab](int32_t token, int64_t) { return (token + 1) % vocab; };
    Cost cost;
    cost.AddFlops(WorkClass::kLinear, 1000, Arith::kInt8);
    cost.AddFlops(WorkClass::kAttention, 10);
    cost.AddFlops(WorkClass::kNorm, 7);
    cost.AddBytes(ByteKind::kWeightsPacked, 4000);
    cost.AddBytes(ByteKind::kKvRead, 96);
    op_ = ledger_.AddOp({{.site = {-1, Component::kHead}, .units = {{Amount::kRows, cost, cost}}}});
  }

  std::function<int32_t(int32_t token, int64_t position)> next;
  std::function<void()> on_step;           // before each
  std::function<float(size_t row)> noise;  // added to a step's rows, to spoil them
  int64_t batch = 8;
  int64_t logit_rows = 8;
  int64_t drafts = 0;  // of logit_rows
  size_t sequences = 100;
  int64_t room = 1 << 20;      // positions of all sequences together
  int fail_at = -1;            // the step that fails
  int32_t spoiled_token = -1;  // its sequence fails
  struct Stepped {
    std::vector<int32_t> tokens;
    std::vector<bool> wanted;
    std::vector<int32_t> sequences;
    Phase phase;
  };
  std::vector<Stepped> steps;

  const MemoryPlan& memory_plan() const override { return model_->plan_; }
  int64_t max_batch() const override { return batch; }
  KvType kv_type() const override { return KvType::kF16; }
  int64_t max_logit_rows() const override { return logit_rows; }
  Result<int32_t> NewSequence() override {
    if (lengths_.size() >= sequences) return NoRoom("all sequences are in use");
    lengths_[++last_id_] = 0;
    return last_id_;
  }
  Result<int32_t> Fork(int32_t, int64_t length) override {
    lengths_[++last_id_] = length;
    return last_id_;
  }
  Result<int32_t> Copy(int32_t sequence) override { return Fork(sequence, lengths_.at(sequence)); }
  using Engine::NewSequenceFor, Engine::Reusable;
  Result<int32_t> NewSequenceFor(std::string_view key, std::span<const int32_t> tokens, std::span<const PrefixRow>) override {
    const int64_t length = Reusable(key, tokens);
    TALLY_ASSIGN_OR_RETURN(const int32_t sequence, NewSequence());
    lengths_[sequence] = length;
    return sequence;
  }
  int64_t Reusable(std::string_view key, std::span<const int32_t> tokens, std::span<const PrefixRow>) const override {
    int64_t most = 0;
    for (const auto& [of, text] : remembered_) {
      const auto common = std::mismatch(text.begin(), text.end(), tokens.begin(), tokens.end()).first - text.begin();
      if (of == key) most = std::max<int64_t>(most, common);
    }
    return most;
  }
  void Remember(int32_t sequence, std::string_view key, std::span<const int32_t> tokens, int32_t) override {
    const std::span<const int32_t> ran = tokens.first(std::min(tokens.size(), static_cast<size_t>(lengths_.at(sequence))));
    for (auto& [of, text] : remembered_) {
      if (of != key ||
          !std::equal(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), ran.size())), ran.begin()))
        continue;
      if (text.size() < ran.size()) text.assign(ran.begin(), ran.end());
      return;
    }
    remembered_.push_back({std::string(key), {ran.begin(), ran.end()}});
  }
  int64_t Length(int32_t sequence) const override { return lengths_.at(sequence); }
  Status Truncate(int32_t sequence, int64_t length) override {
    lengths_.at(sequence) = length;
    return {};
  }
  int64_t draft_rows() const override { return drafts; }
  Status KeepDrafts(int32_t sequence, int64_t accepted) override {
    const auto [bill, drafted] = drafted_[sequence];
    drafted_.erase(sequence);
    ledger_.SettleDrafts(bill, static_cast<uint64_t>(accepted));
    lengths_.at(sequence) -= drafted - accepted;
    return {};
  }
  void Free(int32_t sequence) override { lengths_.erase(sequence); }
  Status Export(int32_t, const std::function<Status(std::span<const uint8_t>)>&) const override { return BadInput("not needed"); }
  Result<uint64_t> ExportedBytes(int32_t) const override { return BadInput("not needed"); }
  Result<int32_t> Import(const std::function<Status(std::span<uint8_t>)>&) override { return BadInput("not needed"); }
  // A position takes a byte.
  uint64_t KvBudget() const override { return static_cast<uint64_t>(room); }
  uint64_t KvBytesInUse() const override {
    uint64_t bytes = 0;
    for (const auto& [id, length] : lengths_) bytes += static_cast<uint64_t>(length);
    return bytes;
  }
  uint64_t KvBytesOf(int32_t sequence) const override { return static_cast<uint64_t>(Length(sequence)); }
  uint64_t KvBytesFor(int64_t positions) const override { return static_cast<uint64_t>(positions); }
  uint64_t Fingerprint() const override { return 0; }
  size_t live_sequences() const { return lengths_.size(); }

  Result<StepOutput> Step(std::span<const BatchRow> rows) override {
    if (on_step) on_step();
    if (fail_at == static_cast<int>(steps.size())) return InternalError("broken on purpose");
    if (static_cast<int64_t>(rows.size()) > batch) return InternalError("too many rows");
    const auto wanted = std::count_if(rows.begin(), rows.end(), [](const BatchRow& r) { return r.want_logits; });
    if (wanted > logit_rows) return InternalError("too many rows of logits");
    const bool decode = std::all_of(rows.begin(), rows.end(), [](const BatchRow& r) { return r.generated; });
    Stepped stepped;
    stepped.phase = decode ? Phase::kDecode : Phase::kPrefill;
    logits_.clear();
    logit_rows_.clear();
    failed_.clear();
    int32_t out = 0;
    FailSome(rows);
    const int32_t vocab = model_->recipe_.vocab;
    std::vector<BookedRow> booked;
    for (const BatchRow& r : rows) {
      if (Failed(r.sequence)) continue;
      booked.push_back({.phase = r.generated ? Phase::kDecode : Phase::kPrefill,
                        .logits = r.want_logits,
                        .again = r.again,
                        .bill = r.bill,
                        .draft = r.draft});
      if (r.draft) drafted_[r.sequence] = {r.bill, drafted_[r.sequence].second + 1};
    }
    ledger_.BeginStep(booked);
    ledger_.Charge(op_, RowAmounts(booked.size()));
    for (const BatchRow& row : rows) {
      if (Failed(row.sequence)) {
        if (row.want_logits) logit_rows_.push_back(-1);
        continue;
      }
      stepped.tokens.push_back(row.token);
      stepped.wanted.push_back(row.want_logits);
      stepped.sequences.push_back(row.sequence);
      const int64_t position = lengths_.at(row.sequence)++;
      if (!row.want_logits) continue;
      logit_rows_.push_back(out++);
      const int32_t best = next(row.token, position);
      for (int32_t id = 0; id < vocab; ++id) {
        logits_.push_back((id == best ? 20.0f : -static_cast<float>(std::abs(id - best))) + (noise ? noise(rows.size()) : 0.0f));
      }
    }
    ledger_.EndStep();
    steps.push_back(std::move(stepped));
    const Mat<const float> logits(logits_.data(), out, vocab);
    if (tap_) tap_({-1, Component::kHead}, "matmul", logits);
    return StepOutput{.logits = logits, .logit_rows = logit_rows_, .failed = failed_};
  }
  Ledger& ledger() override { return ledger_; }
  Result<std::vector<ProcessBooks>> Books() override { return std::vector<ProcessBooks>{BooksOf(ledger_, "")}; }
  const Model& model() const override { return *model_; }
  FakeModel& fake_model() { return *model_; }
  std::string_view target() const override { return "FAKE"; }
  bool used_blas() const override { return false; }
  int threads() const override { return 1; }
  void SetTap(std::function<void(Site, std::string_view, Mat<const float>)> tap) override { tap_ = std::move(tap); }
  void SetStreamTap(std::function<void(int32_t, Mat<const float>)> tap) override { (void)tap; }
  void SetRecorder(Recorder) override {}
  void EnableExplain() override {}
  std::vector<std::string> Explanations() const override { return {}; }
  void SetBeforePass(std::function<void(const PredictionPass&)>) override {}
  Probe& probe() override { return *this; }

 private:
  bool Failed(int32_t sequence) const {
    return std::any_of(failed_.begin(), failed_.end(), [&](const SequenceError& e) { return e.sequence == sequence; });
  }
  static CostAmounts RowAmounts(size_t rows) {
    CostAmounts n;
    n[Amount::kCalls] = 1;
    n[Amount::kRows] = rows;
    return n;
  }
  void FailSome(std::span<const BatchRow> rows) {
    int64_t used = 0;
    for (const auto& [id, length] : lengths_) used += length;
    for (const BatchRow& row : rows) {
      if (row.token == spoiled_token && !Failed(row.sequence)) failed_.push_back({row.sequence, NotFinite("spoiled")});
    }
    for (size_t i = 0; i < rows.size();) {  // the rows of a sequence stand together
      size_t end = i;
      while (end < rows.size() && rows[end].sequence == rows[i].sequence) ++end;
      const int64_t n = static_cast<int64_t>(end - i);
      if (!Failed(rows[i].sequence)) {
        if (used + n > room) {
          failed_.push_back({rows[i].sequence, NoRoom("the cache is full")});
        } else {
          used += n;
        }
      }
      i = end;
    }
  }

  std::shared_ptr<FakeModel> model_;
  std::map<int32_t, int64_t> lengths_;
  std::map<int32_t, std::pair<int32_t, int64_t>> drafted_;  // by sequence: the bill and the rows, until KeepDrafts
  int32_t last_id_ = -1;
  std::vector<std::pair<std::string, std::vector<int32_t>>> remembered_;
  Ledger ledger_;
  uint32_t op_ = 0;
  std::vector<float> logits_;
  std::vector<int32_t> logit_rows_;
  std::vector<SequenceError> failed_;
  std::function<void(Site, std::string_view, Mat<const float>)> tap_;
};

}  // namespace tally
