// SPDX-License-Identifier: Apache-2.0
// The cache's folders: models--ORG--NAME/{blobs,refs,snapshots}, and locks beside them (.locks).
#pragma once

#include <memory>
#include <set>
#include <string>

#include "engine/base/file_lock.h"
#include "engine/hub/hub.h"
#include "engine/hub/listing.h"

namespace tally::hub {

class Cache {
 public:
  Cache(std::string root, const Name& name);
  const std::string& root() const { return root_; }
  const std::string& folder() const { return folder_; }  // models--ORG--NAME
  const std::string& locks() const { return locks_; }    // its locks
  std::string Blob(const File& file) const;
  std::string Incomplete(const File& file) const;  // of the blob, while it is fetched
  std::string Snapshot(const std::string& commit) const;
  std::string Place(const std::string& commit, const std::string& path) const;  // of a file in the snapshot

  bool Has(const File& file) const;  // the blob, with that size
  // The blob, or the file itself in the snapshot if the file system has no symbolic links.
  bool Has(const std::string& commit, const File& file) const;
  uint64_t BytesOfIncomplete(const File& file) const;  // at most its size; 0: none
  Status MakeFolders() const;
  // The snapshot's name for the blob: a relative symbolic link. On file systems without links, the blob itself goes there.
  Status Link(const std::string& commit, const File& file) const;
  Result<std::string> ReadRef() const;  // the commit of main
  Status WriteRef(const std::string& commit) const;
  bool IsOurs() const;  // Tally has fetched files of it, or begun to
  // Notes the name of a file in blobs/ that Tally has written: what removing may take. What cannot be noted counts as another program's.
  void NoteWritten(const std::string& name) const;
  std::set<std::string> Written() const;                         // the names noted
  void ForgetWritten(const std::set<std::string>& names) const;  // before they are removed
  // The hub's answer with all files of the revision (ParseListing), beside what huggingface_hub has in the folder. It is written once.
  Status KeepListing(const std::string& commit, const std::string& json) const;
  Result<Listing> ReadListing(const std::string& commit) const;
  // The names in the snapshot that lead to a file. Digests are empty.
  Result<Listing> ListSnapshot(const std::string& commit) const;

 private:
  friend Result<FileLock> LockFile(const Cache& cache, const File& file, const std::function<bool()>& wait);
  std::string root_, folder_, locks_;
};

// The lock of a file, which huggingface_hub takes too (flock). `wait` is called ten times a second while another process has it; false:
// stop, kInterrupted.
Result<FileLock> LockFile(const Cache& cache, const File& file, const std::function<bool()>& wait);

// Bytes that the file system of the folder, or of the nearest folder above that exists, has room for; UINT64_MAX: it does not say.
uint64_t RoomBytes(const std::string& folder);

}  // namespace tally::hub
