// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/matmul/openblas.h"

#include "engine/base/shared_library.h"

namespace tally {
namespace {

// cblas_sgemm and its constants, as every CBLAS has them (https://netlib.org/blas/blast-forum/cinterface.pdf): declared here, so that
// nothing of OpenBLAS is needed to build.
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;
using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                       const float* b, int ldb, float beta, float* c, int ldc);

struct Library {
  // The last file is the one found at build time, if any.
  SharedLibrary file = {"OpenBLAS", "libopenblas0-pthread", {"libopenblas.so.0", "libopenblas.0.dylib", TALLY_OPENBLAS}};
  Sgemm sgemm = file.Find("cblas_sgemm");
  void (*set_threads)(int) = file.Find("openblas_set_num_threads");
  Library() {
    if (file.status().ok()) set_threads(1);  // the team runs all threads
  }
};

const Library& OpenBlas() {
  static const Library library;
  return library;
}

}  // namespace

Status LoadOpenBlas() { return OpenBlas().file.status(); }

void OpenBlasGemmNT(int64_t m, int64_t n, int64_t k, const float* x, const float* w, float* y, int64_t y_stride) {
  const int depth = static_cast<int>(k);
  OpenBlas().sgemm(kRowMajor, kNoTranspose, kTranspose, static_cast<int>(m), static_cast<int>(n), depth, 1.0f, x, depth, w, depth,
                   0.0f, y, static_cast<int>(y_stride));
}

}  // namespace tally
