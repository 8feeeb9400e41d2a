// SPDX-License-Identifier: Apache-2.0
// A file of lines, read one by one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace tally {

struct TextLine {
  uint64_t number = 0;  // from 1
  uint64_t end = 0;     // bytes of the file up to and with its newline
  std::string text = {};
  bool ended = true;  // by a newline; else the file ends in it
  bool cut = false;   // it is longer than a line may be: the text is its beginning
};

class LineReader {
 public:
  // kBadInput: the file cannot be read.
  static Result<LineReader> Open(const std::string& path, size_t longest_line);
  // The next line; none: the file has ended. kBadInput: it cannot be read.
  Result<std::optional<TextLine>> Next();

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  LineReader(std::string path, std::FILE* file, size_t longest_line);
  Status Fill();

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  size_t longest_;
  std::vector<char> buffer_;
  size_t at_ = 0, size_ = 0;  // of the buffer
  uint64_t number_ = 0, read_ = 0;
};

}  // namespace tally
