// SPDX-License-Identifier: Apache-2.0
#include "engine/hub/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <random>
#include <sstream>
#include <utility>

#include "engine/base/format.h"
#include "engine/base/system_error.h"
#include "engine/hub/name.h"
#include "loaders/inventory/file_reader.h"
#include "loaders/inventory/message.h"
#include "loaders/loaders.h"

namespace tally::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxSnapshotDepth = 16;
constexpr const char* kListings = "/.tally";
constexpr const char* kWritten = "/.tally/written";

bool IsFileOf(uint64_t size, const struct stat& info) {
  return S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) == size;
}

// Names of files that no other process makes, not even on another machine that shares the folder.
std::string Unique() {
  static std::atomic<uint32_t> made{0};
  std::random_device random;
  return std::to_string(::getpid()) + "-" + std::to_string(made++) + "-" + std::to_string(random());
}

Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return BadInput(Printable(path) + ": the folder cannot be made: " + error.message());
  return {};
}

Status ListFolder(const fs::path& folder, const std::string& prefix, int depth, Listing* listing) {
  std::error_code error;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    std::string path = prefix + at->path().filename().string();
    if (fs::is_directory(at->path(), ignored)) {
      if (depth < kMaxSnapshotDepth) TALLY_RETURN_IF_ERROR(ListFolder(at->path(), path + "/", depth + 1, listing));
    } else if (fs::is_regular_file(at->path(), ignored)) {  // what the link leads to
      const uint64_t size = fs::file_size(at->path(), ignored);
      if (!ignored) listing->files.push_back({std::move(path), size, ""});
    }
  }
  if (error) return BadInput(Printable(folder.string()) + ": the folder cannot be read: " + error.message());
  return {};
}

}  // namespace

Cache::Cache(std::string root, const Name& name) : root_(std::move(root)) {
  folder_ = (fs::path(root_) / FolderOf(name)).string();
  locks_ = (fs::path(root_) / ".locks" / FolderOf(name)).string();
}

std::string Cache::Blob(const File& file) const { return folder_ + "/blobs/" + file.digest; }
std::string Cache::Incomplete(const File& file) const { return Blob(file) + ".incomplete"; }
std::string Cache::Snapshot(const std::string& commit) const { return folder_ + "/snapshots/" + commit; }
std::string Cache::Place(const std::string& commit, const std::string& path) const { return Snapshot(commit) + "/" + path; }

bool Cache::Has(const File& file) const {
  struct stat info;
  return ::stat(Blob(file).c_str(), &info) == 0 && IsFileOf(file.size, info);
}

bool Cache::Has(const std::string& commit, const File& file) const {
  struct stat info;
  return Has(file) || (::lstat(Place(commit, file.path).c_str(), &info) == 0 && IsFileOf(file.size, info));
}

uint64_t Cache::BytesOfIncomplete(const File& file) const {
  struct stat info;
  if (::stat(Incomplete(file).c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 0) return 0;
  const auto size = static_cast<uint64_t>(info.st_size);
  return size <= file.size ? size : 0;
}

Status Cache::MakeFolders() const {
  for (const std::string& folder : {folder_ + "/blobs", folder_ + "/refs", folder_ + "/snapshots", folder_ + kListings, locks_}) {
    TALLY_RETURN_IF_ERROR(MakeFolder(folder));
  }
  return {};
}

Status Cache::Link(const std::string& commit, const File& file) const {
  const std::string place = Place(commit, file.path);
  if (!Has(file) && Has(commit, file)) return {};
  TALLY_RETURN_IF_ERROR(MakeFolder(internal::DirectoryOf(place)));
  std::string target = "../../blobs/" + file.digest;
  for (const char c : file.path) {
    if (c == '/') target.insert(0, "../");
  }
  std::error_code error;
  const auto there = [&] { return fs::read_symlink(place, error).string() == target; };
  if (there()) return {};
  // Made under another name and moved, so that the file's name always leads to a whole one.
  const std::string made = place + ".tally-" + Unique();
  int reason = ::symlink(target.c_str(), made.c_str()) == 0 ? 0 : errno;
  if (reason == 0 && ::rename(made.c_str(), place.c_str()) != 0) {
    reason = errno;
    ::unlink(made.c_str());
  }
  if (reason == 0 || there()) return {};  // another process may have made it
  const bool no_links = reason == EPERM || reason == ENOSYS || reason == EOPNOTSUPP;
  if (no_links && ::rename(Blob(file).c_str(), place.c_str()) == 0) return {};
  return SystemError(Printable(place) + ": the symbolic link cannot be made", reason);
}

Result<std::string> Cache::ReadRef() const {
  const std::string path = folder_ + "/refs/main";
  TALLY_ASSIGN_OR_RETURN(std::string commit, ReadTextFile(path, 64));
  while (commit.ends_with('\n')) commit.pop_back();
  if (!IsHex(commit, 40)) return BadInput(Printable(path) + ": expected a commit of 40 hexadecimal digits");
  return commit;
}

Status Cache::WriteRef(const std::string& commit) const {
  const Result<std::string> old = ReadRef();
  return old.ok() && *old == commit ? Status() : WriteTextFile(folder_ + "/refs/main", commit);
}

bool Cache::IsOurs() const {
  std::error_code ignored;
  return fs::is_directory(folder_ + kListings, ignored);
}

void Cache::NoteWritten(const std::string& name) const {
  const int fd = ::open((folder_ + kWritten).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return;
  const std::string line = name + "\n";
  if (::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::unlink((folder_ + kWritten).c_str());
  ::close(fd);
}

std::set<std::string> Cache::Written() const {
  std::set<std::string> names;
  const Result<std::string> text = ReadTextFile(folder_ + kWritten, kMaxListingBytes);
  std::istringstream lines(text.ok() ? *text : "");
  for (std::string line; std::getline(lines, line);) names.insert(line);
  return names;
}

void Cache::ForgetWritten(const std::set<std::string>& names) const {
  std::string rest;
  for (const std::string& name : Written()) {
    if (!names.contains(name)) rest += name + "\n";
  }
  if (!WriteTextFile(folder_ + kWritten, rest).ok()) ::unlink((folder_ + kWritten).c_str());
}

Status Cache::KeepListing(const std::string& commit, const std::string& json) const {
  const std::string path = folder_ + kListings + "/" + commit + ".json";
  std::error_code ignored;
  return fs::exists(path, ignored) ? Status() : WriteTextFile(path, json);
}

Result<Listing> Cache::ReadListing(const std::string& commit) const {
  const std::string path = folder_ + kListings + "/" + commit + ".json";
  TALLY_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(path, kMaxListingBytes));
  TALLY_ASSIGN_OR_RETURN(Listing listing, ParseListing(json, Printable(path)));
  if (listing.commit != commit) return BadInput(Printable(path) + ": is of another revision");
  return listing;
}

Result<Listing> Cache::ListSnapshot(const std::string& commit) const {
  Listing listing;
  listing.commit = commit;
  TALLY_RETURN_IF_ERROR(ListFolder(Snapshot(commit), "", 0, &listing));
  std::sort(listing.files.begin(), listing.files.end(), [](const File& a, const File& b) { return a.path < b.path; });
  return listing;
}

Result<FileLock> LockFile(const Cache& cache, const File& file, const std::function<bool()>& wait) {
  const std::string path = cache.locks_ + "/" + file.digest + ".lock";
  FileLock lock;
  for (;;) {
    const int error = lock.Take(path, 0666, FileLock::After::kKeep);
    if (error == 0) return lock;
    if (NoFileLocks(error)) {
      return BadInput(Printable(path) + ": its file system has no locks (flock): HF_HUB_CACHE names a folder of another");
    }
    if (error != EWOULDBLOCK) return SystemError(Printable(path) + ": cannot be locked", error);
    if (!wait()) return Status(StatusCode::kInterrupted, "interrupted");
    const timespec tenth{0, 100'000'000};
    ::nanosleep(&tenth, nullptr);
  }
}

uint64_t RoomBytes(const std::string& folder) {
  struct statvfs info;
  fs::path path = fs::path(folder).lexically_normal();
  while (::statvfs(path.empty() ? "." : path.c_str(), &info) != 0) {
    if (path.empty() || path == path.parent_path()) return UINT64_MAX;
    path = path.parent_path();
  }
  return info.f_blocks == 0 ? UINT64_MAX : uint64_t{info.f_bavail} * info.f_frsize;
}

}  // namespace tally::hub
