// SPDX-License-Identifier: Apache-2.0
// The siege of the readers: malformed files of every kind, each with the one line that it must give. A case writes its files into
// a folder and names the checkpoint; in its line DIR stands for that folder.
//
// refusals_test loads each through the library and caps what it allocates; cli_refusals_test gives each to `tally`;
// truncation_test cuts sound files everywhere; cli_files_test is about pipes, full disks, files cut under the reader and signals.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp_folder.h"

namespace tally::siege {

struct Case {
  std::string name;  // the kind
  std::function<std::string(const TempFolder&)> write;
  std::string line;
};

std::vector<Case> GgufCases();
std::vector<Case> SplitCases();  // a GGUF in several files
std::vector<Case> SafetensorsCases();
std::vector<Case> IndexCases();
std::vector<Case> ConfigCases();  // config.json as JSON
std::vector<Case> TensorCases();  // missing, extra, misshapen, of a type that cannot be run
std::vector<Case> HyperParameterCases();
std::vector<Case> GgufTokenizerCases();
std::vector<Case> JsonTokenizerCases();
std::vector<Case> RanksCases();  // tiktoken's files, which are no checkpoints: for r50k_base

// All checkpoints; names begin with the file's kind.
inline std::vector<Case> AllCases() {
  std::vector<Case> all;
  const auto add = [&](const char* kind, std::vector<Case> cases) {
    for (Case& c : cases) {
      c.name = kind + c.name;
      all.push_back(std::move(c));
    }
  };
  add("Gguf", GgufCases());
  add("Split", SplitCases());
  add("Safetensors", SafetensorsCases());
  add("Index", IndexCases());
  add("Config", ConfigCases());
  add("Tensors", TensorCases());
  add("HyperParameters", HyperParameterCases());
  add("GgufTokenizer", GgufTokenizerCases());
  add("JsonTokenizer", JsonTokenizerCases());
  return all;
}

// The checkpoint of the case loads, and only what needs text is refused.
inline bool OfTokenizer(const Case& c) { return c.name.find("Tokenizer") == 4; }

// `line` with DIR replaced.
inline std::string In(const TempFolder& folder, std::string line) {
  // Each looked for behind the last: a folder's own random name may hold the three letters.
  for (size_t at = 0; (at = line.find("DIR", at)) != line.npos; at += folder.path().size()) {
    line.replace(at, 3, folder.path());
  }
  return line;
}

}  // namespace tally::siege
