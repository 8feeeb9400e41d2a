// SPDX-License-Identifier: Apache-2.0
// What the cache holds, and taking it out again.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "engine/base/system_error.h"
#include "engine/hub/cache.h"
#include "engine/hub/hub.h"
#include "engine/hub/listing.h"
#include "engine/hub/name.h"

namespace tally::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolder = "models--";

char LowerLetter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool SameLetters(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return LowerLetter(x) == LowerLetter(y); });
}

// Of a folder of the cache; none: it is no repository of models. No part of a name has "--".
std::optional<Name> RepositoryOf(std::string_view folder) {
  if (!folder.starts_with(kFolder)) return std::nullopt;
  folder.remove_prefix(kFolder.size());
  const size_t at = folder.find("--");
  if (at == folder.npos) return std::nullopt;
  Result<Name> name = ParseName(std::string(folder.substr(0, at)) + "/" + std::string(folder.substr(at + 2)));
  if (!name.ok()) return std::nullopt;
  return std::move(name).value();
}

// Sorted. A cache that is not there has none.
Result<std::vector<Name>> Repositories(const Settings& settings) {
  std::vector<Name> names;
  std::error_code error;
  if (!fs::exists(settings.cache, error)) return names;
  for (auto at = fs::directory_iterator(settings.cache, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    if (std::optional<Name> name = RepositoryOf(at->path().filename().string())) names.push_back(std::move(*name));
  }
  if (error) return BadInput(Printable(settings.cache) + ": the folder cannot be read: " + error.message());
  std::ranges::sort(names, {}, &Name::repository);
  return names;
}

// The files and links below a folder, links not followed. What cannot be read is left out.
std::vector<fs::path> FilesBelow(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(folder, error); !error && at != fs::recursive_directory_iterator();
       at.increment(error)) {
    if (!fs::is_directory(at->symlink_status())) files.push_back(at->path());
  }
  return files;
}

// What removing a file frees: nothing of a link, or of a file that has another name elsewhere.
uint64_t FreedBytes(const fs::path& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink > 1) return 0;
  return static_cast<uint64_t>(std::max<off_t>(0, info.st_size));
}

uint64_t SumOf(const std::vector<File>& files) {
  uint64_t bytes = 0;
  for (const File& f : files) bytes = SaturatingAdd(bytes, f.size);
  return bytes;
}

void AddModels(const Settings& settings, const Name& repository, std::vector<CachedModel>& models) {
  const Cache cache(settings.cache, repository);
  const size_t before = models.size();
  const Result<std::string> commit = cache.ReadRef();
  Listing here;
  if (commit.ok()) {
    Result<Listing> listed = cache.ListSnapshot(*commit);
    if (listed.ok()) here = std::move(listed).value();
  }
  const auto found = [&](const std::string& choice) {
    return FindCached(settings, {repository.org, repository.name, choice}, Want::kWeights);
  };
  const Result<std::string> plain = found("");
  if (plain.ok() && *plain == cache.Snapshot(*commit)) {
    uint64_t bytes = 0;
    for (const File& f : here.files) {
      if (!f.path.ends_with(".gguf")) bytes = SaturatingAdd(bytes, f.size);
    }
    models.push_back({.name = repository, .path = *plain, .bytes = bytes});
  }
  const std::vector<GgufModel> ggufs = GgufModels(here);
  const bool only = models.size() == before && ggufs.size() == 1;
  for (const GgufModel& gguf : ggufs) {
    const std::string path = cache.Place(*commit, gguf.open), type = TypeInFileName(gguf.open);
    for (const std::string& choice : {std::string(), type, gguf.open}) {
      const bool bare = choice.empty();
      if (bare && !only) continue;
      const Result<std::string> opened = bare ? plain : found(choice);
      if (!opened.ok() || *opened != path) continue;
      models.push_back({{repository.org, repository.name, choice}, path, type, SumOf(gguf.files)});
      break;
    }
  }
  if (models.size() > before) return;
  CachedModel part = {.name = repository};
  for (const fs::path& file : FilesBelow(cache.folder())) part.bytes = SaturatingAdd(part.bytes, FreedBytes(file));
  models.push_back(std::move(part));
}

// kBadInput: another process has a lock of the repository, which it takes while it fetches.
Status CheckNotFetched(const Cache& cache, const Name& name) {
  for (const fs::path& lock : FilesBelow(cache.locks())) {
    FileLock taken;
    if (taken.Take(lock.string(), 0666, FileLock::After::kKeep) == EWOULDBLOCK)
      return BadInput(name.text() + ": another process is fetching it");
  }
  return {};
}

// Files of the revisions and blobs that Tally has not written, by their names in the repository where they have one. Older versions of
// Tally noted nothing: theirs are among them.
std::set<std::string> OthersFiles(const Cache& cache, const std::vector<fs::path>& files) {
  const std::set<std::string> written = cache.Written();
  const fs::path blobs = fs::path(cache.folder()) / "blobs", revisions = fs::path(cache.folder()) / "snapshots";
  std::error_code error;
  std::set<std::string> names;
  std::set<fs::path> linked;
  std::map<std::string, Result<Listing>> listings;  // by commit
  for (const fs::path& file : files) {
    const fs::path relative = file.lexically_relative(revisions);
    if (relative.empty() || *relative.begin() == "..") continue;
    const std::string commit = relative.begin()->string(), path = relative.lexically_relative(commit).string();
    std::string digest;
    if (fs::is_symlink(file, error)) {
      digest = fs::read_symlink(file, error).filename().string();
      if (!fs::exists(file, error)) continue;  // nothing is lost with it
    } else {
      const Result<Listing>& listing = listings.try_emplace(commit, cache.ReadListing(commit)).first->second;
      const File* const listed = listing.ok() ? listing->Find(path) : nullptr;
      if (listed != nullptr) digest = listed->digest;
    }
    linked.insert(blobs / digest);
    if (!written.contains(digest)) names.insert(path);
  }
  for (const fs::path& file : files) {
    const bool blob = file.parent_path() == blobs && !linked.contains(file);
    if (blob && !written.contains(file.filename().string())) names.insert("blobs/" + file.filename().string());
  }
  return names;
}

Status CheckWritten(const Cache& cache, const Name& name, const std::vector<fs::path>& files) {
  const std::set<std::string> others = OthersFiles(cache, files);
  if (others.empty()) return {};
  constexpr size_t kNamed = 3;
  std::string text;
  size_t named = 0;
  for (const std::string& other : others) {
    if (named++ < kNamed) text += (text.empty() ? "" : ", ") + Printable(other);
  }
  if (others.size() > kNamed) text += " and " + std::to_string(others.size() - kNamed) + " more";
  return BadInput(name.text() + ": another program, or Tally 0.2, has fetched " + text +
                  ", and may still want it: `hf cache rm model/" + name.repository() + "` removes it, with the whole repository");
}

// Adds the names of the file in all revisions, and the blobs to which no other name leads.
Status AddFile(const Cache& cache, const std::vector<fs::path>& snapshots, const std::vector<std::string>& paths,
               Removal* removal) {
  std::error_code error;
  const fs::path blobs = fs::weakly_canonical(fs::path(cache.folder()) / "blobs", error);
  std::set<fs::path> freed, kept;
  const fs::path revisions = fs::path(cache.folder()) / "snapshots";
  for (const fs::path& file : snapshots) {
    const fs::path relative = file.lexically_relative(revisions);
    std::string path;  // without the revision
    for (auto part = std::next(relative.begin()); part != relative.end(); ++part)
      path += (path.empty() ? "" : "/") + part->string();
    const bool ours = std::ranges::find(paths, path) != paths.end();
    if (ours) removal->files.push_back(file.string());
    if (!fs::is_symlink(file, error)) {
      if (ours) removal->bytes = SaturatingAdd(removal->bytes, FreedBytes(file));
      continue;
    }
    const fs::path blob = fs::weakly_canonical(file, error);
    if (ours && !error && fs::exists(blob, error) && blob.parent_path() != blobs)
      return BadInput(Printable(file.string()) + " leads out of the cache: nothing was removed");
    (ours ? freed : kept).insert(blob);
  }
  for (const fs::path& blob : freed) {
    if (kept.contains(blob) || blob.parent_path() != blobs) continue;
    removal->files.push_back(blob.string());
    removal->bytes = SaturatingAdd(removal->bytes, FreedBytes(blob));
  }
  return {};
}

}  // namespace

Result<std::vector<CachedModel>> ListCached(const Settings& settings) {
  TALLY_ASSIGN_OR_RETURN(const std::vector<Name> names, Repositories(settings));
  std::vector<CachedModel> models;
  for (const Name& name : names) AddModels(settings, name, models);
  return models;
}

std::string TypeInFileName(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  if (path.find('.') == path.npos) return "";  // a blob, whose name is a digest
  if (const std::optional<Part> part = PartOf(path)) {
    path = path.substr(0, part->stem.size());
  } else {
    path = path.substr(0, path.rfind('.'));
  }
  std::string type;
  while (!path.empty()) {
    const size_t end = std::min(path.find_first_of("-."), path.size());
    std::string word;
    for (const char c : path.substr(0, end)) word += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    path.remove_prefix(std::min(path.size(), end + 1));
    const std::string_view rest = std::string_view(word).substr(std::min(word.size(), word.find_first_of("0123456789")));
    const std::string_view head = std::string_view(word).substr(0, word.size() - rest.size());
    constexpr std::string_view kHeads[] = {"Q", "IQ", "TQ", "F", "BF", "FP", "MXFP", "NVFP"};
    if (!rest.empty() && std::ranges::find(kHeads, head) != std::end(kHeads)) type = word;
  }
  return type;
}

std::vector<Name> FindShortName(const Settings& settings, std::string_view given) {
  const size_t colon = std::min(given.find(':'), given.size());
  const std::string choice(given.substr(std::min(given.size(), colon + 1)));
  const Result<std::vector<Name>> names = Repositories(settings);
  std::vector<Name> found;
  if (!names.ok() || (colon < given.size() && !CheckFilePath(choice).ok())) return found;
  for (const Name& name : *names) {
    if (SameLetters(name.name, given.substr(0, colon))) found.push_back({name.org, name.name, choice});
  }
  return found;
}

Result<Removal> PlanRemoval(const Settings& settings, const Name& name, bool all) {
  const Cache cache(settings.cache, name);
  std::error_code error;
  if (!fs::is_directory(cache.folder(), error))
    return BadInput(name.text() + ": is not in the cache of the Hugging Face hub, " + Printable(settings.cache));
  if (fs::is_symlink(cache.folder(), error))
    return BadInput(Printable(cache.folder()) + " is a link that leads out of the cache: nothing was removed");
  if (!cache.IsOurs()) {
    return BadInput(name.text() + ": another program has fetched it, and may still want it: `hf cache rm model/" +
                    name.repository() + "` removes it");
  }
  TALLY_RETURN_IF_ERROR(CheckNotFetched(cache, name));
  Removal removal = {.name = name, .cache = settings.cache};
  if (name.choice.empty()) {
    std::vector<CachedModel> models;
    AddModels(settings, name, models);
    if (models.size() > 1 && !all) {
      std::string names;
      for (const CachedModel& m : models) names += (names.empty() ? "" : ", ") + Printable(m.name.text());
      return BadInput(name.text() + " has " + std::to_string(models.size()) + " models here: " + names +
                      ": name one of them, or write --all");
    }
    const std::vector<fs::path> files = FilesBelow(cache.folder());
    TALLY_RETURN_IF_ERROR(CheckWritten(cache, name, files));
    removal.folder = cache.folder();
    for (const fs::path& file : files) {
      removal.bytes = SaturatingAdd(removal.bytes, FreedBytes(file));
      removal.files.push_back(file.string());
    }
    return removal;
  }
  TALLY_ASSIGN_OR_RETURN(const std::string open, FindCached(settings, name, Want::kWeights));
  TALLY_ASSIGN_OR_RETURN(const std::string commit, cache.ReadRef());
  TALLY_ASSIGN_OR_RETURN(const Listing here, cache.ListSnapshot(commit));
  std::vector<std::string> paths;
  for (const GgufModel& gguf : GgufModels(here)) {
    if (cache.Place(commit, gguf.open) != open) continue;
    for (const File& f : gguf.files) paths.push_back(f.path);
  }
  if (paths.empty()) paths.push_back(name.choice);  // a file that is no model's
  const std::vector<fs::path> snapshots = FilesBelow(fs::path(cache.folder()) / "snapshots");
  TALLY_RETURN_IF_ERROR(AddFile(cache, snapshots, paths, &removal));
  TALLY_RETURN_IF_ERROR(CheckWritten(cache, name, {removal.files.begin(), removal.files.end()}));
  // Links and files of the revisions that stay.
  const bool rest = std::ranges::any_of(
      snapshots, [&](const fs::path& file) { return std::ranges::find(removal.files, file.string()) == removal.files.end(); });
  if (rest) return removal;
  Result<Removal> whole = PlanRemoval(settings, {name.org, name.name, ""}, /*all=*/true);
  return whole.ok() ? std::move(whole) : removal;
}

Status Remove(const Removal& removal) {
  std::error_code error;
  if (!removal.folder.empty()) {
    fs::remove_all(removal.folder, error);
    if (error) return BadInput(Printable(removal.folder) + ": cannot be removed: " + error.message());
    return {};
  }
  const Cache cache(removal.cache, removal.name);
  std::set<std::string> blobs;
  for (const fs::path file : removal.files) {
    if (file.parent_path().filename() == "blobs") blobs.insert(file.filename().string());
  }
  cache.ForgetWritten(blobs);  // another program may fetch them again
  for (const std::string& file : removal.files) {
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) return SystemError(Printable(file) + ": cannot be removed", errno);
  }
  return {};
}

}  // namespace tally::hub
