// SPDX-License-Identifier: Apache-2.0
// The small files beside a checkpoint's weights (tokenizer.json, chat_template.jinja, ...), in its directory or carried by a packed file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "loaders/inventory/inventory.h"

namespace tally {

class SideFiles {
 public:
  // Those beside the weights of a Hugging Face checkpoint.
  explicit SideFiles(const Inventory& inventory);
  // Empty: the working directory.
  explicit SideFiles(std::string directory) : directory_(std::move(directory)) {}

  // Names are relative to the directory.
  bool Has(const std::string& name) const;
  // kBadInput: it is no file that can be read, is empty, or has more than max_bytes.
  Result<std::string> Read(const std::string& name, uint64_t max_bytes) const;
  // The names of the files in a folder of the directory, sorted; none if there is no such folder.
  std::vector<std::string> NamesIn(const std::string& folder) const;
  std::string PathOf(const std::string& name) const;  // for messages
  // The names of all files that readers of tokenizers and templates may ask for and that are there.
  std::vector<std::string> Known() const;

 private:
  std::string directory_;
  std::shared_ptr<const SideTexts> texts_;  // null: in the directory
};

}  // namespace tally
