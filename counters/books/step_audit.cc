// SPDX-License-Identifier: Apache-2.0
#include "counters/books/step_audit.h"

#include "engine/recipe/shard.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace tally::books {
namespace {

bool Gathered(const ParameterForm& p) {
  return p.component == Component::kEmbedding || p.component == Component::kPositionEmbedding ||
         p.component == Component::kLayerEmbedding;
}

// Name of a weight -> its index.
std::map<std::string, size_t> NamesOf(std::span<const WeightInfo> weights) {
  std::map<std::string, size_t> names;
  for (size_t i = 0; i < weights.size(); ++i) names.emplace(weights[i].name, i);
  return names;
}

// Those of a weight's `touched` elements that no lower rank touched too. A weight with copies is touched whole or not at all, or consists
// of copies.
uint64_t WithoutCopies(const WeightInfo& w, uint64_t touched) {
  if (w.copied == w.parameters()) return 0;
  return touched == w.parameters() ? touched - w.copied : touched;
}

// Bytes of one row of a tensor of this type; transposed tensors: the row's share. FP8: excludes scales, which rows share.
uint64_t RowBytes(DType type, uint64_t cols) {
  if (type == DType::kFP8) return cols;
  return cols * GetDTypeInfo(type).block_bytes / GetDTypeInfo(type).block_size;
}

// `bytes` of shared scales of the tensor `name`, beside the bytes of rows.
Form WithScales(const Form& rows, const std::string& name, uint64_t bytes) {
  return bytes > 0 ? rows + Form::Symbol("scales(" + name + ")", bytes) : rows;
}

class StepAudit {
 public:
  StepAudit(const Recipe& recipe, std::span<const WeightInfo> inventory, std::span<const DType> types, const StepCharges& charges,
            const StepFacts& facts)
      : recipe_(recipe), inventory_(inventory), types_(types), charges_(charges), facts_(facts), names_(NamesOf(inventory)) {}

  std::vector<AuditRow> Take() {
    Work();
    Weights();
    Cache();
    Strays();
    return std::move(rows_);
  }

 private:
  Cost Charged(int32_t layer, Component component) const { return charges_.At(layer, component); }

  void Row(AuditAccount account, int32_t layer, Component component, const Form& form, std::optional<uint64_t> inventory,
           std::optional<uint64_t> ledger, WorkClass work_class = WorkClass::kLinear, std::string tensor = "") {
    rows_.push_back({account, layer, component, work_class, std::move(tensor), form.text(), form.value(), inventory, ledger});
    seen_[{account, layer, component, work_class}] = true;
  }

  void Work() {
    std::map<std::tuple<int32_t, Component, WorkClass>, std::pair<Form, Form>> sums;
    std::vector<std::tuple<int32_t, Component, WorkClass>> order;
    for (const WorkForm& f : WorkForms(recipe_, facts_.work)) {
      const auto key = std::tuple{f.layer, f.component, f.work_class};
      if (sums.find(key) == sums.end()) order.push_back(key);
      sums[key].first += f.flops;
      sums[key].second += f.special;
    }
    for (const auto& key : order) {
      const auto& [layer, component, work_class] = key;
      const Cost& charged = Charged(layer, component);
      Row(AuditAccount::kFlops, layer, component, sums[key].first, std::nullopt, charged.Flops(work_class), work_class);
      Row(AuditAccount::kSpecial, layer, component, sums[key].second, std::nullopt, charged.Special(work_class), work_class);
    }
  }

  // Parameters and rows of a tensor that the step must read: whole tensors, the slices of touched experts, gathered rows.
  std::pair<Form, uint64_t> Read(const ParameterForm& p) const {
    const Form E = Form::Symbol("E", p.cols);
    if (p.component == Component::kPositionEmbedding) {
      return {Form::Symbol("R_p", facts_.distinct_positions) * E, facts_.distinct_positions};
    }
    if (p.component == Component::kLayerEmbedding) {
      return {Form::Symbol("R", facts_.distinct_tokens) * p.touched, facts_.distinct_tokens};
    }
    if (p.component == Component::kEmbedding && !(recipe_.tied_head && facts_.work.logit_rows > 0)) {
      return {Form::Symbol("R", facts_.distinct_tokens) * E, facts_.distinct_tokens};
    }
    if (!p.expert) return {p.count, p.rows * p.slices};
    const uint64_t u = charges_.Union(p.layer);
    return {Form::Symbol("U", u) * p.slice, u * p.rows};
  }

  // Whether the step, or the pass, has the tensor's ops.
  bool Runs(const ParameterForm& p) const { return p.layer < 0 || p.stack == recipe_.stack; }
  // Whether it leaves them out: those of rows with logits without any, and in a pass on its own states the model's last norm.
  bool IsSkipped(const ParameterForm& p) const {
    const bool last_norm = p.component == Component::kOutputNorm;
    if (recipe_.prediction() && last_norm) return facts_.work.own_states;
    return facts_.work.logit_rows == 0 && (last_norm || p.component == Component::kHead || p.component == Component::kHeadProj ||
                                           p.name == "nextn.shared_head_norm");
  }

  void Weights() {
    std::map<std::pair<int32_t, Component>, std::pair<Form, uint64_t>> bytes;  // by site: closed form, inventory
    std::vector<std::pair<int32_t, Component>> order;
    auto add = [&](int32_t layer, Component component, const Form& closed, uint64_t stored) {
      const std::pair key{layer, component};
      if (bytes.find(key) == bytes.end()) order.push_back(key);
      bytes[key].first += closed;
      bytes[key].second += stored;
    };
    for (const ParameterForm& p : ParameterForms(recipe_)) {
      if (!Runs(p)) continue;
      const auto at = names_.find(p.full_name());
      const StepCharges::Weight* const charged = charges_.Find(p.full_name());
      const auto [touched, rows] = Read(p);
      const bool skipped = IsSkipped(p);
      const Form none;
      Row(AuditAccount::kTouched, p.layer, p.component, skipped ? none : touched, std::nullopt,
          charged != nullptr ? std::optional(charged->touched) : 0, WorkClass::kLinear, p.name);
      if (p.expert && charged != nullptr) {
        // Each row is routed to k experts.
        const Form rows_of_experts = Form::Symbol("B", facts_.work.sequences) * Form::Symbol("P", facts_.work.rows) *
                                     Form::Symbol("k", static_cast<uint64_t>(recipe_.all.experts.top_k));
        uint64_t uses = 0;
        for (const uint64_t n : charged->expert_rows) uses += n;
        Row(AuditAccount::kExpertRows, p.layer, p.component, rows_of_experts, std::nullopt, uses, WorkClass::kLinear, p.name);
      }
      if (at == names_.end() || skipped) continue;
      const WeightInfo& w = inventory_[at->second];
      const uint64_t row = RowBytes(types_[at->second], p.cols), all_rows = p.rows * p.slices;
      const Form size = Form::Symbol("b(" + p.name + ")", row);  // stored bytes of a row
      const auto rows_of_file = [&](uint64_t n) { return (w.stored_bytes - w.scale_bytes) / all_rows * n; };
      const auto add_whole = [&](int32_t layer, Component component, const Form& read, uint64_t n) {
        const uint64_t scales = w.scale_bytes / p.slices * (n / p.rows);
        add(layer, component, WithScales(read * size, p.name, scales), rows_of_file(n) + scales);
      };
      if (Gathered(p)) {
        const uint64_t n = p.component == Component::kPositionEmbedding ? facts_.distinct_positions : facts_.distinct_tokens;
        const uint64_t scales = n * w.row_scale_bytes;
        add(p.layer, p.component, WithScales(Form(n) * size, p.name, scales), rows_of_file(n) + scales);
        if (p.component == Component::kEmbedding && recipe_.tied_head && facts_.work.logit_rows > 0) {
          add_whole(-1, Component::kHead, Form(p.rows), p.rows);
        }
      } else {
        add_whole(p.layer, p.component, Form(rows), rows);
      }
    }
    for (const auto& key : order) {
      Row(AuditAccount::kWeightBytes, key.first, key.second, bytes[key].first, bytes[key].second,
          Charged(key.first, key.second).Bytes(ByteKind::kWeightsStored));
    }
  }

  void Cache() {
    for (const CacheForm& f : CacheForms(recipe_, facts_.work, facts_.kv)) {
      Row(AuditAccount::kKvRead, f.layer, f.reads, f.read, std::nullopt, Charged(f.layer, f.reads).Bytes(ByteKind::kKvRead));
      Row(AuditAccount::kKvWritten, f.layer, f.writes, f.written, std::nullopt,
          Charged(f.layer, f.writes).Bytes(ByteKind::kKvWritten));
    }
    for (const StateForm& f : StateForms(recipe_, facts_.work)) {
      const Cost charged = Charged(f.layer, f.component);
      Row(AuditAccount::kStateRead, f.layer, f.component, f.bytes, std::nullopt, charged.Bytes(ByteKind::kStateRead));
      Row(AuditAccount::kStateWritten, f.layer, f.component, f.bytes, std::nullopt, charged.Bytes(ByteKind::kStateWritten));
    }
  }

  // Charges that no closed form expects, and touches of rows that do not exist.
  void Strays() {
    const Form none;
    for (const auto& [site, charged] : charges_.sites()) {
      const auto& [layer, component] = site;
      for (int w = 0; w < kWorkClasses; ++w) {
        const WorkClass work_class = static_cast<WorkClass>(w);
        Stray(AuditAccount::kFlops, layer, component, charged.Flops(work_class), work_class);
        Stray(AuditAccount::kSpecial, layer, component, charged.Special(work_class), work_class);
      }
      Stray(AuditAccount::kWeightBytes, layer, component, charged.Bytes(ByteKind::kWeightsStored));
      Stray(AuditAccount::kKvRead, layer, component, charged.Bytes(ByteKind::kKvRead));
      Stray(AuditAccount::kKvWritten, layer, component, charged.Bytes(ByteKind::kKvWritten));
      Stray(AuditAccount::kStateRead, layer, component, charged.Bytes(ByteKind::kStateRead));
      Stray(AuditAccount::kStateWritten, layer, component, charged.Bytes(ByteKind::kStateWritten));
    }
    uint64_t expected = 0;
    for (const AuditRow& row : rows_) expected += row.account == AuditAccount::kTouched ? row.closed : 0;
    Row(AuditAccount::kTouchedSet, -1, Component::kEmbedding, Form::Symbol("sum_of_rows", expected), std::nullopt,
        charges_.touched());
    if (charges_.bad_touches() > 0) {
      Row(AuditAccount::kTouchedSet, -1, Component::kEmbedding, none, std::nullopt, charges_.bad_touches());
    }
  }
  void Stray(AuditAccount account, int32_t layer, Component component, uint64_t charged,
             WorkClass work_class = WorkClass::kLinear) {
    if (charged > 0 && !seen_.contains({account, layer, component, work_class})) {
      Row(account, layer, component, Form(), std::nullopt, charged, work_class);
    }
  }

  const Recipe& recipe_;
  std::span<const WeightInfo> inventory_;
  std::span<const DType> types_;
  const StepCharges& charges_;
  const StepFacts& facts_;
  const std::map<std::string, size_t> names_;
  std::vector<AuditRow> rows_;
  std::map<std::tuple<AuditAccount, int32_t, Component, WorkClass>, bool> seen_;
};

}  // namespace

StepCharges::StepCharges(const Ledger& ledger, Phase phase) {
  for (const auto& [site, account] : ledger.sites(phase)) sites_[{site.layer, site.component}] = account.useful;
  const std::vector<WeightInfo>& weights = ledger.weights();
  for (size_t i = 0; i < weights.size(); ++i) {
    const WeightId id = static_cast<WeightId>(i);
    Weight& w = weights_[weights[i].name];
    w.touched = ledger.touched().touched(id);
    if (!weights[i].experts) continue;
    w.slices = ledger.touched().slices(id);
    for (uint32_t e = 0; e < weights[i].slices; ++e) w.expert_rows.push_back(ledger.touched().uses(id, e));
  }
  Finish(weights);
  touched_ = ledger.last_step().parameters_touched;
  bad_ = ledger.touched().bad();
}

StepCharges::StepCharges(std::span<const ProcessBooks> ranks, Phase phase, bool own_experts) {
  for (const ProcessBooks& books : ranks) {
    for (const SiteAccount& a : books.accounts) {
      if (a.phase == phase) sites_[{a.site.layer, a.site.component}] += tally::WithoutCopies(a.account);
    }
    size_t at = 0;
    for (size_t i = 0; i < books.weights.size(); ++i) {
      const WeightInfo& info = books.weights[i];
      Weight& w = weights_[info.name];
      const uint64_t touched = WithoutCopies(info, books.touched[i]);
      w.touched += touched;
      touched_ += touched;
      if (!info.experts) continue;
      const auto rows = std::span(books.expert_rows).subspan(at, info.slices);
      at += info.slices;
      const uint32_t slices = static_cast<uint32_t>(books.touched[i] / (info.rows * info.cols));
      if (own_experts) {
        w.slices += slices;
        w.expert_rows.insert(w.expert_rows.end(), rows.begin(), rows.end());
      } else if (w.expert_rows.empty()) {  // every rank has a part of each
        w.slices = slices;
        w.expert_rows.assign(rows.begin(), rows.end());
      }
    }
    bad_ += books.bad_touches;
  }
  for (const ProcessBooks& books : ranks) Finish(books.weights);
}

void StepCharges::Finish(std::span<const WeightInfo> weights) {
  for (const WeightInfo& info : weights) {
    if (!info.experts) continue;
    const Weight& w = weights_[info.name];
    unions_[info.layer] = std::max(unions_[info.layer], w.slices);
    std::vector<uint64_t>& of_layer = expert_tokens_[info.layer];
    if (of_layer.empty()) of_layer = w.expert_rows;  // all tensors of a layer have the same counts
  }
}

Cost StepCharges::At(int32_t layer, Component component) const {
  const auto at = sites_.find({layer, component});
  return at == sites_.end() ? Cost() : at->second;
}

const StepCharges::Weight* StepCharges::Find(const std::string& name) const {
  const auto at = weights_.find(name);
  return at == weights_.end() ? nullptr : &at->second;
}

uint64_t StepCharges::Union(int32_t layer) const {
  const auto at = unions_.find(layer);
  return at == unions_.end() ? 0 : at->second;
}

std::string_view AccountName(AuditAccount account) {
  static constexpr std::array<std::string_view, kAuditAccounts> kNames = {"parameters stored",
                                                                          "parameters touched",
                                                                          "touched, all",
                                                                          "expert rows",
                                                                          "FLOPs",
                                                                          "special",
                                                                          "weight bytes",
                                                                          "KV bytes read",
                                                                          "KV bytes written",
                                                                          "state bytes read",
                                                                          "state bytes written",
                                                                          "bytes sent",
                                                                          "bytes received",
                                                                          "FLOPs in vain",
                                                                          "KV bytes written in vain"};
  return kNames[static_cast<size_t>(account)];
}

std::vector<AuditRow> AuditStored(std::span<const Recipe* const> stacks, std::span<const WeightInfo> inventory,
                                  std::span<const DType> types) {
  std::vector<AuditRow> rows;
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < inventory.size(); ++i) by_name.emplace(inventory[i].name, i);
  std::vector<ParameterForm> forms;
  for (const Recipe* const stack : stacks) {
    for (ParameterForm& p : ParameterForms(*stack)) {
      if (p.stack == stack->stack) forms.push_back(std::move(p));
    }
  }
  for (const ParameterForm& p : forms) {
    const auto at = by_name.find(p.full_name());
    const uint64_t held = at != by_name.end() ? inventory[at->second].parameters() : 0;
    rows.push_back({AuditAccount::kStored, p.layer, p.component, WorkClass::kLinear, p.name, p.count.text(), p.count.value(),
                    held, std::nullopt});
    if (at == by_name.end()) continue;
    const WeightInfo& w = inventory[at->second];
    const Form bytes = WithScales(
        Form(p.rows * p.slices) * Form::Symbol("b(" + p.name + ")", RowBytes(types[at->second], p.cols)), p.name, w.scale_bytes);
    rows.push_back({AuditAccount::kWeightBytes, p.layer, p.component, WorkClass::kLinear, p.name, bytes.text(), bytes.value(),
                    w.stored_bytes, std::nullopt});
    by_name.erase(at);
  }
  for (const auto& [name, i] : by_name) {  // learned tensors without a closed form
    rows.push_back({AuditAccount::kStored, inventory[i].layer, inventory[i].component, WorkClass::kLinear, name, "0", 0,
                    inventory[i].parameters(), std::nullopt});
  }
  return rows;
}

std::vector<AuditRow> AuditStored(std::span<const Recipe* const> stacks, std::span<const WeightInfo> inventory,
                                  std::span<const DType> types, std::span<const ProcessBooks> ranks) {
  struct Held {
    uint64_t parameters = 0, bytes = 0;
  };
  std::map<std::pair<int32_t, std::string>, Held> held;
  for (const ProcessBooks& books : ranks) {
    for (const WeightInfo& w : books.weights) {
      const std::string prefix = w.layer < 0 ? "" : "blk." + std::to_string(w.layer) + ".";
      Held& h = held[{w.layer, w.name.substr(prefix.size())}];
      h.parameters += w.parameters() - w.copied;
      if (w.copied == w.parameters()) continue;
      h.bytes += w.stored_bytes - (w.stored_bytes - w.scale_bytes) / w.parameters() * w.copied -
                 (w.stored_bytes - w.scale_bytes) % w.parameters() * w.copied / w.parameters();
    }
  }
  std::vector<AuditRow> rows = AuditStored(stacks, inventory, types);
  for (AuditRow& row : rows) {
    const Held& h = held[{row.layer, row.tensor}];
    row.ledger = row.account == AuditAccount::kStored ? h.parameters : h.bytes;
  }
  return rows;
}

std::vector<AuditRow> AuditStep(const Recipe& recipe, std::span<const WeightInfo> inventory, std::span<const DType> types,
                                const StepCharges& charges, const StepFacts& facts) {
  return StepAudit(recipe, inventory, types, charges, facts).Take();
}

std::vector<AuditRow> AuditStep(const Recipe& recipe, std::span<const WeightInfo> inventory, std::span<const DType> types,
                                const Ledger& ledger, const StepFacts& facts) {
  return AuditStep(recipe, inventory, types, StepCharges(ledger, facts.phase), facts);
}

std::map<int32_t, std::vector<uint64_t>> ExpertTokens(const Ledger& ledger) {
  std::map<int32_t, std::vector<uint64_t>> tokens;
  for (size_t i = 0; i < ledger.weights().size(); ++i) {
    const WeightInfo& w = ledger.weights()[i];
    if (!w.experts) continue;
    std::vector<uint64_t>& of_layer = tokens[w.layer];
    if (!of_layer.empty()) continue;  // all tensors of a layer have the same counts
    for (uint32_t e = 0; e < w.slices; ++e) of_layer.push_back(ledger.touched().uses(static_cast<WeightId>(i), e));
  }
  return tokens;
}

std::vector<AuditRow> AuditCommunication(const Recipe& recipe, const Shard& shard, std::span<const ProcessBooks> ranks,
                                         std::span<const int32_t> tokens, const StepFacts& facts) {
  std::vector<RankRows> rows = EmbeddedRows(recipe, static_cast<int32_t>(ranks.size()), tokens);
  for (size_t r = 0; r < ranks.size(); ++r) {
    rows[r].routed.assign(recipe.layers.size(), 0);
    size_t at = 0;
    for (const WeightInfo& w : ranks[r].weights) {
      if (!w.experts) continue;
      uint64_t routed = 0;
      for (uint32_t e = 0; e < w.slices; ++e) routed += ranks[r].expert_rows[at++];
      rows[r].routed[static_cast<size_t>(w.layer)] = routed;  // the same for all tensors of a layer
    }
  }
  std::vector<AuditRow> audit;
  for (int32_t r = 0; r < static_cast<int32_t>(ranks.size()); ++r) {
    using Place = std::pair<int32_t, Component>;
    std::map<Place, Cost> charged;
    for (const SiteAccount& a : ranks[static_cast<size_t>(r)].accounts) {
      if (a.phase == facts.phase) charged[{a.site.layer, a.site.component}] += a.account.useful;
    }
    const auto row = [&](AuditAccount account, const Place& place, const Form& form, ByteKind kind) {
      audit.push_back({account, place.first, place.second, WorkClass::kCommunication, "", form.text(), form.value(), std::nullopt,
                       charged[place].Bytes(kind), r});
    };
    std::map<Place, std::pair<Form, Form>> forms;  // a dense feed-forward and experts may share a site
    for (const CommunicationForm& f : CommunicationForms(recipe, shard.Of(r), facts.work, rows, facts.gathered)) {
      const auto [at, first] = forms.try_emplace({f.layer, f.component}, f.sent, f.received);
      if (!first) at->second = {at->second.first + f.sent, at->second.second + f.received};
    }
    for (const auto& [place, form] : forms) {
      row(AuditAccount::kSent, place, form.first, ByteKind::kSent);
      row(AuditAccount::kReceived, place, form.second, ByteKind::kReceived);
      charged.erase(place);
    }
    const Form none;
    for (const auto& [place, cost] : std::map(charged)) {  // where no closed form expects any
      if (cost.Bytes(ByteKind::kSent) > 0) row(AuditAccount::kSent, place, none, ByteKind::kSent);
      if (cost.Bytes(ByteKind::kReceived) > 0) row(AuditAccount::kReceived, place, none, ByteKind::kReceived);
    }
  }
  return audit;
}

std::vector<AuditRow> AuditInVain(const Recipe& recipe, const StepFacts& facts, uint64_t rejected, const Cost& in_vain) {
  std::array<uint64_t, kWorkClasses> flops{};
  uint64_t written = 0;
  for (uint64_t context = facts.work.context - rejected + 1; context <= facts.work.context; ++context) {
    const Workload row{.context = context};
    for (const WorkForm& f : WorkForms(recipe, row)) flops[static_cast<size_t>(f.work_class)] += f.flops.value();
    for (const CacheForm& f : CacheForms(recipe, row, facts.kv)) written += f.written.value();
  }
  std::vector<AuditRow> rows;
  const auto add = [&](AuditAccount account, WorkClass work_class, uint64_t closed, uint64_t ledger) {
    if (closed == 0 && ledger == 0) return;
    const std::string form = Form::Symbol("sum_of_rows", closed).text();
    rows.push_back({account, -1, Component::kEmbedding, work_class, "", form, closed, std::nullopt, ledger});
  };
  for (int c = 0; c < kWorkClasses; ++c) {
    const WorkClass of = static_cast<WorkClass>(c);
    add(AuditAccount::kFlopsInVain, of, flops[static_cast<size_t>(c)], in_vain.Flops(of));
  }
  add(AuditAccount::kKvWrittenInVain, WorkClass::kLinear, written, in_vain.Bytes(ByteKind::kKvWritten));
  return rows;
}

}  // namespace tally::books
