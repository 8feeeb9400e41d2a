// SPDX-License-Identifier: Apache-2.0
// A buffered, bounds-checked walk through the header of a GGUF file. Nothing is allocated before the bytes
// that justify it are known to be there.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "loaders/loaders.h"

namespace tally::internal {

// Metadata and tensor descriptions together. The largest vocabularies take some 20 MB.
inline constexpr uint64_t kMaxGgufHeaderBytes = uint64_t{256} << 20;

class GgufCursor {
 public:
  GgufCursor(const FileReader& file, const std::string& path);

  uint64_t position() const { return buffer_start_ + buffer_at_; }
  uint64_t remaining() const { return end_ - position(); }

  // The place in the file, for messages: "metadata key 'general.name'".
  void SetPlace(std::string place) { place_ = std::move(place); }
  Status Error(std::string_view what) const;

  // An error if fewer than `n` bytes are left; `what` says what would have been in them ("a string of 7 bytes").
  Status Need(uint64_t n, std::string_view what) const;
  Status NeedItems(uint64_t count, uint64_t bytes_each, std::string_view what) const;

  Status ReadBytes(void* out, uint64_t n, std::string_view what);
  // Length and bytes; longer than `limit` is an error.
  Status ReadString(std::string* out, uint64_t limit, std::string_view what);

  template <class T>
  Status Read(T* out, std::string_view what) {
    static_assert(std::is_arithmetic_v<T> && std::endian::native == std::endian::little);
    return ReadBytes(out, sizeof(T), what);
  }

 private:
  const FileReader& file_;
  const std::string& path_;
  std::string place_ = "header";
  uint64_t end_ = 0;  // the file's, or the header limit if that comes first
  std::vector<uint8_t> buffer_;
  uint64_t buffer_start_ = 0;  // of buffer_ in the file
  size_t buffer_at_ = 0, buffer_size_ = 0;
};

}  // namespace tally::internal
