// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/executor.h"

#include <algorithm>

namespace tally {
namespace {

std::string SiteText(Site site, std::string_view op) {
  std::string text = site.layer >= 0 ? "layer " + std::to_string(site.layer) + " " : "";
  text += ComponentName(site.component);
  return text + " (" + std::string(op) + ")";
}

}  // namespace

size_t Executor::Add(std::vector<Site> sites, uint8_t of, CopiedWork copied, bool counted_rows) {
  slots_.push_back({.sites = std::move(sites), .of = of, .copied = std::move(copied), .counted_rows = counted_rows});
  return slots_.size() - 1;
}

void Executor::BeginStep(std::span<const BookedRow> rows) {
  if (const std::string_view target = HwyTargetName(); target != target_) {
    target_ = target;
    ++version_;
  }
  phase_ = PhaseOf(rows);
  if (ledger_ != nullptr) ledger_->BeginStep(rows);
}

void Executor::SetLedger(Ledger* ledger) {
  if (ledger != nullptr && ledger != charged_) {
    for (Slot& slot : slots_) slot.charged = kNotCharged;
    charged_ = ledger;
  }
  if (ledger != ledger_) ++version_;  // ops that were set up without a ledger have no index in it
  ledger_ = ledger;
}

uint64_t Executor::SharedGain(const Estimate& e, const CostAmounts& amounts) const {
  uint64_t flops = 0, bytes = 0, special = 0;
  for (size_t a = 0; a < kAmounts; ++a) {
    flops += e.flops[a] * amounts[a];
    bytes += e.bytes[a] * amounts[a];
    special += e.special[a] * amounts[a];
  }
  // Assumes per core 16 operations or 8 bytes per nanosecond, and 4 nanoseconds for a special operation.
  const uint64_t alone = std::max(flops / 16, bytes / 8) + 4 * special;
  return alone - alone / static_cast<uint64_t>(team_.threads());
}

void Executor::AddEstimate(const Cost& useful, size_t amount, Estimate& estimate) {
  estimate.flops[amount] += useful.TotalFlops();
  // Kernels read packed weights.
  estimate.bytes[amount] += useful.TotalBytes() - useful.Bytes(ByteKind::kWeightsStored) - useful.Bytes(ByteKind::kWeightsDisk);
  estimate.special[amount] += useful.TotalSpecial();
}

Status Executor::Annotate(Site site, std::string_view op, Status status) {
  if (status.ok()) return status;
  return {status.code(), SiteText(site, op) + ": " + status.message()};
}

Status Executor::NoKernel(Site site, std::string_view op) { return InternalError(SiteText(site, op) + ": no kernel can run it"); }

void Executor::Explain(Site site, std::string_view op, std::string_view kernel, const std::string& reasons) {
  explanations_[std::string(ComponentName(site.component)) + " " + std::string(op)] = std::string(kernel) + reasons;
}

Status Executor::ReserveScratch(size_t bytes_per_thread) {
  if (scratch_.empty()) scratch_.resize(static_cast<size_t>(team_.threads()));
  if (bytes_per_thread <= scratch_bytes_) return {};
  for (AlignedBuffer<uint8_t>& buffer : scratch_) {
    if (!buffer.Resize(bytes_per_thread)) return NoRoom("not enough memory for the scratch of kernels");
  }
  scratch_bytes_ = bytes_per_thread;
  return {};
}

}  // namespace tally
