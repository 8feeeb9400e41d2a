// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/values.h"

namespace tally {

Value BytesJson(const Cost& cost) {
  Value bytes = Value::Object();
  for (size_t k = 0; k < kByteKindNames.size(); ++k) {
    bytes[kByteKindNames[k]] = cost.Bytes(static_cast<ByteKind>(k));
  }
  return bytes;
}

Value FlopsByClass(const Cost& cost) {
  Value classes = Value::Object();
  for (size_t c = 0; c < kWorkClassNames.size(); ++c) {
    const uint64_t flops = cost.Flops(static_cast<WorkClass>(c));
    if (flops > 0) classes[kWorkClassNames[c]] = flops;
  }
  return classes;
}

namespace {

Value UsesJson(const ExpertUses& u) {
  return {{"hits", u.hits}, {"misses", u.misses}, {"first_uses", u.first_uses}, {"bytes_from_disk", u.disk_bytes}};
}

}  // namespace

Value ExpertsJson(const Ledger& ledger) {
  Value phases;
  for (int i = 0; i < kPhases; ++i) {
    const std::span<const ExpertUses> layers = ledger.expert_uses(static_cast<Phase>(i));
    ExpertUses sum;
    Value rows = Value::Array();
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      if (layers[layer] == ExpertUses()) continue;  // a dense one
      sum += layers[layer];
      Value row = {{"layer", layer}};
      row.Update(UsesJson(layers[layer]));
      rows.Add(row);
    }
    if (sum == ExpertUses()) continue;
    Value phase = UsesJson(sum);
    phase["layers"] = rows;
    phases[kPhaseNames[static_cast<size_t>(i)]] = phase;
  }
  return phases;
}

Value StreamedLayersJson(const Ledger& ledger) {
  Value phases;
  for (int i = 0; i < kPhases; ++i) {
    uint64_t sum = 0;
    Value rows = Value::Array();
    for (const auto& [layer, bytes] : books::LayerBytesFromDisk(ledger, static_cast<Phase>(i))) {
      sum += bytes;
      rows.Add({{"layer", layer}, {"bytes_from_disk", bytes}});
    }
    if (sum > 0) phases[kPhaseNames[static_cast<size_t>(i)]] = {{"bytes_from_disk", sum}, {"layers", rows}};
  }
  return phases;
}

Value NotRunJson(const books::NotRun& n) {
  return {{"tensors", n.tensors}, {"parameters", n.parameters}, {"bytes", n.bytes}, {"names", n.names}};
}

Value ParametersJson(const books::RunFigures& f) {
  return {{"total", f.parameters.total},
          {"total_as_stored", f.parameters.total + f.head_copy},
          {"touched", Number(f.touched_per_decode_step)},
          {"touched_in_run", f.touched_in_run},
          {"active", {{"all", f.parameters.active_all}, {"head", f.parameters.active_head}, {"none", f.parameters.active_none}}}};
}

}  // namespace tally
