// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/decoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "engine/base/finite.h"

namespace tally {
namespace {

// The least magnitude that a cache of the type keeps as infinity; infinity: none.
float KvLimit(KvType type) {
  constexpr float kF16 = 65520;  // rounds to even, beyond 65504
  switch (type) {
    case KvType::kF32: break;
    case KvType::kF16: return kF16;
    case KvType::kBF16: return std::bit_cast<float>(0x7F7F8000u);
    case KvType::kQ8_0: return 127 * kF16;  // its scales are f16
  }
  return std::numeric_limits<float>::infinity();
}

uint8_t RowSetOf(RowsOf rows) { return rows == RowsOf::kLogits ? kLogitRows : rows == RowsOf::kOutputs ? kOutputRows : kAllRows; }

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::Create(const PlanSource& source, const PlanOptions& options, Executor& executor) {
  std::unique_ptr<Decoder> d(new Decoder(options, source.shard, executor));
  TALLY_RETURN_IF_ERROR(MakePlan(source, options, d->plan_));
  d->store_ = source.experts;
  d->layers_ = source.layers;
  const bool counted = d->plan_.own_experts || !d->plan_.fetched.empty();
  for (const PlannedOp& op : d->plan_.ops)
    d->slots_.push_back(executor.Add(op.sites, RowSetOf(op.rows), op.copied, counted && op.rows == RowsOf::kRouted));
  for (int32_t rank = 0; rank < source.shard.ranks; ++rank) {
    d->vocab_.push_back(PartOf(source.recipe.vocab, kShardRows, source.shard.Of(rank)));
    d->experts_.push_back(PartOf(ExpertsOf(source.recipe).n_experts, 1, source.shard.Of(rank)));
  }
  d->bad_rows_.reserve(static_cast<size_t>(options.max_batch));
  d->next_of_expert_.resize(static_cast<size_t>(std::max(ExpertsOf(source.recipe).n_experts, 0)));
  return d;
}

// Groups the (token, slot) pairs of a layer by expert, and by token within an expert.
void Decoder::GroupByExpert(const RouteOp& op) {
  const int64_t k = op.top_k, pairs = op.experts.rows * k;
  const int32_t* chosen = op.experts.data;
  std::fill(next_of_expert_.begin(), next_of_expert_.end(), 0);
  for (int64_t i = 0; i < pairs; ++i) ++next_of_expert_[static_cast<size_t>(chosen[i])];
  groups_ = 0;
  int32_t begin = 0;
  for (size_t e = 0; e < next_of_expert_.size(); ++e) {
    const int32_t rows = next_of_expert_[e];
    next_of_expert_[e] = begin;
    if (rows > 0) {
      plan_.groups[groups_++] = {
          .row_begin = begin, .rows = rows, .slice = static_cast<int64_t>(e), .step_rows = plan_.group_tokens + begin};
    }
    begin += rows;
  }
  for (int64_t i = 0; i < pairs; ++i) {
    const int32_t at = next_of_expert_[static_cast<size_t>(chosen[i])]++;
    plan_.group_tokens[at] = static_cast<int32_t>(i / k);
    plan_.group_slots[at] = static_cast<int32_t>(i);
  }
  if (plan_.own_experts) TakeOwnExperts(op);
}

// Keeps the groups of this process's experts. The outputs of all processes are put together by slot.
void Decoder::TakeOwnExperts(const RouteOp& op) {
  const int64_t pairs = op.experts.rows * op.top_k;
  std::copy_n(plan_.group_slots, pairs, plan_.routed_slots);
  for (GatherPart& part : plan_.routed->parts) part.rows = 0;
  const int64_t all = std::exchange(groups_, 0);
  int64_t begin = 0, rows = 0;
  for (int64_t g = 0; g < all; ++g) {
    RowGroup group = plan_.groups[g];
    const auto owner =
        std::ranges::find_if(experts_, [&](const Span& s) { return group.slice >= s.begin && group.slice < s.end; });
    plan_.routed->parts[static_cast<size_t>(owner - experts_.begin())].rows += group.rows;
    if (owner - experts_.begin() != shard_.rank) continue;
    if (groups_ == 0) begin = group.row_begin;
    group.row_begin -= begin;
    group.slice -= plan_.experts.begin;
    group.step_rows = plan_.group_tokens + group.row_begin;
    rows += group.rows;
    plan_.groups[groups_++] = group;
  }
  std::copy_n(plan_.group_tokens + begin, rows, plan_.group_tokens);
  std::copy_n(plan_.group_slots + begin, rows, plan_.group_slots);
  CountRows(op.experts.rows, rows);
}

// Counts the first `routed` of the plan's routed rows for each of `rows` rows of the step.
void Decoder::CountRows(int64_t rows, int64_t routed) {
  rows_of_row_.assign(static_cast<size_t>(rows), 0);
  for (int64_t i = 0; i < routed; ++i) ++rows_of_row_[static_cast<size_t>(plan_.group_tokens[i])];
  executor_.SetRowCounts(rows_of_row_);
}

// For a batch of n rows.
void Decoder::GroupByHead(int64_t n) {
  for (int64_t h = 0; h < plan_.heads; ++h) {
    plan_.head_groups[h] = {.row_begin = h * n, .rows = n, .slice = h};
    for (int64_t t = 0; t < n; ++t) plan_.head_rows[h * n + t] = static_cast<int32_t>(t * plan_.heads + h);
  }
}

// Rows of a batch by the process that has their embedding. rows[i]: the row of token i; null: row i.
void Decoder::GroupByOwner(std::span<const int32_t> tokens, const int32_t* rows_of) {
  int32_t* to = plan_.embedded_rows;
  plan_.embedded_count = static_cast<int64_t>(tokens.size());
  for (size_t rank = 0; rank < vocab_.size(); ++rank) {
    const Span& rows = vocab_[rank];
    const int32_t* const first = to;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < rows.begin || tokens[i] >= rows.end) continue;
      if (static_cast<int32_t>(rank) == shard_.rank) plan_.owned_ids[to - first] = static_cast<int32_t>(tokens[i] - rows.begin);
      *to++ = rows_of != nullptr ? rows_of[i] : static_cast<int32_t>(i);
    }
    for (GatherRoom* room : plan_.embedded) room->parts[rank].rows = to - first;
    if (static_cast<int32_t>(rank) != shard_.rank) continue;
    plan_.owned = to - first;
    std::copy(first, static_cast<const int32_t*>(to), plan_.owned_rows);
  }
}

// The rows of a batch of n by sequence, for recurrent layers.
void Decoder::GroupBySequence(int64_t n) {
  plan_.runs = 0;
  for (int64_t i = 0; i < n; ++i) {
    const KvRow& row = plan_.kv_rows[i];
    if (row.table >= static_cast<int32_t>(run_of_.size())) run_of_.resize(static_cast<size_t>(row.table) + 1, -1);
    int32_t& run = run_of_[static_cast<size_t>(row.table)];
    if (run < 0) {
      run = static_cast<int32_t>(plan_.runs++);
      plan_.state_runs[run] = {.table = row.table, .position = row.position};
    }
    ++plan_.state_runs[run].rows;
  }
  int32_t begin = 0;
  for (int64_t r = 0; r < plan_.runs; ++r) {
    StateRun& run = plan_.state_runs[r];
    run.begin = begin;
    begin += std::exchange(run.rows, 0);
  }
  for (int64_t i = 0; i < n; ++i) {
    StateRun& run = plan_.state_runs[run_of_[static_cast<size_t>(plan_.kv_rows[i].table)]];
    plan_.state_order[run.begin + run.rows++] = static_cast<int32_t>(i);
  }
  for (int64_t r = 0; r < plan_.runs; ++r) run_of_[static_cast<size_t>(plan_.state_runs[r].table)] = -1;
}

// Sets the plan's rows with given embeddings, and the others.
void Decoder::SetGiven(const StepBatch& batch) {
  plan_.given_count = static_cast<int64_t>(batch.given.size());
  plan_.looked_up = 0;
  if (batch.given.empty()) return;
  size_t given = 0;
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    if (given < batch.given.size() && batch.given[given].row == static_cast<int32_t>(i)) {
      plan_.given_rows[given] = batch.given[given];
      ++given;
      continue;
    }
    plan_.looked_up_ids[plan_.looked_up] = batch.tokens[i];
    plan_.looked_up_rows[plan_.looked_up++] = static_cast<int32_t>(i);
  }
}

void Decoder::FindOutputs(const StepBatch& batch) {
  outputs_.clear();
  logits_of_outputs_.clear();
  std::ranges::set_union(batch.logit_rows, batch.hidden_rows, std::back_inserter(outputs_));
  for (size_t i = 0, logits = 0; i < outputs_.size() && logits < batch.logit_rows.size(); ++i) {
    if (outputs_[i] != batch.logit_rows[logits]) continue;
    logits_of_outputs_.push_back(static_cast<int32_t>(i));
    ++logits;
  }
}

void Decoder::KeepHidden(std::span<const int32_t> hidden_rows) {
  hidden_.clear();
  size_t at = 0;
  for (const int32_t row : hidden_rows) {
    while (outputs_[at] != row) ++at;
    const float* const h = plan_.head_in.Row(static_cast<int64_t>(at));
    hidden_.insert(hidden_.end(), h, h + plan_.head_in.cols);
  }
}

// Moves rows of x, ascending, to its front, in place.
void Decoder::MoveUp(const Mat<float>& x, std::span<const int32_t> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t to = static_cast<int64_t>(i), from = rows[i];
    if (from != to) std::memcpy(x.Row(to), x.Row(from), static_cast<size_t>(x.cols) * sizeof(float));
  }
}

void Decoder::AddBad(BadRow bad) {
  const auto same = std::find_if(bad_rows_.begin(), bad_rows_.end(), [&](const BadRow& b) { return b.row == bad.row; });
  if (same == bad_rows_.end()) return bad_rows_.push_back(std::move(bad));
  same->of_logits |= bad.of_logits;
}

// Finds keys and values that the cache would keep as infinity. Nothing later would show them: an infinite key may only give its position
// the weight 0.
void Decoder::CheckKvRange(const KvStoreOp& op, Site site) {
  if (op.layout.type == KvType::kF32) return;
  const float limit = KvLimit(op.layout.type);
  for (const auto& [what, m] : {std::pair{"key", op.k}, {"value", op.v}}) {
    if (AllBelow(m, limit)) continue;
    for (int64_t r = 0; r < m.rows; ++r) {
      if (AllBelow(m.Rows(r, 1), limit)) continue;
      float most = 0;
      for (int64_t c = 0; c < m.cols; ++c) {
        const float x = m.Row(r)[c];
        if (std::isfinite(x) && std::fabs(x) > std::fabs(most)) most = x;
      }
      char number[32];
      std::snprintf(number, sizeof number, "%.6g", static_cast<double>(most));
      AddBad({.row = static_cast<int32_t>(r),
              .why = "layer " + std::to_string(site.layer) + ": a " + what + " of " + number +
                     " is too large for a KV cache of " + std::string(kKvTypeNames[static_cast<size_t>(op.layout.type)]) + ": " +
                     (op.layout.type == KvType::kBF16 ? "--kv f32" : "--kv bf16") + " has room for it"});
    }
  }
}

// Checks row i of m, or, for logits, of row logit_rows[i] of the batch.
void Decoder::CheckFinite(Mat<const float> m, std::span<const int32_t> logit_rows) {
  if (AllFinite(m)) return;
  for (int64_t r = 0; r < m.rows; ++r) {
    if (AllFinite(m.Rows(r, 1))) continue;
    if (logit_rows.empty()) {
      AddBad({.row = static_cast<int32_t>(r)});
    } else {
      AddBad({.row = logit_rows[static_cast<size_t>(r)], .of_logits = true});
    }
  }
}

Status Decoder::Run(size_t index, int64_t rows, bool reshaped, SequenceStore& cache) {
  PlannedOp& planned = plan_.ops[index];
  const bool routed = planned.rows == RowsOf::kRouted || planned.rows == RowsOf::kSlots;
  reshaped |= planned.rows == RowsOf::kOwned || index == plan_.place || ((plan_.own_experts || !plan_.fetched.empty()) && routed);
  if (reshaped) Reshape(plan_, rows, groups_, planned);
  return std::visit(
      [&](auto& op) -> Status {
        if constexpr (requires { op.tables; }) op.tables = cache.Tables(planned.cache);
        if constexpr (requires { op.states; }) op.states = cache.States(planned.cache);
        if constexpr (std::is_same_v<decltype(op), KvStoreOp&>) CheckKvRange(op, planned.sites[0]);
        const auto run = [&] { return executor_.Run(slots_[index], op, reshaped); };
        TALLY_RETURN_IF_ERROR(around_ ? around_(planned, op.Output(), run) : run());
        if constexpr (std::is_same_v<decltype(op), RouteOp&>) GroupByExpert(op);
        if constexpr (requires { op.group; }) return op.group->status();
        return {};
      },
      planned.op);
}

// Runs the ops of a layer's experts: at once, if all that were chosen are in memory. Else first those that are, while the others are read,
// then these, one after another. Groups share nothing, and their outputs are added up later, so that the bits are the same.
Status Decoder::RunFetched(const Plan::Fetched& fetched, int64_t rows, SequenceStore& cache) {
  FetchOp& fetch = std::get<FetchOp>(plan_.ops[fetched.op].op);
  all_groups_.assign(plan_.groups, plan_.groups + groups_);
  const int64_t routed = all_groups_.empty() ? 0 : all_groups_.back().row_begin + all_groups_.back().rows;
  all_tokens_.assign(plan_.group_tokens, plan_.group_tokens + routed);
  all_slots_.assign(plan_.group_slots, plan_.group_slots + routed);
  uses_.clear();
  group_of_expert_.resize(static_cast<size_t>(fetch.weight.slices));
  for (size_t g = 0; g < all_groups_.size(); ++g) {
    RowGroup& group = all_groups_[g];
    group.step_rows = all_tokens_.data() + group.row_begin;
    uses_.push_back({static_cast<int32_t>(group.slice), group.step_rows[group.rows - 1]});
    group_of_expert_[static_cast<size_t>(group.slice)] = static_cast<int32_t>(g);
  }
  ExpertStore::Visit visit = store_->Begin(static_cast<size_t>(fetch.layer), uses_);
  const std::span<const int32_t> misses = visit.misses();
  missed_.clear();
  for (const int32_t e : misses) missed_.push_back(all_groups_[static_cast<size_t>(group_of_expert_[static_cast<size_t>(e)])]);
  std::ranges::sort(missed_, {}, &RowGroup::slice);
  fetch.chosen = all_groups_;
  fetch.missed = missed_;
  fetch.slots = store_->slots(static_cast<size_t>(fetch.layer));
  fetch.first_uses = visit.first_uses();
  executor_.BookUses(store_->layers()[static_cast<size_t>(fetch.layer)].layer,
                     {.hits = visit.hits().size(),
                      .misses = misses.size(),
                      .first_uses = visit.first_uses(),
                      .disk_bytes = misses.size() * fetch.record_bytes});
  TALLY_RETURN_IF_ERROR(executor_.Run(slots_[fetched.op], fetch, /*reshaped=*/true));
  Status status;
  if (misses.empty()) {
    status = RunPart(fetched, visit.hits(), rows, cache);
  } else {
    if (!visit.hits().empty()) status = RunPart(fetched, visit.hits(), rows, cache);
    executor_.SetContinued(!visit.hits().empty());
    visit.FreeHits();
    for (size_t i = 0; i < misses.size() && status.ok(); ++i) {
      status = visit.Wait(i);
      if (status.ok()) status = RunPart(fetched, misses.subspan(i, 1), rows, cache);
      if (status.ok()) visit.Free(i);
      executor_.SetContinued(true);
    }
    executor_.SetContinued(false);
  }
  // Later ops see the rows of all groups.
  groups_ = static_cast<int64_t>(all_groups_.size());
  std::ranges::copy(all_groups_, plan_.groups);
  for (int64_t g = 0; g < groups_; ++g) plan_.groups[g].step_rows = plan_.group_tokens + plan_.groups[g].row_begin;
  std::ranges::copy(all_tokens_, plan_.group_tokens);
  std::ranges::copy(all_slots_, plan_.group_slots);
  CountRows(rows, routed);
  return status;
}

// Runs the ops for some of the experts.
Status Decoder::RunPart(const Plan::Fetched& fetched, std::span<const int32_t> experts, int64_t rows, SequenceStore& cache) {
  int64_t routed = 0;
  groups_ = 0;
  for (const int32_t e : experts) {
    RowGroup group = all_groups_[static_cast<size_t>(group_of_expert_[static_cast<size_t>(e)])];
    const int64_t from = std::exchange(group.row_begin, routed);
    std::copy_n(all_tokens_.data() + from, group.rows, plan_.group_tokens + routed);
    std::copy_n(all_slots_.data() + from, group.rows, plan_.group_slots + routed);
    for (int64_t r = 0; r < group.rows; ++r) plan_.group_places[routed + r] = static_cast<int32_t>(from + r);
    group.step_rows = plan_.group_tokens + routed;
    plan_.groups[groups_++] = group;
    routed += group.rows;
  }
  CountRows(rows, routed);
  for (size_t i = fetched.op + 1; i < fetched.end; ++i) TALLY_RETURN_IF_ERROR(Run(i, rows, /*reshaped=*/true, cache));
  return {};
}

Result<Mat<const float>> Decoder::Predict(const StepBatch& batch, Mat<const float> hidden, bool normed, SequenceStore& cache) {
  const Mat<float>& to = normed ? plan_.hidden : plan_.given;
  if (hidden.rows > to.rows || hidden.rows != static_cast<int64_t>(batch.tokens.size())) {
    return InternalError("hidden states of " + std::to_string(hidden.rows) + " rows");
  }
  for (int64_t i = 0; i < hidden.rows; ++i) std::copy_n(hidden.Row(i), hidden.cols, to.Row(i));
  return Forward(batch, cache, normed ? plan_.begin : 0);
}

void Decoder::TapStream(size_t next_op, int64_t rows) const {
  for (size_t i = 0; i < plan_.layer_ends.size(); ++i) {
    if (plan_.layer_ends[i] == next_op) stream_tap_(static_cast<int32_t>(i), plan_.x.Rows(0, rows));
  }
}

// Runs ops [first, end) for n rows of the batch.
Status Decoder::RunOps(size_t first, size_t end, int64_t n, bool reshaped, std::span<const int32_t> tokens,
                       SequenceStore& cache) {
  auto fetched = std::ranges::lower_bound(plan_.fetched, first, {}, &Plan::Fetched::op);
  for (size_t i = first; i < end; ++i) {
    if (fetched != plan_.fetched.end() && i == fetched->op) {
      TALLY_RETURN_IF_ERROR(RunFetched(*fetched, n, cache));
      i = fetched->end - 1;
      ++fetched;
      continue;
    }
    if (stream_tap_) [[unlikely]]
      TapStream(i, n);
    if (i == plan_.place && !given_) continue;
    if (i == plan_.layer_lookup && given_ && !plan_.embedded.empty()) GroupByOwner(tokens, nullptr);
    TALLY_RETURN_IF_ERROR(Run(i, n, reshaped, cache));
  }
  return {};
}

// Runs all layers, of which some are read from disk: each when it is in memory. When it has run, its memory is another's.
Status Decoder::RunLayers(int64_t n, bool reshaped, std::span<const int32_t> tokens, SequenceStore& cache) {
  LayerStore::Pass pass = layers_->Begin();
  size_t next = 0;
  for (const Plan::Fetched& streamed : plan_.streamed) {
    TALLY_RETURN_IF_ERROR(RunOps(next, streamed.op, n, reshaped, tokens, cache));
    const size_t layer = static_cast<size_t>(std::get<FetchOp>(plan_.ops[streamed.op].op).layer);
    TALLY_RETURN_IF_ERROR(pass.Wait(layer));
    TALLY_RETURN_IF_ERROR(RunOps(streamed.op, streamed.end, n, reshaped, tokens, cache));
    pass.Free(layer);
    next = streamed.end;
  }
  return RunOps(next, plan_.head, n, reshaped, tokens, cache);
}

Result<Mat<const float>> Decoder::Forward(const StepBatch& batch, SequenceStore& cache, size_t first_op) {
  const int64_t n = static_cast<int64_t>(batch.tokens.size()), logits = static_cast<int64_t>(batch.logit_rows.size());
  if (n == 0 || n > options_.max_batch || logits > options_.max_logit_rows) {
    return InternalError("a batch of " + std::to_string(n) + " rows, " + std::to_string(logits) + " of them with logits");
  }
  for (int64_t i = 0; i < n; ++i) {
    plan_.tokens[i] = batch.tokens[static_cast<size_t>(i)];
    plan_.kv_rows[i] = batch.kv_rows[static_cast<size_t>(i)];
    plan_.positions[i] = batch.positions.empty() ? plan_.kv_rows[i].position : batch.positions[static_cast<size_t>(i)].t;
    if (plan_.heights == nullptr) continue;
    plan_.heights[i] = batch.positions.empty() ? plan_.positions[i] : batch.positions[static_cast<size_t>(i)].h;
    plan_.widths[i] = batch.positions.empty() ? plan_.positions[i] : batch.positions[static_cast<size_t>(i)].w;
  }
  SetGiven(batch);
  // With several rows, groups and tables can change from step to step, so shapes are checked every time; and those of a plan for
  // prediction, whose first ops do not always run.
  const bool given = std::exchange(given_, !batch.given.empty()) || given_;
  const bool reshaped = n > 1 || rows_ != n || plan_.begin > 0 || given, head_reshaped = logits > 1 || logit_rows_ != logits;
  if (reshaped) GroupByHead(n);
  if (plan_.recurrent) GroupBySequence(n);
  const std::span<const int32_t> tokens(plan_.tokens, static_cast<size_t>(n));
  const std::span<const int32_t> looked_up(plan_.looked_up_ids, static_cast<size_t>(plan_.looked_up));
  if (!plan_.embedded.empty()) given_ ? GroupByOwner(looked_up, plan_.looked_up_rows) : GroupByOwner(tokens, nullptr);
  bad_rows_.clear();
  rows_ = 0;  // set again after all ops have run
  plan_.whole = {.row_begin = 0, .rows = n, .slice = 0};
  if (plan_.streamed.empty()) {
    TALLY_RETURN_IF_ERROR(RunOps(first_op, plan_.head, n, reshaped, tokens, cache));
  } else {
    TALLY_RETURN_IF_ERROR(RunLayers(n, reshaped, tokens, cache));
  }
  if (stream_tap_) TapStream(plan_.head, n);
  rows_ = n;
  // Rows without logits are checked too: their keys and values are stored and would fail in a later step.
  if (logits < n) CheckFinite(plan_.x.Rows(0, n), {});
  if (kept_ != nullptr) kept_->assign(plan_.x.data, plan_.x.Row(n));
  hidden_.clear();
  FindOutputs(batch);
  if (const int64_t outputs = static_cast<int64_t>(outputs_.size()); outputs > 0) {
    MoveUp(plan_.x, outputs_);
    const bool outputs_reshaped = outputs > 1 || std::exchange(output_rows_, 0) != outputs;
    for (size_t i = plan_.head; i < plan_.logits_from; ++i) TALLY_RETURN_IF_ERROR(Run(i, outputs, outputs_reshaped, cache));
    output_rows_ = outputs;
    KeepHidden(batch.hidden_rows);
    MoveUp(plan_.head_in, logits_of_outputs_);
  }
  if (logits > 0) {
    logit_rows_ = 0;
    plan_.whole.rows = logits;
    for (size_t i = plan_.logits_from; i < plan_.ops.size(); ++i) TALLY_RETURN_IF_ERROR(Run(i, logits, head_reshaped, cache));
    logit_rows_ = logits;
    if (shard_.rank == 0) CheckFinite(plan_.logits.Rows(0, logits), batch.logit_rows);
  }
  return Mat<const float>(plan_.logits.Rows(0, logits));
}

}  // namespace tally
