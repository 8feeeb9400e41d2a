// SPDX-License-Identifier: Apache-2.0
#include "engine/hub/listing.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/base/format.h"
#include "engine/base/json.h"
#include "engine/hub/name.h"

namespace tally::hub {
namespace {

constexpr size_t kMaxFiles = 200'000;
constexpr size_t kMaxShards = 10'000;
constexpr int kMaxDepth = 32;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 60;

// {"sha": commit, "siblings": [{"rfilename", "size", "blobId", "lfs": {"sha256", "size"}}]}
class ListingHandler : public JsonHandler {
 public:
  Listing listing;
  bool seen = false;

  Status Key(std::string key) override {
    path_.back() = std::move(key);
    return {};
  }
  Status Begin(bool object) override {
    if (At(1, "siblings")) {
      if (object) return BadInput("expected siblings to be an array");
      seen = true;
    }
    if (object && At(2, "siblings")) file_ = Sibling();
    path_.emplace_back();
    return {};
  }
  Status End() override {
    path_.pop_back();
    return At(2, "siblings") ? Finish() : Status();
  }
  Status Scalar(JsonScalar value) override {
    std::string* const text = std::get_if<std::string>(&value);
    const uint64_t* const number = std::get_if<uint64_t>(&value);
    if (At(1, "sha") && text != nullptr) listing.commit = std::move(*text);
    if (path_.size() < 3 || path_[0] != "siblings") return {};
    const std::string& key = path_.back();
    const bool lfs = path_.size() == 4 && path_[2] == "lfs";
    if (!lfs && path_.size() != 3) return {};
    if (key == "rfilename" && text != nullptr) file_.path = std::move(*text);
    if (key == "size" && number != nullptr) (lfs ? file_.lfs_size : file_.size) = *number;
    if (key == "blobId" && text != nullptr) file_.blob = std::move(*text);
    if (lfs && key == "sha256" && text != nullptr) file_.sha256 = std::move(*text);
    return {};
  }

 private:
  struct Sibling {
    std::string path, blob, sha256;
    std::optional<uint64_t> size, lfs_size;
  };
  // The open value's depth, and the key of the document that it is under.
  bool At(size_t depth, std::string_view key) const { return path_.size() == depth && path_[0] == key; }

  Status Finish() {
    TALLY_RETURN_IF_ERROR(CheckFilePath(file_.path));
    const std::string place = "file " + Quote(file_.path) + ": ";
    const bool large = !file_.sha256.empty();
    const std::optional<uint64_t> size = large && file_.lfs_size ? file_.lfs_size : file_.size;
    const std::string& digest = large ? file_.sha256 : file_.blob;
    if (!size || digest.empty()) return BadInput(place + "its size and its digest are not said");
    if (*size > kMaxFileBytes) return BadInput(place + std::to_string(*size) + " bytes are no size of a file");
    if (!IsHex(digest, large ? 64 : 40)) return BadInput(place + Quote(digest) + " is no digest");
    if (listing.files.size() == kMaxFiles) return BadInput("more than " + std::to_string(kMaxFiles) + " files");
    listing.files.push_back({std::move(file_.path), *size, digest});
    return {};
  }

  std::vector<std::string> path_;  // of the keys of what is open
  Sibling file_;
};

class IndexHandler : public JsonHandler {
 public:
  std::set<std::string> shards;
  Status Key(std::string key) override {
    if (depth_ == 1) in_map_ = key == "weight_map";
    return {};
  }
  Status Begin(bool) override {
    ++depth_;
    return {};
  }
  Status End() override {
    --depth_;
    return {};
  }
  Status Scalar(JsonScalar value) override {
    if (!in_map_ || depth_ != 2) return {};
    auto* const name = std::get_if<std::string>(&value);
    if (name == nullptr || name->find('/') != name->npos || !CheckFilePath(*name).ok()) {
      return BadInput("weight_map names a file that is none of the same folder");
    }
    if (shards.insert(std::move(*name)).second && shards.size() > kMaxShards) {
      return BadInput("more than " + std::to_string(kMaxShards) + " files");
    }
    return {};
  }

 private:
  int depth_ = 0;
  bool in_map_ = false;
};

}  // namespace

const File* Listing::Find(std::string_view path) const {
  const auto at =
      std::lower_bound(files.begin(), files.end(), path, [](const File& f, std::string_view p) { return f.path < p; });
  return at != files.end() && at->path == path ? &*at : nullptr;
}

Result<Listing> ParseListing(std::string_view json, const std::string& place) {
  ListingHandler handler;
  TALLY_RETURN_IF_ERROR(ParseJson(place, json, {.depth = kMaxDepth}, handler));
  Listing& listing = handler.listing;
  if (!handler.seen) return BadInput(place + ": expected the list of a repository's files (siblings)");
  if (!IsHex(listing.commit, 40)) return BadInput(place + ": expected a commit of 40 hexadecimal digits (sha)");
  std::sort(listing.files.begin(), listing.files.end(), [](const File& a, const File& b) { return a.path < b.path; });
  for (size_t i = 1; i < listing.files.size(); ++i) {
    const std::string& path = listing.files[i].path;
    if (path == listing.files[i - 1].path) return BadInput(place + ": the file " + Quote(path) + " appears twice");
  }
  return std::move(listing);
}

Result<std::vector<std::string>> ShardsOfIndex(std::string_view json, const std::string& place) {
  IndexHandler handler;
  TALLY_RETURN_IF_ERROR(ParseJson(place, json, {.depth = kMaxDepth}, handler));
  if (handler.shards.empty()) return BadInput(place + ": expected the key weight_map with at least one tensor");
  return std::vector<std::string>(handler.shards.begin(), handler.shards.end());
}

}  // namespace tally::hub
