// SPDX-License-Identifier: Apache-2.0
// A folder for a test's files that goes away with the object.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tally {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tally-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) {
      path_ = pattern;
    } else {
      ADD_FAILURE() << pattern << ": " << std::strerror(errno);
    }
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code error;
    if (path_ != kNowhere) std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  // The path of the file, which holds these bytes and nothing else.
  std::string Write(std::string_view name, std::string_view bytes) const {
    const std::string path = *this / name;
    std::error_code error;  // removed first: ext4 flushes a file that is cut and written again, which takes milliseconds
    std::filesystem::remove(path, error);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  size_t Entries() const {
    size_t n = 0;
    for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(path_)) ++n;
    return n;
  }

 private:
  static constexpr const char* kNowhere = "/dev/null";  // no file can be below it
  std::string path_ = kNowhere;
};

// The whole of a file; empty where there is none.
inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace tally
