// SPDX-License-Identifier: Apache-2.0
// Plans, and their files.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "engine/base/system_error.h"
#include "engine/hub/cache.h"
#include "engine/hub/client.h"
#include "engine/hub/download.h"
#include "engine/hub/hub.h"
#include "engine/hub/listing.h"
#include "engine/hub/url.h"
#include "loaders/inventory/file_reader.h"
#include "loaders/inventory/message.h"
#include "loaders/loaders.h"

namespace tally::hub {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{8} << 20;
constexpr uint64_t kFirstHeaderBytes = uint64_t{1} << 20;  // of a GGUF file; four times as many each time it is not enough

// Removed with all that is in it.
struct TemporaryFolder {
  std::string path;
  TemporaryFolder() = default;
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

Result<std::shared_ptr<TemporaryFolder>> MakeTemporaryFolder() {
  auto folder = std::make_shared<TemporaryFolder>();
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  std::string path = ((error ? fs::path("/tmp") : base) / "tally-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) {
    return SystemError(Printable(path) + ": the folder cannot be made", errno);
  }
  folder->path = path;
  return folder;
}

// A file as long as the hub's whose first bytes are these; the rest is a hole.
Status WriteBeginning(const std::string& path, const std::vector<uint8_t>& beginning, uint64_t size) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  int reason = fd < 0 ? errno : 0;
  for (size_t done = 0; reason == 0 && done < beginning.size();) {
    const ssize_t n = ::write(fd, beginning.data() + done, beginning.size() - done);
    if (n > 0) done += static_cast<size_t>(n);
    if (n < 0 && errno != EINTR) reason = errno;
  }
  if (reason == 0 && (size > INT64_MAX || ::ftruncate(fd, static_cast<off_t>(size)) != 0)) reason = errno;
  if (fd >= 0) ::close(fd);
  if (reason == 0) return {};
  return SystemError(Printable(path) + ": cannot be written", reason);
}

class HubImpl : public Hub {
 public:
  explicit HubImpl(Client client) : client_(std::move(client)) {}

  Result<Plan> MakePlan(const Name& name, Want want, const ProgressCallback& progress) override {
    Result<Plan> plan = PlanOf(name, want, progress);
    if (!plan.ok()) return WithoutToken(plan.status(), client_.settings().token);
    return plan;
  }

  Result<Fetched> Fetch(const Plan& plan, const ProgressCallback& progress) override {
    Result<Fetched> fetched = plan.headers ? FetchHeaders(plan, progress) : FetchFiles(plan, progress);
    if (!fetched.ok()) return WithoutToken(fetched.status(), client_.settings().token);
    return fetched;
  }

 private:
  Result<Plan> PlanOf(const Name& name, Want want, const ProgressCallback& progress) {
    const Cache cache(client_.settings().cache, name);
    const Poll poll = [&] { return progress == nullptr || progress({}); };
    const std::string path = "/api/models/" + EscapePath(name.repository()) + "/revision/main?blobs=true";
    TALLY_ASSIGN_OR_RETURN(std::string json, client_.GetText(path, kMaxListingBytes, name, poll));
    TALLY_ASSIGN_OR_RETURN(const Listing listing, ParseListing(json, name.repository() + ": the answer of " + client_.host()));
    TALLY_ASSIGN_OR_RETURN(Choice choice, Choose(listing, name, want, false));
    if (!choice.index.empty()) TALLY_RETURN_IF_ERROR(AddShards(cache, name, listing, choice, progress));
    Plan plan{name, want, listing.commit, std::move(choice.files), choice.open};
    plan.headers = want == Want::kConfiguration && choice.gguf;
    std::set<std::string> counted;
    for (const File& f : plan.files) {
      if (want == Want::kConfiguration && !plan.headers && f.size > kMaxConfigBytes) {
        return BadInput(name.repository() + ": " + Printable(f.path) + " has " + BytesText(f.size) +
                        "; no configuration has more than " + BytesText(kMaxConfigBytes));
      }
      plan.bytes = SaturatingAdd(plan.bytes, f.size);
      if (cache.Has(plan.commit, f) || !counted.insert(f.digest).second) continue;
      plan.missing = SaturatingAdd(plan.missing, f.size - cache.BytesOfIncomplete(f));
    }
    if (plan.headers && plan.missing == 0) plan.headers = false;
    plan.listing = std::move(json);
    return plan;
  }

  Result<Fetched> FetchFiles(const Plan& plan, const ProgressCallback& progress) {
    const Cache cache(client_.settings().cache, plan.name);
    TALLY_RETURN_IF_ERROR(CheckRoom(cache, plan.missing));
    TALLY_RETURN_IF_ERROR(cache.MakeFolders());
    Meter meter(progress, plan.bytes);
    for (const File& f : plan.files) TALLY_RETURN_IF_ERROR(FetchFile(client_, cache, plan.name, plan.commit, f, meter));
    if (!plan.listing.empty()) TALLY_RETURN_IF_ERROR(cache.KeepListing(plan.commit, plan.listing));
    // A configuration alone does not replace the revision whose weights are there.
    if (plan.want == Want::kWeights || !cache.ReadRef().ok()) TALLY_RETURN_IF_ERROR(cache.WriteRef(plan.commit));
    return Fetched{plan.open.empty() ? cache.Snapshot(plan.commit) : cache.Place(plan.commit, plan.open), nullptr};
  }

  static Status CheckRoom(const Cache& cache, uint64_t missing) {
    const uint64_t room = RoomBytes(cache.root());
    if (missing <= room) return {};
    return BadInput(Printable(cache.root()) + ": " + BytesText(missing, Rounding::kUp) +
                    " are to come, and its file system has room for " + BytesText(room, Rounding::kDown) +
                    "; HF_HOME names another folder");
  }

  Status AddShards(const Cache& cache, const Name& name, const Listing& listing, Choice& choice,
                   const ProgressCallback& progress) {
    const File& index = *listing.Find(choice.index);
    const std::string place = name.repository() + ": " + choice.index;
    if (index.size > kMaxIndexBytes) return BadInput(place + " has " + BytesText(index.size) + "; an index has less");
    TALLY_RETURN_IF_ERROR(CheckRoom(cache, index.size));
    TALLY_RETURN_IF_ERROR(cache.MakeFolders());
    Meter meter(progress, index.size);
    TALLY_RETURN_IF_ERROR(FetchFile(client_, cache, name, listing.commit, index, meter));
    TALLY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(cache.Place(listing.commit, index.path), kMaxIndexBytes));
    TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> shards, ShardsOfIndex(text, place));
    for (const std::string& shard : shards) {
      const File* const file = listing.Find(shard);
      if (file == nullptr) return BadInput(place + " names " + Quote(shard) + ", which the repository does not have");
      choice.files.push_back(*file);
    }
    return {};
  }

  Result<Fetched> FetchHeaders(const Plan& plan, const ProgressCallback& progress) {
    TALLY_ASSIGN_OR_RETURN(const std::shared_ptr<TemporaryFolder> folder, MakeTemporaryFolder());
    Meter meter(progress, 0);
    for (const File& f : plan.files) {
      const std::string place = plan.name.repository() + ": " + Printable(f.path);
      std::vector<uint8_t> beginning;
      for (uint64_t wanted = kFirstHeaderBytes;; wanted *= 4) {
        TALLY_RETURN_IF_ERROR(FetchBeginning(client_, plan.name, plan.commit, f, wanted, beginning, meter));
        TALLY_ASSIGN_OR_RETURN(const std::optional<uint64_t> header, GgufHeaderBytes(beginning, place));
        if (header) break;
        if (beginning.size() == f.size) return BadInput(place + ": the file ends within its header");
      }
      TALLY_RETURN_IF_ERROR(WriteBeginning(folder->path + "/" + internal::FileNameOf(f.path), beginning, f.size));
    }
    return Fetched{folder->path + "/" + internal::FileNameOf(plan.open), folder};
  }

  Client client_;
};

// `whole`: what the repository has, if that is known. `here`: the part of it in the cache. kBadInput: files of the choice are missing.
Result<Choice> ChooseCached(const Cache& cache, const Listing& here, const Result<Listing>& whole, const Name& name, Want want) {
  TALLY_ASSIGN_OR_RETURN(Choice choice, Choose(whole.ok() ? *whole : here, name, want, !whole.ok()));
  const auto check = [&](const std::string& path) {
    const File* const file = here.Find(path);
    const File* const listed = whole.ok() ? whole->Find(path) : file;
    if (file != nullptr && listed != nullptr && file->size == listed->size) return Status();
    return BadInput(name.text() + ": " + Printable(path) + " is not in the cache" + AlsoThere(here, name));
  };
  for (const File& f : choice.files) TALLY_RETURN_IF_ERROR(check(f.path));
  if (choice.index.empty()) return choice;
  const std::string path = cache.Place(here.commit, choice.index);
  TALLY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxIndexBytes));
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> shards, ShardsOfIndex(text, Printable(path)));
  for (const std::string& shard : shards) TALLY_RETURN_IF_ERROR(check(shard));
  return choice;
}

}  // namespace

Result<std::unique_ptr<Hub>> OpenHub(const Settings& settings) {
  if (settings.offline) return BadInput("HF_HUB_OFFLINE is set: nothing is fetched");
  TALLY_RETURN_IF_ERROR(settings.token_status);
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, OpenCurl(settings));
  TALLY_ASSIGN_OR_RETURN(Client client, Client::Make(settings, std::move(transport)));
  return std::unique_ptr<Hub>(std::make_unique<HubImpl>(std::move(client)));
}

Result<std::string> FindCached(const Settings& settings, const Name& name, Want want) {
  const Cache cache(settings.cache, name);
  const Result<std::string> commit = cache.ReadRef();
  if (!commit.ok()) return BadInput(name.text() + ": is not in the cache of the Hugging Face hub, " + Printable(settings.cache));
  TALLY_ASSIGN_OR_RETURN(const Listing here, cache.ListSnapshot(*commit));
  const Result<Listing> whole = cache.ReadListing(*commit);
  Result<Choice> choice = ChooseCached(cache, here, whole, name, Want::kWeights);
  // Counting reads the weights' own headers if all of them are here.
  if (!choice.ok() && want == Want::kConfiguration && name.choice.empty()) {
    const Result<Choice> configuration = ChooseCached(cache, here, whole, name, want);
    if (configuration.ok()) choice = configuration;
  }
  if (!choice.ok()) return choice.status();
  return choice->open.empty() ? cache.Snapshot(*commit) : cache.Place(*commit, choice->open);
}

}  // namespace tally::hub
