// SPDX-License-Identifier: Apache-2.0
// The page as HTML: one file that asks for nothing else. All strings are plain text, but for those named html.
#pragma once

#include <string>
#include <vector>

#include "engine/page/figure.h"
#include "engine/render/html.h"

namespace tally::page {

struct Headline {
  std::string name, value;
  std::string note = {};  // what it is
};

// A figure or table of one of the runs. `run`: its name over it where several are compared, else empty.
struct Block {
  std::string run = {};
  std::string html = {};
};

struct Section {
  std::string id, title;
  std::vector<std::string> paragraphs = {};
  std::vector<Block> blocks = {};  // beside one another where there is room
  bool full = false;               // as wide as the page
};

struct Document {
  std::string title;
  std::vector<std::string> verdicts = {};  // the first thing that is read
  bool bad = false;                        // they say that something is wrong
  std::vector<std::string> facts = {};     // a line each, below them
  std::vector<Headline> headlines = {};
  std::vector<Section> sections = {};
  bool compare = false;        // several runs
  std::string generator = {};  // an element of the head, html
  std::string footer = {};
};

std::string DocumentHtml(const Document& document);

}  // namespace tally::page
