#include "engine/exec/executor.h"

namespace tally {
namespace {

std::string SiteText(Site site, std::string_view op) {
  std::string text = site.layer >= 0 ? "layer " + std::to_string(site.layer) + " " : "";
  text += ComponentName(site.component);
  return text + " (" + std::string(op) + ")";
}

}  // namespace

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
    if (!buffer.Resize(bytes_per_thread)) return InternalError("no memory for kernel scratch");
  }
  return {};
}

}  // namespace tally
