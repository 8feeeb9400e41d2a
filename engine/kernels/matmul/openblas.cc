// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/matmul/openblas.h"

#include <dlfcn.h>

#include <string>
#include <string_view>

namespace tally {
namespace {

#ifdef __APPLE__
constexpr const char* kSystemName = "libopenblas.0.dylib";
#else
constexpr const char* kSystemName = "libopenblas.so.0";
#endif

// cblas_sgemm and its constants, as every CBLAS has them (https://netlib.org/blas/blast-forum/cinterface.pdf): declared here, so that
// nothing of OpenBLAS is needed to build.
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;
using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                       const float* b, int ldb, float beta, float* c, int ldc);

struct Library {
  Sgemm sgemm = nullptr;
  Status status;
};

Library Load() {
  Library library;
  // Tries the name that the system's loader knows, then the path found at build time, if any was.
  void* handle = dlopen(kSystemName, RTLD_NOW | RTLD_LOCAL);
  const std::string why = handle == nullptr ? dlerror() : "";  // NOLINT(concurrency-mt-unsafe): thread-local by POSIX
  if (constexpr std::string_view kFound = TALLY_OPENBLAS; handle == nullptr && !kFound.empty()) {
    handle = dlopen(kFound.data(), RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) {
    library.status = BadInput("OpenBLAS cannot be loaded (Debian, Ubuntu: apt-get install libopenblas0-pthread): " + why);
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
  OpenBlas().sgemm(kRowMajor, kNoTranspose, kTranspose, static_cast<int>(m), static_cast<int>(n), depth, 1.0f, x, depth, w, depth,
                   0.0f, y, static_cast<int>(y_stride));
}

}  // namespace tally
