// SPDX-License-Identifier: Apache-2.0
#include "engine/hub/name.h"

#include <algorithm>

#include "engine/base/format.h"
#include "engine/hub/hub.h"

namespace tally::hub {
namespace {

constexpr size_t kMaxRepositoryBytes = 96;  // of ORG/NAME, by huggingface_hub's check of names
constexpr size_t kMaxPathBytes = 1024;

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

bool IsNamePart(std::string_view part) {
  const auto end = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && std::all_of(part.begin(), part.end(), IsNameByte) && !end(part.front()) && !end(part.back()) &&
         part.find("--") == part.npos && part.find("..") == part.npos && !part.ends_with(".git");
}

// ORG/NAME of an address of the hub; other text as it is.
std::string_view WithoutHost(std::string_view text) {
  std::string_view rest = text;
  if (constexpr std::string_view kScheme = "https://"; rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  for (const std::string_view host : {"huggingface.co/", "hf.co/"}) {
    if (rest.starts_with(host)) return rest.substr(host.size());
  }
  return text;
}

}  // namespace

Status CheckFilePath(std::string_view path) {
  const auto bad = [&](const char* why) { return BadInput(Quote(path) + " is no path of a file in a repository: " + why); };
  if (path.empty()) return bad("it is empty");
  if (path.size() > kMaxPathBytes) return bad("it is longer than 1024 bytes");
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return bad("it has a control character or a backslash");
  }
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty()) return bad(begin == 0 ? "it is absolute" : "it has an empty part");
    if (part == "." || part == "..") return bad("it leads out of its folder");
    if (part.size() > 255) return bad("a part of it is longer than 255 bytes");
    begin = end + 1;
  }
  return {};
}

Result<Name> ParseName(std::string_view text) {
  text = WithoutHost(text);
  const auto bad = [&](const std::string& why) { return BadInput(Quote(text) + " is no name of the Hugging Face hub: " + why); };
  const size_t colon = text.find(':');
  const std::string_view repository = text.substr(0, colon);
  const size_t slash = repository.find('/');
  if (slash == repository.npos) return bad("expected ORG/NAME, ORG/NAME:FILE or ORG/NAME:TYPE");
  Name name{std::string(repository.substr(0, slash)), std::string(repository.substr(slash + 1)), ""};
  if (repository.size() > kMaxRepositoryBytes) return bad("longer than " + std::to_string(kMaxRepositoryBytes) + " bytes");
  if (!IsNamePart(name.org) || !IsNamePart(name.name)) {
    return bad("ORG and NAME are letters, digits, '-', '_' and '.', without \"--\" and \"..\"");
  }
  if (colon == text.npos) return name;
  name.choice = std::string(text.substr(colon + 1));
  if (const Status path = CheckFilePath(name.choice); !path.ok()) return bad(path.message());
  return name;
}

std::string FolderOf(const Name& name) { return "models--" + name.org + "--" + name.name; }

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace tally::hub
