// SPDX-License-Identifier: Apache-2.0
// Packages of the npm registry that a test works with, in the versions that its package-lock.json names.
#pragma once

#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace tally {

// The exit code, -1: it was ended by a signal.
inline int Shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inline bool HasProgram(const std::string& name) { return Shell("command -v '" + name + "' >/dev/null 2>&1") == 0; }

// Copies package.json, package-lock.json and `scripts` from `sources` to `folder`, and installs the packages there unless they are.
// Why that cannot be here (no node, no registry); empty where it is done.
inline std::string InstallNpm(const std::string& sources, const std::string& folder, const std::vector<std::string>& scripts) {
  namespace fs = std::filesystem;
  for (const char* tool : {"node", "npm"}) {
    if (!HasProgram(tool)) return std::string(tool) + " is absent";
  }
  fs::create_directories(folder);
  std::vector<std::string> files = {"package.json", "package-lock.json"};
  files.insert(files.end(), scripts.begin(), scripts.end());
  for (const std::string& file : files)
    fs::copy_file(sources + "/" + file, folder + "/" + file, fs::copy_options::overwrite_existing);
  const std::string lock = ReadAll(sources + "/package-lock.json"), done = folder + "/installed", log = folder + "/npm.log";
  if (fs::exists(done) && ReadAll(done) == lock) return "";
  if (Shell("cd '" + folder + "' && npm ci --ignore-scripts --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000 >'" +
            log + "' 2>&1") != 0) {
    // Only a registry that cannot be reached is a reason to do without: a package that is another one than was locked is not.
    const std::string said = ReadAll(log);
    static const std::regex network(
        "ENOTFOUND|EAI_AGAIN|ECONN|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET|code E[45][0-9][0-9]");
    EXPECT_TRUE(std::regex_search(said, network)) << "npm ci in " << folder << ": " << said;
    return "npm could not install the packages: " + said.substr(0, 300);
  }
  std::ofstream(done, std::ios::binary) << lock;
  return "";
}

}  // namespace tally
