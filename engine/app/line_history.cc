// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "engine/app/line_editor.h"
#include "engine/app/state_folder.h"
#include "engine/machine/kept_file.h"

namespace tally::app {
namespace {

constexpr size_t kMostLines = 1000, kMostBytes = size_t{256} << 10;  // that are kept
constexpr const char* kName = "chat_history";

}  // namespace

std::vector<std::string> LineHistory::Read() const {
  std::vector<std::string> lines;
  const std::string folder = StateFolder();
  if (folder.empty()) return lines;
  const std::string text = ReadKeptFile(folder + "/" + kName).value_or("");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

void LineHistory::Append(const std::vector<std::string>& lines) const {
  const std::string folder = StateFolder();
  if (folder.empty() || lines.empty()) return;
  std::vector<std::string> all = Read();
  std::ranges::copy_if(lines, std::back_inserter(all), [](const std::string& line) { return line.find('\n') == line.npos; });
  size_t first = all.size(), bytes = 0;
  while (first > 0 && all.size() - first < kMostLines && bytes + all[first - 1].size() + 1 <= kMostBytes) {
    bytes += all[--first].size() + 1;
  }
  std::string text;
  for (size_t i = first; i < all.size(); ++i) text += all[i] + "\n";
  WriteKeptFile(folder, kName, text, /*private_file=*/true);
}

}  // namespace tally::app
