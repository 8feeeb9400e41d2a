// SPDX-License-Identifier: Apache-2.0
#include "engine/app/output_files.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "engine/app/console.h"
#include "engine/base/format.h"
#include "engine/base/system_error.h"

namespace tally::app {
namespace {

namespace fs = std::filesystem;

// Whether `path` is one of the files that a model is read from: the GGUF files beside MODEL, or those of its directory.
bool IsPartOf(const std::string& model, const std::string& path) {
  std::error_code none;
  const bool directory = fs::is_directory(model, none);
  fs::path folder = directory ? fs::path(model) : fs::path(model).parent_path();
  if (folder.empty()) folder = ".";
  for (auto at = fs::directory_iterator(folder, none); !none && at != fs::directory_iterator(); at.increment(none)) {
    const std::string extension = at->path().extension().string(), name = at->path().filename().string();
    const bool ours =
        extension == ".gguf" ||
        (directory && (extension == ".safetensors" || extension == ".json" || extension == ".model" || extension == ".txt"));
    if (ours && SameFile(at->path().string(), path)) return true;
  }
  return SameFile(model, path);
}

}  // namespace

void AddForce(Command& command, bool& force) {
  command.Flag("--force", force, "replace files that are there (without: they are refused)");
}

Status CannotWrite(const std::string& path, int error_number) { return SystemError("cannot write " + Quote(path), error_number); }

bool SameFile(const std::string& a, const std::string& b) {
  std::error_code none;
  if (a == b || fs::equivalent(a, b, none)) return true;
  const auto canonical = [&](const std::string& p) { return fs::weakly_canonical(p, none); };  // of files to be made
  return canonical(a) == canonical(b);
}

Status CheckMayReplace(const std::string& path, bool force) {
  std::error_code none;
  if (force || !fs::is_regular_file(path, none) || fs::file_size(path, none) == 0) return {};
  return BadInput(Quote(path) + " is there; --force replaces it");
}

Status CheckMayReplaceIn(const std::string& folder, const std::string& extension, bool force) {
  std::error_code none;
  for (auto at = fs::directory_iterator(folder, none); !force && !none && at != fs::directory_iterator(); at.increment(none)) {
    if (at->path().extension() == extension) TALLY_RETURN_IF_ERROR(CheckMayReplace(at->path().string(), false));
  }
  return {};
}

Status CheckOutputFile(const std::string& option, const std::string& path, const std::string& model,
                       const std::vector<std::optional<std::string>>& others, bool force) {
  if (path.empty()) return BadInput(option + ": the name of the file to write is empty");
  for (const std::optional<std::string>& other : others) {
    if (other && SameFile(*other, path)) return BadInput(Quote(path) + " was given for something else too");
  }
  TALLY_RETURN_IF_ERROR(CheckNotStandardStream(path));
  if (IsPartOf(model, path)) return BadInput(Quote(path) + " is a file of the model: it would be overwritten");
  std::error_code none;
  if (fs::is_directory(path, none)) return CannotWrite(path, EISDIR);
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty() && !fs::is_directory(parent, none)) return CannotWrite(path, ENOENT);
  return CheckMayReplace(path, force);
}

}  // namespace tally::app
