// SPDX-License-Identifier: Apache-2.0
// What the tests in a browser share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/npm.h"

namespace tally {

inline constexpr const char* kBrowserSources = TALLY_SOURCE_DIR "/tests/browser";
inline constexpr const char* kBrowserFolder = TALLY_BROWSER_DIR;  // the scripts, and what npm installs for them
inline constexpr const char* kScreenshots = TALLY_SCREENSHOTS;

// Debian's name, and others'; empty: there is none.
inline std::string Chromium() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (HasProgram(name)) return name;
  }
  return "";
}

// Puts `scripts` where they can run. Why that cannot be here; empty where it is done.
inline std::string PrepareBrowser(const std::vector<std::string>& scripts) {
  if (Chromium().empty()) return "no chromium here (scripts/install_deps.sh --ci installs it)";
  std::filesystem::create_directories(kScreenshots);
  return InstallNpm(kBrowserSources, kBrowserFolder, scripts);
}

}  // namespace tally
