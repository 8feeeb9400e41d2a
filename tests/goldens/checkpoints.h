// SPDX-License-Identifier: Apache-2.0
// The checkpoints that the repo itself holds, for tests that walk them all.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/api/tally.h"

namespace tally {

// Directories and GGUF files below tests/goldens, sorted; the bundled model last.
inline std::vector<std::string> CheckpointsOfTheRepo() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TALLY_SOURCE_DIR "/tests/goldens")) {
    if (entry.path().filename() == "config.json") paths.push_back(entry.path().parent_path().string());
    if (entry.path().extension() == ".gguf") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  paths.push_back(DemoModelPath().value());
  return paths;
}

// Their names as gtest wants them.
inline std::string CheckpointName(const testing::TestParamInfo<std::string>& info) {
  const std::filesystem::path path(info.param);
  std::string name = path.parent_path().filename().string() + "_" + path.filename().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace tally
