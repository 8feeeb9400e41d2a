// SPDX-License-Identifier: Apache-2.0
#include "loaders/inventory/side_files.h"

#include <algorithm>
#include <filesystem>

#include "loaders/inventory/file_reader.h"
#include "loaders/inventory/message.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

constexpr char kTemplates[] = "additional_chat_templates";

}  // namespace

SideFiles::SideFiles(const Inventory& inventory) : directory_(inventory.path), texts_(inventory.side_texts) {
  if (inventory.packed != nullptr && texts_ == nullptr) texts_ = std::make_shared<SideTexts>();
  if (texts_ != nullptr) return;
  std::error_code error;
  if (!inventory.tokenizer_json.empty()) {
    directory_ = internal::DirectoryOf(inventory.tokenizer_json);
  } else if (!fs::is_directory(directory_, error)) {
    directory_ = internal::DirectoryOf(directory_);
  }
}

bool SideFiles::Has(const std::string& name) const {
  if (texts_ != nullptr) return texts_->contains(name);
  std::error_code ignored;  // any kind of file counts here; opening it checks the kind
  return fs::symlink_status(PathOf(name), ignored).type() != fs::file_type::not_found;
}

Result<std::string> SideFiles::Read(const std::string& name, uint64_t max_bytes) const {
  if (texts_ == nullptr) return ReadTextFile(PathOf(name), max_bytes);
  const auto found = texts_->find(name);
  if (found == texts_->end()) return BadInput(Printable(PathOf(name)) + ": is not carried");
  if (found->second.size() > max_bytes) {
    return BadInput(Printable(PathOf(name)) + ": " + std::to_string(found->second.size()) +
                    " bytes; the limit for this file is " + std::to_string(max_bytes));
  }
  return found->second;
}

std::vector<std::string> SideFiles::NamesIn(const std::string& folder) const {
  std::vector<std::string> names;
  if (texts_ != nullptr) {
    for (auto at = texts_->lower_bound(folder + "/"); at != texts_->end() && at->first.starts_with(folder + "/"); ++at) {
      names.push_back(at->first.substr(folder.size() + 1));
    }
    return names;
  }
  std::error_code error;
  for (fs::directory_iterator it(PathOf(folder), error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string SideFiles::PathOf(const std::string& name) const {
  return directory_.empty() ? name : internal::JoinPath(directory_, name);
}

std::vector<std::string> SideFiles::Known() const {
  std::vector<std::string> names;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"}) {
    if (Has(name)) names.emplace_back(name);
  }
  for (const std::string& name : NamesIn(kTemplates)) {
    if (name.ends_with(".jinja")) names.push_back(std::string(kTemplates) + "/" + name);
  }
  return names;
}

}  // namespace tally
