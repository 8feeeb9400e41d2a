// SPDX-License-Identifier: Apache-2.0
// What a repository has, and which of its files make a model.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/hub/hub.h"

namespace tally::hub {

constexpr uint64_t kMaxListingBytes = uint64_t{64} << 20;  // of the hub's answer

struct Listing {
  std::string commit;
  std::vector<File> files;  // sorted by path
  const File* Find(std::string_view path) const;
};

// The hub's answer to /api/models/ORG/NAME/revision/REV?blobs=true. kBadInput: not that, a path or a digest that is none, a path that
// appears twice.
Result<Listing> ParseListing(std::string_view json, const std::string& place);

struct Choice {
  std::vector<File> files;
  std::string open;   // the file to open; empty: the directory
  std::string index;  // the safetensors index among the files, whose shards are still to be added; empty: none
  bool gguf = false;  // what is opened is a GGUF file
};

// By Plan's rules. `cached`: the listing is of the cache, and nobody knows what else the repository has. A name without FILE or TYPE is
// then a whole directory of safetensors with its tokenizer, never a GGUF file. kBadInput: nothing fits, or more than one thing does; the
// line says what there is.
Result<Choice> Choose(const Listing& listing, const Name& name, Want want, bool cached);

// The GGUF models of a listing that have all of their parts, each of which is a file of the same folder.
struct GgufModel {
  std::string open;  // the first part
  std::vector<File> files;
};
std::vector<GgufModel> GgufModels(const Listing& listing);

// For the end of a message: the GGUF files in the cache, and how they are asked for. Empty: none.
std::string AlsoThere(const Listing& listing, const Name& name);

// The names in the index's weight_map, sorted, each once. kBadInput: not an index, names that are paths.
Result<std::vector<std::string>> ShardsOfIndex(std::string_view json, const std::string& place);

// Whether the name of a GGUF file says that it is of this type: "model-Q4_K_M.gguf", "q4_k_m/model.q4_k_m-00001-of-00002.gguf".
bool HasType(std::string_view path, std::string_view type);

// "-00002-of-00003" before the extension.
struct Part {
  std::string stem;  // the path before it
  std::string extension;
  int number = 0, count = 0;
};
std::optional<Part> PartOf(std::string_view path);

}  // namespace tally::hub
