// SPDX-License-Identifier: Apache-2.0
// docs/scaling.md: what ranks send each other by the closed forms, and what that predicts of large models over many machines.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tally {

struct Page {
  std::string text;                                           // of docs/scaling.md
  std::vector<std::pair<std::string, std::string>> drawings;  // name in docs/, SVG
};
Page ScalingPage();

}  // namespace tally
