// SPDX-License-Identifier: Apache-2.0
// Tokenizers in files of other kinds than tokenizer.json: named, not read.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "engine/base/format.h"
#include "engine/text/tokenizer.h"
#include "loaders/inventory/file_reader.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

// A model of SentencePiece is a message of protocol buffers, whose first field has the tag 10; ranks are lines of base64.
bool IsSentencePiece(const std::string& path) {
  const Result<FileReader> file = FileReader::Open(path);
  uint8_t first = 0;
  return !file.ok() || !file->ReadAt(0, {&first, 1}).ok() || first == 10;
}

// What the file is by its name, if it holds a tokenizer; empty: it does not.
std::string KindOf(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name == "tekken.json") return "Mistral's tekken";
  if (name == "vocab.json" || name == "merges.txt") return "the lists of a BPE as GPT-2 has them";
  if (name == "vocab.txt") return "the list of a WordPiece, as BERT has it";
  const bool ranks = name.ends_with(".tiktoken");
  if (!ranks && !name.ends_with(".model") && !name.ends_with(".spm")) return "";
  return ranks || !IsSentencePiece(path.string()) ? "ranks of tiktoken, which tally tokenize --ranks takes"
                                                  : "SentencePiece's model";
}

Status Unread(const std::string& where, const std::string& what) {
  return BadInput(
      Printable(where) + ": " + what +
      "; what is read is tokenizer.json, which AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) of transformers "
      "writes. Token ids need no tokenizer");
}

}  // namespace

Status UnreadTokenizer(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const std::string kind = fs::exists(path, error) ? KindOf(path) : "";
    return kind.empty() ? Status() : Unread(path, "holds " + kind);
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) files.push_back(at->path());
  std::sort(files.begin(), files.end());
  std::string found;
  for (const fs::path& file : files) {
    const std::string kind = KindOf(file);
    if (!kind.empty()) found += (found.empty() ? "" : ", ") + Printable(file.filename().string()) + " (" + kind + ")";
  }
  return found.empty() ? Status() : Unread(path, "has no tokenizer.json, but " + found);
}

}  // namespace tally
