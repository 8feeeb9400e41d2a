// MXFP4 weights by int8 or f32 activations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/matmul/matmul_mxfp4.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
void RunMXFP4(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  RunQuantised<FormatMXFP4>(job, begin, end, scratch);
}
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(RunMXFP4);
void RunMatJobMXFP4(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  HWY_DYNAMIC_DISPATCH(RunMXFP4)(job, begin, end, scratch);
}
}  // namespace tally
#endif
