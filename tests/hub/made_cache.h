// SPDX-License-Identifier: Apache-2.0
// A cache of the hub made by hand, as pulling makes it.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace tally::hub {

class MadeCache {
 public:
  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

  explicit MadeCache(const std::string& folder) : folder_(folder) {}
  // A repository with these files, each the copy of another or a text. `pulled`: Tally has fetched it, and knows what else there is.
  void Add(const std::string& org, const std::string& name, const std::map<std::string, std::string>& files, bool pulled = true) {
    namespace fs = std::filesystem;
    const fs::path repository = Repository(org, name), snapshot = repository / "snapshots" / kCommit;
    for (const char* part : {"blobs", "refs"}) fs::create_directories(repository / part);
    fs::create_directories(snapshot);
    Write(repository / "refs/main", kCommit);
    std::string siblings, written;
    for (const auto& [path, text] : files) {
      std::string digest = std::to_string(++made_);
      digest.insert(0, 64 - digest.size(), 'a');
      written += digest + "\n";
      const fs::path blob = repository / "blobs" / digest;
      if (text.starts_with('/')) {
        fs::copy_file(text, blob);
      } else {
        Write(blob, text);
      }
      fs::create_directories((snapshot / path).parent_path());
      fs::create_symlink(fs::relative(blob, (snapshot / path).parent_path()), snapshot / path);
      const std::string size = std::to_string(fs::file_size(blob));
      siblings += (siblings.empty() ? "" : ",") + std::string(R"({"rfilename":")") + path + R"(","size":)" + size +
                  R"(,"lfs":{"sha256":")" + digest + R"(","size":)" + size + "}}";
    }
    if (!pulled) return;
    fs::create_directories(repository / ".tally");
    Write(repository / ".tally/written", written);
    Write(repository / ".tally" / (std::string(kCommit) + ".json"),
          R"({"sha":")" + std::string(kCommit) + R"(","siblings":[)" + siblings + "]}");
  }
  std::filesystem::path Repository(const std::string& org, const std::string& name) const {
    return folder_ / ("models--" + org + "--" + name);
  }
  std::filesystem::path Place(const std::string& org, const std::string& name, const std::string& path) const {
    return Repository(org, name) / "snapshots" / kCommit / path;
  }
  std::string folder() const { return folder_.string(); }

 private:
  static void Write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

  std::filesystem::path folder_;
  int made_ = 0;
};

}  // namespace tally::hub
