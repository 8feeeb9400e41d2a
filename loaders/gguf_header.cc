// SPDX-License-Identifier: Apache-2.0
// GgufHeaderBytes: a walk over lengths alone. What the header says is read, and checked, by ReadGguf.
#include <bit>
#include <cstring>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "loaders/checks.h"
#include "loaders/gguf_cursor.h"
#include "loaders/gguf_types.h"
#include "loaders/loaders.h"

namespace tally {
namespace {

class Walk {
 public:
  explicit Walk(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  uint64_t position() const { return at_; }
  // False: the bytes end before.
  bool Skip(uint64_t n) {
    if (n > bytes_.size() - at_) return false;
    at_ += n;
    return true;
  }
  template <class T>
  bool Read(T* value) {
    static_assert(std::endian::native == std::endian::little);
    if (sizeof(T) > bytes_.size() - at_) return false;
    std::memcpy(value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  bool SkipString() {
    uint64_t length = 0;
    return Read(&length) && Skip(length);
  }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t at_ = 0;
};

enum class Step : uint8_t { kDone, kMore, kBad };

Step SkipValue(Walk& walk) {
  uint32_t type = 0;
  if (!walk.Read(&type)) return Step::kMore;
  uint64_t count = 1;
  if (type == internal::kGgufArray) {
    if (!walk.Read(&type) || !walk.Read(&count)) return Step::kMore;
    if (type == internal::kGgufArray) return Step::kBad;  // ReadGguf has none of these either
  }
  const uint64_t bytes_each = internal::GgufValueBytes(type);
  if (bytes_each == 0) return Step::kBad;
  if (type != internal::kGgufString) {
    return walk.Skip(CheckedMul(count, bytes_each).value_or(UINT64_MAX)) ? Step::kDone : Step::kMore;
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (!walk.SkipString()) return Step::kMore;
  }
  return Step::kDone;
}

}  // namespace

Result<std::optional<uint64_t>> GgufHeaderBytes(std::span<const uint8_t> beginning, const std::string& place) {
  const auto more = [&]() -> Result<std::optional<uint64_t>> {
    if (beginning.size() < internal::kMaxGgufHeaderBytes) return std::optional<uint64_t>();
    return BadInput(place + ": metadata and tensor descriptions take more than the limit of " +
                    std::to_string(internal::kMaxGgufHeaderBytes >> 20) + " MiB");
  };
  Walk walk(beginning);
  uint32_t magic = 0, version = 0;
  uint64_t tensors = 0, keys = 0;
  if (!walk.Read(&magic) || !walk.Read(&version)) return more();
  if (magic != 0x46554747) return BadInput(place + ": expected a GGUF file, which begins with the letters GGUF");
  if (version != 2 && version != 3) {
    return BadInput(place + ": GGUF version " + std::to_string(version) + "; versions 2 and 3 can be read");
  }
  if (!walk.Read(&tensors) || !walk.Read(&keys)) return more();
  if (tensors > internal::kMaxTensors || keys > internal::kMaxMetadataKeys) {
    return BadInput(place + ": " + std::to_string(tensors) + " tensors and " + std::to_string(keys) +
                    " metadata keys; the limits are " + std::to_string(internal::kMaxTensors) + " and " +
                    std::to_string(internal::kMaxMetadataKeys));
  }
  for (uint64_t i = 0; i < keys; ++i) {
    if (!walk.SkipString()) return more();
    const Step step = SkipValue(walk);
    if (step == Step::kBad) return BadInput(place + ": metadata key " + std::to_string(i + 1) + " has a value of no known type");
    if (step == Step::kMore) return more();
  }
  for (uint64_t i = 0; i < tensors; ++i) {
    uint32_t dimensions = 0;
    if (!walk.SkipString() || !walk.Read(&dimensions)) return more();
    if (dimensions > internal::kGgufMaxDims) {
      return BadInput(place + ": tensor " + std::to_string(i + 1) + " has " + std::to_string(dimensions) + " dimensions");
    }
    if (!walk.Skip(uint64_t{8} * dimensions + 12)) return more();  // sizes, type, offset
  }
  return std::optional<uint64_t>(walk.position());
}

}  // namespace tally
