// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share: files for what reads files, and what must hold of any outcome. A target that finds something
// wrong says what and aborts, which libFuzzer and the replaying test both take for a find.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/format.h"
#include "engine/base/status.h"
#include "loaders/inventory/inventory.h"

namespace tally::fuzz {

inline void Require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz target: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

// What a bad file must give: the kind of error that it is, in one line that can be shown as it stands.
inline void RequireOneLine(const Status& status) {
  Require(status.code() == StatusCode::kBadInput, "not a bad-input error: " + status.message());
  Require(!status.message().empty() && status.message().size() < 4096, "a message of no use: " + status.message());
  Require(Printable(status.message()) == status.message(), "not one printable line: " + Printable(status.message()));
}

// A folder in memory, where there is one, for the files of one target; removed at the end of the process.
class Scratch {
 public:
  Scratch() {
    std::error_code error;
    const std::filesystem::path memory = "/dev/shm";
    const bool there = std::filesystem::is_directory(memory, error);
    path_ = ((there ? memory : std::filesystem::temp_directory_path()) / "tally-fuzz-XXXXXX").string();
    Require(::mkdtemp(path_.data()) != nullptr, "no temporary folder");
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, std::string_view bytes) const {
    std::string path = path_ + "/" + name;
    std::FILE* file = std::fopen(path.c_str(), "wb");
    Require(file != nullptr, "a file cannot be written");
    Require(std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size(), "a file cannot be written");
    Require(std::fclose(file) == 0, "a file cannot be written");
    return path;
  }
  void Remove(const std::string& name) const {
    std::error_code error;
    std::filesystem::remove(path_ + "/" + name, error);
  }

 private:
  std::string path_;
};

// Several files in one input.
inline constexpr std::string_view kNextFile = "\n%%\n";

inline std::vector<std::string_view> Files(std::string_view input) {
  std::vector<std::string_view> files;
  for (size_t at; (at = input.find(kNextFile)) != input.npos; input.remove_prefix(at + kNextFile.size())) {
    files.push_back(input.substr(0, at));
  }
  files.push_back(input);
  return files;
}

// Every tensor of an accepted checkpoint lies in its file and has the bytes that its shape asks for.
inline void RequireSound(const Inventory& inventory) {
  for (const StoredTensor& t : inventory.tensors) {
    Require(t.file < inventory.files.size(), "a tensor in no file");
    const uint64_t size = inventory.files[t.file].size;
    Require(t.offset <= size && t.bytes <= size - t.offset, "a tensor beyond the end of its file");
    Require(!t.other_type.empty() || StoredBytes(t.dtype, t.elements()) == t.bytes,
            "a tensor whose bytes are not those of its shape");
    Require(inventory.Find(t.name) == &t, "a tensor that is not found by its name");
  }
}

}  // namespace tally::fuzz
