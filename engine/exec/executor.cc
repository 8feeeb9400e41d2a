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

bool Executor::BeginRun(Ledger::TariffId tariff) {
  if (tariff.generation() != run_.generation) return false;
  if (run_.next != kNoTariff) ++breaks_;
  ChargeRun();
  run_.first = tariff;
  run_.next = {tariff.value + 1};
  return true;
}

void Executor::ChargeRun() {
  if (run_.next == kNoTariff) return;
  if (!ledger_->Charge(run_.first, static_cast<uint32_t>(run_.next.value - run_.first.value))) ledger_->CountDefect();
  run_.next = kNoTariff;
}

uint64_t Executor::EstimatedGain(const Cost& useful) const {
  // A core: 16 operations or 8 bytes a nanosecond, 4 nanoseconds for an exp or a division.
  const uint64_t bytes = useful.TotalBytes() - useful.Bytes(ByteKind::kWeightsStored);  // what is read is what was packed
  const uint64_t alone = std::max(useful.TotalFlops() / 16, bytes / 8) + 4 * useful.TotalSpecial();
  return alone - alone / static_cast<uint64_t>(team_.threads());
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
  for (AlignedBuffer<uint8_t>& buffer : scratch_) {
    if (!buffer.Resize(bytes_per_thread)) return BadInput("not enough memory for the scratch of kernels");
  }
  return {};
}

}  // namespace tally
