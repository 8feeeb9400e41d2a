// SPDX-License-Identifier: Apache-2.0
// Latent attention: a head's rows of the matrix that makes keys and values, those of its key, then those of its value.
#pragma once

#include "models/binding.h"

namespace tally {

inline RowMap LatentKeyRows(const Recipe& r) {
  const uint64_t n = static_cast<uint64_t>(r.all.latent.nope_dim), v = static_cast<uint64_t>(r.all.latent.v_dim);
  return {0, n, n + v};
}
inline RowMap LatentValueRows(const Recipe& r) {
  const uint64_t n = static_cast<uint64_t>(r.all.latent.nope_dim), v = static_cast<uint64_t>(r.all.latent.v_dim);
  return {n, v, n + v};
}

}  // namespace tally
