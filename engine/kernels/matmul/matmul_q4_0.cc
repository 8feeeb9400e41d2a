// Q4_0 weights by int8 or f32 activations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/matmul/matmul_q4_0.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
void RunQ4_0(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  RunQuantised<FormatQ4_0>(job, begin, end, scratch);
}
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(RunQ4_0);
void RunMatJobQ4_0(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  HWY_DYNAMIC_DISPATCH(RunQ4_0)(job, begin, end, scratch);
}
}  // namespace tally
#endif
