// SPDX-License-Identifier: Apache-2.0
#include "engine/hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/base/digest.h"
#include "engine/base/format.h"
#include "engine/base/sync_file.h"
#include "engine/base/system_error.h"
#include "engine/hub/url.h"
#include "loaders/inventory/message.h"

namespace tally::hub {
namespace {

constexpr uint64_t kProgressBytes = uint64_t{256} << 10;  // an attempt that brings so many bytes does not count as failed

std::string PathOf(const Name& name, const std::string& commit, const File& file) {
  return "/" + EscapePath(name.repository()) + "/resolve/" + commit + "/" + EscapePath(file.path);
}

// Checks that an answer to a request for the bytes from `begin` is of this file, and returns where it begins. The hub's own headers and the
// lengths must match the listing.
Result<uint64_t> CheckAnswer(const Reply& reply, const File& file, const std::string& commit, uint64_t begin) {
  const Response& r = reply.exchange.response;
  const std::string size = std::to_string(file.size);
  if (!reply.commit.empty() && reply.commit != commit)
    return BadInput("the answer is of another revision, " + Quote(reply.commit));
  if (!reply.etag.empty() && reply.etag != file.digest) {
    return BadInput("the answer is of another file: its digest is said to be " + Quote(reply.etag) + ", in the list " +
                    file.digest);
  }
  if (!reply.linked_size.empty() && reply.linked_size != size) {
    return BadInput("the answer is of a file of " + Quote(reply.linked_size) + " bytes; the list says " + size);
  }
  const std::optional<uint64_t> length = ParseCount(r.Header("content-length"));
  if (r.status == 200) {
    if (length && *length != file.size) {
      return BadInput("the server has " + std::to_string(*length) + " bytes; the hub's list says " + size);
    }
    return uint64_t{0};
  }
  const std::optional<ContentRange> range = ParseContentRange(r.Header("content-range"));
  if (!range || range->first != begin || range->last >= file.size || (range->total && *range->total != file.size) ||
      (length && *length != range->last - range->first + 1)) {
    return BadInput("asked for the bytes from " + std::to_string(begin) + " of " + size + ", the server answers with " +
                    Quote(std::string(r.Header("content-range")).substr(0, 100)));
  }
  return begin;
}

// A blob that is on its way.
class Blob {
 public:
  Blob(const File& file, std::string path, Meter& meter)
      : file_(file), path_(std::move(path)), meter_(meter), digest_(Digest::Like(file.digest, file.size)) {}
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob() {
    if (fd_ >= 0) ::close(fd_);
  }

  // Reads what a former call left, for its digest.
  Status Open() {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    struct stat info;
    if (fd_ < 0 || ::fstat(fd_, &info) != 0) return Failed("cannot be opened");
    if (!S_ISREG(info.st_mode)) return BadInput(Printable(path_) + ": is not a regular file");
    if (static_cast<uint64_t>(info.st_size) > file_.size) return Restart();
    std::vector<uint8_t> piece(1 << 20);
    while (have_ < static_cast<uint64_t>(info.st_size)) {
      const ssize_t n = ::pread(fd_, piece.data(), piece.size(), static_cast<off_t>(have_));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Failed("cannot be read");
      digest_.Add({piece.data(), static_cast<size_t>(n)});
      have_ += static_cast<uint64_t>(n);
      if (!meter_.Show(file_.path, have_)) return Status(StatusCode::kInterrupted, "interrupted");
    }
    return {};
  }

  Status Restart() {
    if (::ftruncate(fd_, 0) != 0) return Failed("cannot be emptied");
    have_ = 0;
    digest_ = Digest::Like(file_.digest, file_.size);
    return {};
  }

  Status Add(std::span<const uint8_t> bytes) {
    if (bytes.size() > file_.size - have_)
      return BadInput("the server sends more than the " + std::to_string(file_.size) + " bytes of the hub's list");
    digest_.Add(bytes);
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(have_));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Failed("cannot be written", n < 0 ? errno : ENOSPC);
      have_ += static_cast<uint64_t>(n);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return {};
  }

  Status Finish(const std::string& blob) {
    if (const int error = SyncFile(fd_); error != 0) return Failed("cannot be written", error);
    if (::rename(path_.c_str(), blob.c_str()) != 0) return Failed("cannot be given its name");
    return {};
  }

  void Remove() { ::unlink(path_.c_str()); }
  uint64_t have() const { return have_; }
  bool whole() const { return have_ == file_.size; }
  std::string digest() const { return digest_.Hex(); }

 private:
  Status Failed(const char* what, int reason = errno) const { return SystemError(Printable(path_) + ": " + what, reason); }
  const File& file_;
  const std::string path_;
  Meter& meter_;
  Digest digest_;
  int fd_ = -1;
  uint64_t have_ = 0;
};

// Requests until the blob has all its bytes.
Status Fill(Client& client, const Name& name, const std::string& commit, const File& file, Meter& meter, Blob& blob) {
  const std::string what = name.repository() + ": " + Printable(file.path);
  Attempts attempts(client, what);
  uint64_t most = blob.have();  // a server without ranges begins again each time: only bytes beyond these are progress
  const Poll poll = [&] { return meter.Show(file.path, blob.have()); };
  while (!blob.whole()) {
    Status trouble;
    bool checked = false;
    const uint64_t begin = blob.have();
    const Reply reply = client.Get(
        PathOf(name, commit, file), begin > 0 ? std::to_string(begin) + "-" : "",
        [&](const Reply& answer, std::span<const uint8_t> bytes) {
          if (!checked) {
            checked = true;
            const Result<uint64_t> from = CheckAnswer(answer, file, commit, begin);
            trouble = from.status();
            if (from.ok()) trouble = *from == begin ? Status() : blob.Restart();  // the server has no ranges and sends all again
          }
          if (trouble.ok()) trouble = blob.Add(bytes);
          meter.Fetched(bytes.size());
          return trouble.ok() && poll();
        },
        poll);
    if (!trouble.ok()) return Status(trouble.code(), what + ": " + trouble.message());
    if (blob.whole()) break;
    if (blob.have() >= most + kProgressBytes) {
      attempts.Progressed();
      most = blob.have();
    }
    TALLY_RETURN_IF_ERROR(attempts.Again(reply, name, poll));
  }
  return {};
}

}  // namespace

Status FetchFile(Client& client, const Cache& cache, const Name& name, const std::string& commit, const File& file,
                 Meter& meter) {
  if (!cache.Has(commit, file)) {
    TALLY_ASSIGN_OR_RETURN(const FileLock lock, LockFile(cache, file, [&] { return meter.Show(file.path, 0, true); }));
    if (!cache.Has(commit, file)) {  // nobody else has fetched it meanwhile
      Blob blob(file, cache.Incomplete(file), meter);
      TALLY_RETURN_IF_ERROR(blob.Open());
      bool resumed = blob.have() > 0;
      if (!resumed) cache.NoteWritten(file.digest + ".incomplete");
      for (;;) {
        TALLY_RETURN_IF_ERROR(Fill(client, name, commit, file, meter, blob));
        const std::string digest = blob.digest();
        if (digest == file.digest) break;
        if (!resumed) {
          blob.Remove();
          return BadInput(name.repository() + ": " + Printable(file.path) + ": what came has the " +
                          (file.digest.size() == 64 ? "SHA-256 " : "git SHA-1 ") + digest + ", the hub says " + file.digest +
                          "; it was removed");
        }
        resumed = false;  // what a former call left may have been spoilt: once more, from the beginning
        TALLY_RETURN_IF_ERROR(blob.Restart());
      }
      TALLY_RETURN_IF_ERROR(blob.Finish(cache.Blob(file)));
      cache.NoteWritten(file.digest);
    }
  }
  meter.Finish(file.size);
  return cache.Link(commit, file);
}

Status FetchBeginning(Client& client, const Name& name, const std::string& commit, const File& file, uint64_t bytes,
                      std::vector<uint8_t>& beginning, Meter& meter) {
  const std::string what = name.repository() + ": " + Printable(file.path);
  Attempts attempts(client, what);
  const Poll poll = [&] { return meter.Show(file.path, beginning.size()); };
  bytes = std::min(bytes, file.size);
  while (beginning.size() < bytes) {
    Status trouble;
    bool checked = false;
    const uint64_t begin = beginning.size();
    uint64_t skip = 0;  // bytes to skip if the server begins at 0 all the same
    const Reply reply = client.Get(
        PathOf(name, commit, file), std::to_string(begin) + "-" + std::to_string(bytes - 1),
        [&](const Reply& answer, std::span<const uint8_t> piece) {
          if (!checked) {
            checked = true;
            const Result<uint64_t> from = CheckAnswer(answer, file, commit, begin);
            trouble = from.status();
            if (from.ok()) skip = begin - *from;
          }
          if (!trouble.ok()) return false;
          meter.Fetched(piece.size());
          const auto over = static_cast<size_t>(std::min<uint64_t>(skip, piece.size()));
          skip -= over;
          piece = piece.subspan(over);
          piece = piece.first(static_cast<size_t>(std::min<uint64_t>(piece.size(), bytes - beginning.size())));
          beginning.insert(beginning.end(), piece.begin(), piece.end());
          return beginning.size() < bytes && poll();
        },
        poll);
    if (checked && !trouble.ok()) return Status(trouble.code(), what + ": " + trouble.message());
    if (beginning.size() == bytes) break;
    if (beginning.size() - begin >= kProgressBytes) attempts.Progressed();
    TALLY_RETURN_IF_ERROR(attempts.Again(reply, name, poll));
  }
  return {};
}

}  // namespace tally::hub
