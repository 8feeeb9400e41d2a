// SPDX-License-Identifier: Apache-2.0
// Which of a repository's files make a model.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "engine/hub/listing.h"

namespace tally::hub {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kDefaultType = "Q4_K_M";
// Read beside the weights, or of use to other programs that read the same directory.
constexpr std::array<const char*, 12> kBeside = {kConfig,
                                                 "generation_config.json",
                                                 "tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "tokenizer.model",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "chat_template.jinja",
                                                 "chat_template.json",
                                                 "tiktoken.model"};
constexpr std::array<const char*, 4> kTokenizers = {"tokenizer.json", "tokenizer.model", "vocab.json", "tiktoken.model"};
constexpr size_t kMostNamed = 12;  // in a message

char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

std::string UpperCase(std::string_view text) {
  std::string out;
  for (const char c : text) out += Upper(c);
  return out;
}

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool IsGguf(std::string_view path) { return UpperCase(path).ends_with(".GGUF"); }

// One model: a file, or the parts of one.
struct Group {
  std::string shown;  // the first part's path
  std::vector<const File*> files;
  int parts = 1;
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const File* f : files) sum = SaturatingAdd(sum, f->size);
    return sum;
  }
  bool complete() const { return static_cast<int>(files.size()) == parts; }
};

// The groups of the files that are `wanted`, in the order of their first paths; parts in the order of their numbers, as paths sort.
template <class Wanted>
std::vector<Group> GroupsOf(const Listing& listing, const Wanted& wanted) {
  std::vector<Group> groups;
  std::map<std::string, size_t> places;  // of a group, by what the names of its parts have in common; no path has a line break
  for (const File& f : listing.files) {
    if (!wanted(f)) continue;
    const std::optional<Part> part = PartOf(f.path);
    const std::string key = part ? part->stem + "\n" + std::to_string(part->count) + part->extension : f.path;
    const auto [at, added] = places.try_emplace(key, groups.size());
    if (added) groups.push_back({f.path, {}, part ? part->count : 1});
    groups[at->second].files.push_back(&f);
  }
  return groups;
}

Group GroupOf(const Listing& listing, const File& file) {
  const std::optional<Part> part = PartOf(file.path);
  return GroupsOf(listing, [&](const File& f) {
    if (!part) return &f == &file;
    const std::optional<Part> other = PartOf(f.path);
    return other && other->stem == part->stem && other->count == part->count && other->extension == part->extension;
  })[0];
}

// Models among the GGUF files: not the projectors of vision models nor matrices of importance, which lie beside them.
std::vector<Group> GgufGroups(const Listing& listing) {
  return GroupsOf(listing, [](const File& f) {
    const std::string name = UpperCase(FileName(f.path));
    return IsGguf(f.path) && name.find("MMPROJ") == name.npos && name.find("IMATRIX") == name.npos;
  });
}

std::string Shown(const std::vector<const Group*>& groups) {
  std::string text;
  for (size_t i = 0; i < groups.size() && i < kMostNamed; ++i) {
    text += (i == 0 ? "" : ", ") + Printable(groups[i]->shown, 120) + " (" + BytesText(groups[i]->bytes()) + ")";
  }
  return text + (groups.size() > kMostNamed ? " and " + std::to_string(groups.size() - kMostNamed) + " more" : "");
}

std::string Shown(const std::vector<Group>& groups) {
  std::vector<const Group*> all;
  for (const Group& g : groups) all.push_back(&g);
  return Shown(all);
}

Result<Choice> FromGroup(const Group& group, const Name& name, bool gguf) {
  if (!group.complete()) {
    return BadInput(name.repository() + ": " + Quote(group.shown) + " is one of " + std::to_string(group.parts) +
                    " parts, and there are " + std::to_string(group.files.size()));
  }
  Choice choice;
  for (const File* f : group.files) choice.files.push_back(*f);
  choice.open = group.files.front()->path;
  choice.gguf = gguf;
  return choice;
}

// If several names have the type, takes the one without a further mark ("UD-Q4_K_M" beside "Q4_K_M").
Result<Choice> OfType(const std::vector<Group>& groups, const Name& name, std::string_view type) {
  std::vector<const Group*> fitting, plain;
  for (const Group& g : groups) {
    if (!HasType(g.shown, type)) continue;
    fitting.push_back(&g);
    if (UpperCase(g.shown).find("UD-" + UpperCase(type)) == std::string::npos) plain.push_back(&g);
  }
  if (fitting.size() == 1) return FromGroup(*fitting[0], name, true);
  if (plain.size() == 1) return FromGroup(*plain[0], name, true);
  if (fitting.empty()) {
    return BadInput(name.text() + ": no file and no type of a GGUF file there; there " +
                    (groups.empty() ? "is no GGUF file" : "are " + Shown(groups)));
  }
  return BadInput(name.text() + ": several files are of this type: " + Shown(fitting) + "; write " + name.repository() + ":FILE");
}

Result<Choice> DefaultGguf(const std::vector<Group>& groups, const Name& name) {
  std::vector<const Group*> usual;
  for (const Group& g : groups) {
    if (HasType(g.shown, kDefaultType)) usual.push_back(&g);
  }
  if (!usual.empty()) {
    Name typed = name;
    typed.choice = kDefaultType;
    return OfType(groups, typed, kDefaultType);
  }
  if (groups.size() == 1) return FromGroup(groups[0], name, true);
  return BadInput(name.repository() + ": no " + kDefaultType + " there; write " + name.repository() + ":TYPE or :FILE, of " +
                  Shown(groups));
}

}  // namespace

std::optional<Part> PartOf(std::string_view path) {
  const size_t dot = path.rfind('.');
  constexpr std::string_view kPattern = "-00000-of-00000";  // 0 stands for a digit
  if (dot == path.npos || dot < kPattern.size()) return std::nullopt;
  Part part{std::string(path.substr(0, dot - kPattern.size())), std::string(path.substr(dot)), 0, 0};
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const char c = path[part.stem.size() + i];
    if (kPattern[i] != '0') {
      if (c != kPattern[i]) return std::nullopt;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    int& value = i < 6 ? part.number : part.count;
    value = value * 10 + (c - '0');
  }
  return part.number >= 1 && part.number <= part.count ? std::optional(part) : std::nullopt;
}

bool HasType(std::string_view path, std::string_view type) {
  const std::string name = UpperCase(path), wanted = UpperCase(type);
  if (wanted.empty()) return false;
  const auto letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  for (size_t at = name.find(wanted); at != name.npos; at = name.find(wanted, at + 1)) {
    const size_t end = at + wanted.size();
    const bool begins = at == 0 || !letter(name[at - 1]), ends = end == name.size() || (!letter(name[end]) && name[end] != '_');
    if (begins && ends) return true;
  }
  return false;
}

std::vector<GgufModel> GgufModels(const Listing& listing) {
  std::vector<GgufModel> models;
  for (const Group& group : GgufGroups(listing)) {
    if (!group.complete()) continue;
    GgufModel& model = models.emplace_back(GgufModel{group.shown, {}});
    for (const File* f : group.files) model.files.push_back(*f);
  }
  return models;
}

std::string AlsoThere(const Listing& listing, const Name& name) {
  const std::vector<Group> gguf = GgufGroups(listing);
  return gguf.empty() ? ""
                      : "; there " + std::string(gguf.size() == 1 ? "is " : "are ") + Shown(gguf) + ", as " + name.repository() +
                            ":TYPE or :FILE";
}

Result<Choice> Choose(const Listing& listing, const Name& name, Want want, bool cached) {
  const std::vector<Group> gguf = GgufGroups(listing);
  if (!name.choice.empty()) {
    if (const File* f = listing.Find(name.choice)) return FromGroup(GroupOf(listing, *f), name, IsGguf(f->path));
    return OfType(gguf, name, name.choice);
  }
  Choice choice;
  const bool config = listing.Find(kConfig) != nullptr;
  std::vector<const File*> weights;  // safetensors of the repository's own folder
  for (const File& f : listing.files) {
    if (f.path.ends_with(".safetensors") && f.path.find('/') == f.path.npos) weights.push_back(&f);
  }
  if (config && want == Want::kConfiguration && (!weights.empty() || gguf.empty())) {
    choice.files.push_back(*listing.Find(kConfig));
    choice.open = kConfig;
    return choice;
  }
  if (config && (!weights.empty() || listing.Find(kIndex) != nullptr)) {
    for (const char* path : kBeside) {
      if (const File* f = listing.Find(path)) choice.files.push_back(*f);
    }
    if (const File* single = listing.Find(kSingle)) {
      choice.files.push_back(*single);
    } else if (const File* index = listing.Find(kIndex)) {
      choice.files.push_back(*index);
      choice.index = kIndex;
    } else if (cached) {
      return BadInput(name.text() + ": not all of its weights are in the cache");
    } else if (weights.size() == 1) {
      choice.files.push_back(*weights[0]);
    } else {
      return BadInput(name.repository() + ": " + std::to_string(weights.size()) + " safetensors files and neither " + kSingle +
                      " nor " + kIndex + " to say which are the model");
    }
    const auto here = [&](const char* path) { return listing.Find(path) != nullptr; };
    if (cached && std::none_of(kTokenizers.begin(), kTokenizers.end(), here)) {
      return BadInput(name.text() + ": its tokenizer is not in the cache");
    }
    return choice;
  }
  if (cached) return BadInput(name.text() + ": its weights are not in the cache" + AlsoThere(listing, name));
  if (!gguf.empty()) return DefaultGguf(gguf, name);
  std::string others;
  for (const File& f : listing.files) {
    for (const char* suffix : {".safetensors", ".bin", ".pth", ".pt", ".onnx", ".h5"}) {
      if (others.empty() && f.path.ends_with(suffix)) others = f.path;
    }
  }
  return BadInput(name.repository() + ": no model that can be read: expected config.json with safetensors, or GGUF files" +
                  (others.empty() ? "" : "; there is " + Quote(others)) + (config ? "" : ", and no config.json"));
}

}  // namespace tally::hub
