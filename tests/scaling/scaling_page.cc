// SPDX-License-Identifier: Apache-2.0
// Writes docs/scaling.md and its drawings into a folder.
#include <fstream>

#include "tests/scaling/scaling.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const tally::Page page = tally::ScalingPage();
  const std::string folder = std::string(argv[1]) + "/";
  std::ofstream(folder + "scaling.md") << page.text;
  for (const auto& [name, svg] : page.drawings) std::ofstream(folder + name) << svg;
}
