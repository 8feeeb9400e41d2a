// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "counters/books/books.h"
#include "engine/base/format.h"

namespace tally::books {
namespace {

double PerSecond(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

}  // namespace

std::string WithThousands(uint64_t n) { return tally::WithThousands(n); }
std::string WithThousands(double x) { return tally::WithThousands(x); }

std::map<int32_t, uint64_t> LayerBytesFromDisk(const Ledger& ledger, Phase phase) {
  std::map<int32_t, uint64_t> layers;
  if (!ledger.expert_uses(phase).empty()) return layers;
  for (const auto& [site, account] : ledger.sites(phase)) {
    const uint64_t bytes = account.useful.Bytes(ByteKind::kWeightsDisk);
    if (bytes > 0) layers[site.layer] += bytes;
  }
  return layers;
}

RunFigures MeasureRun(const Ledger& ledger, const ParameterCounts& parameters, const RunInput& input) {
  RunFigures f;
  f.prompt_tokens = input.prompt_tokens;
  f.generated_tokens = input.generated_tokens;
  f.prompt_seconds = input.prompt_seconds;
  f.generate_seconds = input.generate_seconds;
  f.forced_tokens = input.forced_tokens;
  f.prompt_tokens_per_second = PerSecond(static_cast<double>(input.prompt_tokens), input.prompt_seconds);
  f.threads = input.threads;
  f.target = input.target;
  f.used_blas = input.used_blas;

  const Account& decode = ledger.total(Phase::kDecode);
  f.decode_steps = ledger.steps(Phase::kDecode);
  const DraftWork& drafts = ledger.drafts();
  f.drafted = drafts.rows;
  f.accepted = drafts.accepted;
  f.rejected_flops = static_cast<double>(drafts.in_vain.TotalFlops());
  f.rejected_bytes = static_cast<double>(drafts.in_vain.MovedBytes());
  f.predicting_flops = static_cast<double>(drafts.predicting.TotalFlops());
  f.predicting_bytes = static_cast<double>(drafts.predicting.MovedBytes());
  f.decode_tokens = ledger.rows(Phase::kDecode) - drafts.rejected;
  f.decode_tokens_per_second = PerSecond(static_cast<double>(f.decode_tokens), input.generate_seconds);
  const double tokens = f.decode_tokens > 0 ? static_cast<double>(f.decode_tokens) : 1;
  for (int c = 0; c < kWorkClasses; ++c) {
    RunFigures::Work& work = f.work[c];
    const WorkClass work_class = static_cast<WorkClass>(c);
    work.useful = static_cast<double>(decode.useful.Flops(work_class)) / tokens;
    work.executed = static_cast<double>(decode.executed.Flops(work_class)) / tokens;
    work.special = static_cast<double>(decode.useful.Special(work_class)) / tokens;
    f.all.useful += work.useful;
    f.all.executed += work.executed;
    f.all.special += work.special;
    for (int a = 0; a < kAriths; ++a) {
      work.useful_by_type[a] = static_cast<double>(decode.useful.Flops(work_class, static_cast<Arith>(a))) / tokens;
      f.all.useful_by_type[a] += work.useful_by_type[a];
    }
  }
  for (int k = 0; k < kByteKinds; ++k)
    f.bytes_per_token[k] = static_cast<double>(decode.useful.Bytes(static_cast<ByteKind>(k))) / tokens;
  for (const ExpertUses& layer : ledger.expert_uses(Phase::kPrefill)) f.prompt_experts += layer;
  for (const ExpertUses& layer : ledger.expert_uses(Phase::kDecode)) f.decode_experts += layer;
  for (const auto& [phase, sum] : {std::pair{Phase::kPrefill, &f.prompt_layer_bytes}, {Phase::kDecode, &f.decode_layer_bytes}}) {
    const std::map<int32_t, uint64_t> layers = LayerBytesFromDisk(ledger, phase);
    for (const auto& [layer, bytes] : layers) *sum += bytes;
    f.streamed_layers = std::max<uint64_t>(f.streamed_layers, layers.size());
  }
  const uint64_t moved = decode.useful.MovedBytes();
  f.decode_gigabytes_per_second = PerSecond(static_cast<double>(moved), input.generate_seconds) / 1e9;

  f.parameters = parameters;
  f.head_copy = input.head_copy;
  if (f.decode_steps > 0) {
    f.touched_per_decode_step =
        static_cast<double>(ledger.parameters_touched(Phase::kDecode)) / static_cast<double>(f.decode_steps);
  }
  f.touched_in_run = ledger.touched().parameters_ever();
  for (const WeightInfo& w : ledger.weights()) f.tied = f.tied || w.kind == WeightInfo::Kind::kTiedEmbeddingHead;
  f.bad_touches = ledger.touched().bad();
  return f;
}

}  // namespace tally::books
