// F32 weights by f32 activations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/matmul/matmul_f32.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
void RunF32(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  RunFloat<FormatF32>(job, begin, end, scratch);
}
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(RunF32);
void RunMatJobF32(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  HWY_DYNAMIC_DISPATCH(RunF32)(job, begin, end, scratch);
}
}  // namespace tally
#endif
