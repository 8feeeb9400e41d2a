#include "engine/kernels/matmul/openblas.h"

#include <cblas.h>
#include <dlfcn.h>

#include <string>

namespace tally {
namespace {

#ifdef __APPLE__
constexpr const char* kSystemName = "libopenblas.0.dylib";
#else
constexpr const char* kSystemName = "libopenblas.so.0";
#endif

struct Library {
  decltype(&cblas_sgemm) sgemm = nullptr;
  Status status;
};

Library Load() {
  Library library;
  // Tries the name that the system's loader knows, then the path found at build time.
  void* handle = dlopen(kSystemName, RTLD_NOW | RTLD_LOCAL);
  const std::string why = handle == nullptr ? dlerror() : "";  // NOLINT(concurrency-mt-unsafe): thread-local by POSIX
  if (handle == nullptr) handle = dlopen(TALLY_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    library.status = BadInput("OpenBLAS cannot be loaded: " + why);
    return library;
  }
  library.sgemm = reinterpret_cast<decltype(library.sgemm)>(dlsym(handle, "cblas_sgemm"));
  const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "openblas_set_num_threads"));
  if (library.sgemm == nullptr || set_threads == nullptr) {
    library.status = BadInput(std::string(kSystemName) + " is not OpenBLAS: it lacks cblas_sgemm or openblas_set_num_threads");
    return library;
  }
  set_threads(1);  // the team runs all threads
  return library;
}

const Library& OpenBlas() {
  static const Library library = Load();
  return library;
}

}  // namespace

Status LoadOpenBlas() { return OpenBlas().status; }

void OpenBlasGemmNT(int64_t m, int64_t n, int64_t k, const float* x, const float* w, float* y, int64_t y_stride) {
  const int depth = static_cast<int>(k);
  OpenBlas().sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(m), static_cast<int>(n), depth, 1.0f, x, depth, w,
                   depth, 0.0f, y, static_cast<int>(y_stride));
}

}  // namespace tally
