// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/kv_store/kv_layout.h"

#include "engine/kernels/kv_store/kv_formats-inl.h"

namespace tally {

size_t KvLayout::HeadBytes() const {
  return WithKvFormat(*this, [&](auto format) { return format.HeadBytes(*this); });
}

size_t KvLayout::KeyBytes() const {
  return WithKvFormat(*this, [&](auto format) { return format.KeyBytes(*this); });
}

size_t KvLayout::ValueBytes() const {
  return WithKvFormat(*this, [&](auto format) { return format.ValueBytes(*this); });
}

size_t KvLayout::PaddedValueBytes() const {
  return WithKvFormat(*this, [&](auto format) { return format.PaddedValueBytes(*this); });
}

float KvLayout::Key(const uint8_t* block, int64_t head, int64_t lane, int64_t d) const {
  return WithKvFormat(*this, [&](auto format) {
    return format.Key(*this, block + static_cast<size_t>(head) * format.HeadBytes(*this), lane, d);
  });
}

float KvLayout::Value(const uint8_t* block, int64_t head, int64_t lane, int64_t d) const {
  return WithKvFormat(*this, [&](auto format) {
    return format.Value(*this, block + static_cast<size_t>(head) * format.HeadBytes(*this), lane, d);
  });
}

void KvLayout::Store(uint8_t* block, int64_t head, int64_t lane, const float* k, const float* v) const {
  WithKvFormat(
      *this, [&](auto format) { format.Store(*this, block + static_cast<size_t>(head) * format.HeadBytes(*this), lane, k, v); });
}

}  // namespace tally
