// SPDX-License-Identifier: Apache-2.0
// What commands remember from one run to the next, for its owner alone: $XDG_STATE_HOME/tally, without that variable
// ~/.local/state/tally (https://specifications.freedesktop.org/basedir-spec).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tally::app {

std::string StateFolder();  // empty: nobody has said where

// A model that a command has loaded.
struct UsedModel {
  int64_t when = 0;       // seconds since 1970
  std::string path = {};  // of its file or folder, without links
  std::string name = {};  // what to type for it: an absolute path, a name of the hub, demo
};
// Those that were loaded last, newest first, each once. Empty where nothing is kept.
std::vector<UsedModel> UsedModels();
// Remembers that `given`, which is at `path`, was loaded now. That it cannot be written is no error.
void RememberModel(const std::string& given, const std::string& path);

}  // namespace tally::app
