// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "engine/base/format.h"
#include "engine/base/system_error.h"

namespace tally {
namespace {

constexpr size_t kBuffer = size_t{1} << 16;

Status CannotRead(const std::string& path, int error_number) { return SystemError("cannot read " + Quote(path), error_number); }

}  // namespace

LineReader::LineReader(std::string path, std::FILE* file, size_t longest_line)
    : path_(std::move(path)), file_(file), longest_(longest_line), buffer_(kBuffer) {}

Result<LineReader> LineReader::Open(const std::string& path, size_t longest_line) {
  std::FILE* const file = std::fopen(path.c_str(), "rbe");
  if (file == nullptr) return CannotRead(path, errno);
  return LineReader(path, file, longest_line);
}

Status LineReader::Fill() {
  errno = 0;
  at_ = 0;
  size_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
  return size_ == 0 && std::ferror(file_.get()) != 0 ? CannotRead(path_, errno != 0 ? errno : EIO) : Status();
}

Result<std::optional<TextLine>> LineReader::Next() {
  TextLine line;
  line.number = ++number_;
  line.ended = false;
  for (bool begun = false; !line.ended; begun = true) {
    if (at_ == size_) TALLY_RETURN_IF_ERROR(Fill());
    if (size_ == 0) {
      if (!begun) return std::optional<TextLine>();
      break;
    }
    const char* const begin = buffer_.data() + at_;
    const void* const newline = std::memchr(begin, '\n', size_ - at_);
    const size_t n = newline != nullptr ? static_cast<size_t>(static_cast<const char*>(newline) - begin) : size_ - at_;
    const size_t kept = std::min(n, longest_ - line.text.size());
    line.text.append(begin, kept);
    line.cut = line.cut || kept < n;
    line.ended = newline != nullptr;
    const size_t taken = n + (line.ended ? 1 : 0);
    at_ += taken;
    read_ += taken;
  }
  line.end = read_;
  return std::optional(std::move(line));
}

}  // namespace tally
