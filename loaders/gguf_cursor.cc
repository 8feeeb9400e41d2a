// SPDX-License-Identifier: Apache-2.0
#include "loaders/gguf_cursor.h"

#include <algorithm>

#include "engine/base/checked.h"
#include "loaders/inventory/message.h"

namespace tally::internal {

GgufCursor::GgufCursor(const FileReader& file, const std::string& path)
    : file_(file), path_(path), end_(std::min(file.size(), kMaxGgufHeaderBytes)) {
  buffer_.resize(std::min<uint64_t>(end_, 256 << 10));
}

Status GgufCursor::Error(std::string_view what) const {
  return BadInput(Printable(path_) + ": " + place_ + ": " + std::string(what));
}

Status GgufCursor::Need(uint64_t n, std::string_view what) const {
  if (n <= remaining()) return {};
  if (n <= file_.size() - position()) {
    return Error("metadata and tensor descriptions take more than the limit of " + std::to_string(kMaxGgufHeaderBytes >> 20) +
                 " MiB");
  }
  return Error("expected " + std::string(what) + " at byte " + std::to_string(position()) + ", but the file ends at byte " +
               std::to_string(file_.size()));
}

Status GgufCursor::NeedItems(uint64_t count, uint64_t bytes_each, std::string_view what) const {
  return Need(CheckedMul(count, bytes_each).value_or(UINT64_MAX), what);
}

Status GgufCursor::ReadBytes(void* out, uint64_t n, std::string_view what) {
  TALLY_RETURN_IF_ERROR(Need(n, what));
  auto* to = static_cast<uint8_t*>(out);
  while (n > 0) {
    if (buffer_at_ == buffer_size_) {
      const uint64_t start = position();
      const size_t size = std::min<uint64_t>(buffer_.size(), end_ - start);
      buffer_start_ = start;
      buffer_at_ = buffer_size_ = 0;  // nothing valid, should the read fail
      TALLY_RETURN_IF_ERROR(file_.ReadAt(start, {buffer_.data(), size}));
      buffer_size_ = size;
    }
    const size_t piece = std::min<uint64_t>(n, buffer_size_ - buffer_at_);
    std::memcpy(to, buffer_.data() + buffer_at_, piece);
    to += piece;
    buffer_at_ += piece;
    n -= piece;
  }
  return {};
}

Status GgufCursor::ReadString(std::string* out, uint64_t limit, std::string_view what) {
  uint64_t length = 0;
  TALLY_RETURN_IF_ERROR(Read(&length, what));
  if (length > limit) {
    return Error("the length of " + std::string(what) + " is " + std::to_string(length) + " bytes; the limit is " +
                 std::to_string(limit));
  }
  // The text is made only when it is needed: vocabularies have hundreds of thousands of strings.
  if (length > remaining()) return Need(length, std::string(what) + " (" + std::to_string(length) + " bytes)");
  out->resize(length);
  return ReadBytes(out->data(), length, what);
}

}  // namespace tally::internal
