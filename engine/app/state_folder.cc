// SPDX-License-Identifier: Apache-2.0
#include "engine/app/state_folder.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/app/numbers.h"
#include "engine/machine/kept_file.h"

namespace tally::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsedName = "models_used";  // a line each: seconds, path and name, with tabs between
constexpr size_t kMostUsed = 500;

bool IsOneField(const std::string& text) { return text.find_first_of("\t\n") == text.npos; }

}  // namespace

std::string StateFolder() {
  for (const auto& [variable, below] : {std::pair{"XDG_STATE_HOME", "/tally"}, {"HOME", "/.local/state/tally"}}) {
    const char* const base = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
    if (base != nullptr && *base == '/') return std::string(base) + below;
  }
  return "";
}

std::vector<UsedModel> UsedModels() {
  std::vector<UsedModel> models;
  const std::string folder = StateFolder();
  if (folder.empty()) return models;
  const std::string text = ReadKeptFile(folder + "/" + kUsedName).value_or("");
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t first = line.find('\t'), second = first == line.npos ? first : line.find('\t', first + 1);
    UsedModel model;
    if (second == line.npos || !ParseNumber(line.substr(0, first), model.when)) continue;
    model.path = line.substr(first + 1, second - first - 1);
    model.name = line.substr(second + 1);
    models.push_back(std::move(model));
  }
  return models;
}

void RememberModel(const std::string& given, const std::string& path) {
  const std::string folder = StateFolder();
  std::error_code error;
  UsedModel now = {.when = std::time(nullptr), .path = fs::canonical(path, error).string(), .name = given};
  if (folder.empty() || error) return;
  if (fs::exists(given, error)) now.name = fs::absolute(given, error).lexically_normal().string();
  if (error || !IsOneField(now.path) || !IsOneField(now.name)) return;
  std::vector<UsedModel> models = UsedModels();
  std::erase_if(models, [&](const UsedModel& m) { return m.path == now.path; });
  models.insert(models.begin(), std::move(now));
  models.resize(std::min(models.size(), kMostUsed));
  std::string text;
  for (const UsedModel& m : models) text += std::to_string(m.when) + "\t" + m.path + "\t" + m.name + "\n";
  WriteKeptFile(folder, kUsedName, text, /*private_file=*/true);
}

}  // namespace tally::app
