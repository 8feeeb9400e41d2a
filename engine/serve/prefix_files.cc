// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/prefix_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/checksum.h"
#include "engine/base/format.h"
#include "engine/base/system_error.h"
#include "engine/recipe/recipe.h"
#include "engine/session/scoped_sequence.h"
#include "engine/session/session_file.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".prefix";
constexpr std::string_view kBeginning = "-beginning.prefix";  // of PrefixUse::kBeginning
constexpr int64_t kLeastTokens = 8;                           // fewer run in no time
constexpr int64_t kLeastOfLarge = 128;                        // the same, of files beyond kLargeBytes
constexpr uint64_t kLargeBytes = uint64_t{16} << 20;
constexpr size_t kMostKept = 192;  // files that wait to be written, three a conversation

// 16 hexadecimal digits.
std::string SumOf(std::string_view bytes) {
  Checksum sum;
  sum.Add(bytes);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(sum.value()));
  return digits;
}
std::string SumOf(std::span<const int32_t> tokens) {
  return SumOf(std::string_view(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()));
}

bool BeginsWith(std::span<const int32_t> tokens, std::span<const int32_t> first) {
  return tokens.size() >= first.size() && std::equal(first.begin(), first.end(), tokens.begin());
}

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool NeedsWhole(const Recipe& recipe) {
  return AnyLayer(recipe, &LayerRecipe::recurrent) || std::ranges::any_of(recipe.layers, [](const LayerRecipe& layer) {
           return layer.attention.window > 0 || layer.attention.chunk > 0;
         });
}

}  // namespace

PrefixFiles::PrefixFiles(Engine& engine, std::string folder, uint64_t most_bytes, const std::string& options, Warn warn)
    : engine_(engine),
      folder_(std::move(folder)),
      most_bytes_(most_bytes),
      model_(
          SumOf(std::to_string(engine.Fingerprint()) + " " + std::to_string(static_cast<int>(engine.kv_type())) + " " + options)),
      warn_(std::move(warn)),
      whole_(NeedsWhole(engine.model().recipe())) {}

Result<std::unique_ptr<PrefixFiles>> PrefixFiles::Open(Engine& engine, const std::string& folder, uint64_t most_bytes,
                                                       const std::string& options, Warn warn) {
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);
  constexpr mode_t kOwnerOnly = 0700;
  if (::mkdir(folder.c_str(), kOwnerOnly) != 0 && errno != EEXIST) {
    return SystemError(Printable(folder) + ": cannot be made", errno);
  }
  std::unique_ptr<PrefixFiles> files(new PrefixFiles(engine, folder, most_bytes, options, std::move(warn)));
  constexpr unsigned kOwnerFile = 0600;
  const int locked = files->lock_.Take(folder + "/lock", kOwnerFile, FileLock::After::kKeep);
  if (locked == EWOULDBLOCK) return BadInput(Printable(folder) + ": another server uses this folder");
  if (locked != 0 && !NoFileLocks(locked)) return SystemError(Printable(folder) + ": cannot be written", locked);
  TALLY_RETURN_IF_ERROR(files->ReadFolder());
  return files;
}

Status PrefixFiles::ReadFolder() {
  std::error_code error;
  fs::directory_iterator entries(folder_, error);
  if (error) return BadInput(Printable(folder_) + ": cannot be read: " + error.message());
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    if (error) return BadInput(Printable(folder_) + ": cannot be read: " + error.message());
    File file = {.name = entries->path().filename().string(), .key = {}};
    struct stat about = {};
    if (file.name.find(std::string(kEnding) + ".partial-") != file.name.npos) {  // of a server that was killed
      std::error_code ignored;
      fs::remove(PathOf(file), ignored);
      continue;
    }
    if (!file.name.ends_with(kEnding) || ::lstat(PathOf(file).c_str(), &about) != 0 || !S_ISREG(about.st_mode)) continue;
    file.key = file.name.substr(0, file.name.find('-'));
    file.beginning = file.name.ends_with(kBeginning);
    file.bytes = static_cast<uint64_t>(about.st_size);
    file.used = int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec;
    if (file.name.find("-" + model_ + "-") == file.name.npos) {
      others_.push_back(std::move(file));
      continue;
    }
    Result<SessionFile> session = SessionFile::Peek(PathOf(file), engine_);
    if (!session.ok()) {
      warn_(session.status().message() + "; it is passed over");
      others_.push_back(std::move(file));
      continue;
    }
    file.tokens = session->state().tokens;
    files_.push_back(std::move(file));
  }
  MakeRoom(0);
  return {};
}

// Tokens that a request need not run if it begins with `tokens`.
int64_t PrefixFiles::Usable(const File& file, std::span<const int32_t> tokens) const {
  const auto end = std::mismatch(file.tokens.begin(), file.tokens.end(), tokens.begin(), tokens.end()).first;
  if (whole_ && end != file.tokens.end()) return 0;
  return end - file.tokens.begin();
}

std::unique_ptr<PrefixFiles::Found> PrefixFiles::Find(std::string_view key, std::span<const int32_t> tokens) {
  const std::string sum = SumOf(key);
  const int64_t known = engine_.Reusable(key, tokens);
  while (true) {
    size_t best = files_.size();
    int64_t most = known + kLeastTokens - 1;
    for (size_t i = 0; i < files_.size(); ++i) {
      const int64_t usable = files_[i].key == sum ? Usable(files_[i], tokens) : 0;
      if (usable <= most) continue;
      best = i;
      most = usable;
    }
    if (best == files_.size()) return nullptr;
    const File& file = files_[best];
    const uint64_t part = file.bytes / static_cast<uint64_t>(engine_.processes());  // budgets are of this process
    if (engine_.KvBudget() - engine_.KvBytesInUse() < part) return nullptr;
    Result<SessionFile> session = SessionFile::Peek(PathOf(file), engine_);
    Status status = session.status();
    if (status.ok() && session->state().tokens != file.tokens) {
      status = BadInput(Printable(PathOf(file)) + ": was changed by others");
    }
    if (status.ok()) return std::make_unique<Found>(Found{std::string(key), file.name, std::move(*session)});
    warn_(status.message() + "; it is removed");
    Remove(files_, best);
  }
}

bool PrefixFiles::Import(const Found& found, const Status& checked) {
  const auto at = std::ranges::find(files_, found.name, &File::name);
  if (at == files_.end()) return true;  // removed meanwhile
  const auto import = [&]() -> Status {
    TALLY_RETURN_IF_ERROR(checked);
    TALLY_ASSIGN_OR_RETURN(const int32_t imported, found.session.ImportCache(engine_));
    const ScopedSequence sequence = ScopedSequence::Own(engine_, imported);
    engine_.Remember(sequence.id(), found.key, at->tokens, /*states=*/1);
    return {};
  };
  const Status status = import();
  if (status.ok()) Touch(*at);
  if (status.ok() || status.code() == StatusCode::kNoRoom || !engine_.Health().ok()) return true;
  warn_(status.message() + "; it is removed");
  Remove(files_, static_cast<size_t>(at - files_.begin()));
  return false;
}

void PrefixFiles::Load(std::string_view key, std::span<const int32_t> tokens) {
  while (const std::unique_ptr<Found> found = Find(key, tokens)) {
    if (Import(*found, found->session.Check())) return;
  }
}

void PrefixFiles::Keep(std::string key, std::vector<int32_t> tokens, std::function<std::vector<int32_t>()> next, PrefixUse use) {
  if (!whole_ && use != PrefixUse::kConversation) return;
  std::erase_if(kept_, [&](const Kept& kept) { return kept.key == key && kept.use == use && BeginsWith(tokens, kept.tokens); });
  if (kept_.size() == kMostKept) kept_.pop_front();
  kept_.push_back({std::move(key), std::move(tokens), std::move(next), use});
}

void PrefixFiles::WriteOne() {
  if (kept_.empty()) return;
  const Kept kept = std::move(kept_.back());
  kept_.pop_back();
  std::vector<int32_t> tokens = kept.next ? kept.next() : kept.tokens;
  const Result<ScopedSequence> sequence = ScopedSequence::For(engine_, kept.key, tokens);
  if (!sequence.ok()) return;  // all sequences are in use: the next turn runs it again
  tokens.resize(static_cast<size_t>(engine_.Length(sequence->id())));
  if (static_cast<int64_t>(tokens.size()) < kLeastTokens) return;
  File file = {.name = {},
               .key = SumOf(std::string_view(kept.key)),
               .tokens = tokens,
               .bytes = 0,
               .used = Now(),
               .beginning = kept.use == PrefixUse::kBeginning};
  for (File& there : files_) {
    // A file of a conversation may be removed for a longer one, so it cannot take the place of a beginning.
    if (there.key != file.key || (file.beginning && !there.beginning)) continue;
    if (whole_ ? there.tokens == tokens : BeginsWith(there.tokens, tokens)) return Touch(there);
  }
  const Result<uint64_t> bytes = engine_.ExportedBytes(sequence->id());
  if (!bytes.ok() || (*bytes > kLargeBytes && static_cast<int64_t>(tokens.size()) < kLeastOfLarge)) return;
  if (kept.use == PrefixUse::kPrompt && this->bytes() + *bytes > most_bytes_) return;
  if (!MakeRoom(*bytes)) return;
  file.name = file.key + "-" + model_ + "-" + SumOf(std::span<const int32_t>(tokens)) +
              std::string(file.beginning ? kBeginning : kEnding);
  const Status status = WriteSession(PathOf(file), {.messages = {}, .settings = {}, .tokens = tokens}, engine_, sequence->id(),
                                     /*durable=*/false);
  if (!status.ok()) return warn_(status.message());
  std::error_code error;
  file.bytes = fs::file_size(PathOf(file), error);
  for (size_t i = files_.size(); i-- > 0;) {
    if (files_[i].key == file.key && !files_[i].beginning && BeginsWith(tokens, files_[i].tokens)) Remove(files_, i);
  }
  files_.push_back(std::move(file));
  MakeRoom(0);
}

uint64_t PrefixFiles::bytes() const {
  uint64_t bytes = 0;
  for (const File& file : files_) bytes += file.bytes;
  for (const File& file : others_) bytes += file.bytes;
  return bytes;
}

void PrefixFiles::Remove(std::vector<File>& files, size_t i) {
  std::error_code ignored;
  fs::remove(PathOf(files[i]), ignored);
  files.erase(files.begin() + static_cast<std::ptrdiff_t>(i));
}

// Removes the files that were used least recently until so many bytes more are within the bound. False: they alone are beyond it.
bool PrefixFiles::MakeRoom(uint64_t bytes) {
  if (bytes > most_bytes_) return false;
  while (this->bytes() > most_bytes_ - bytes) {
    const auto older = [](const File& a, const File& b) { return a.used < b.used; };
    const auto mine = std::ranges::min_element(files_, older), other = std::ranges::min_element(others_, older);
    const bool from_mine = other == others_.end() || (mine != files_.end() && older(*mine, *other));
    Remove(from_mine ? files_ : others_, static_cast<size_t>(from_mine ? mine - files_.begin() : other - others_.begin()));
  }
  return true;
}

void PrefixFiles::Touch(File& file) {
  file.used = Now();
  (void)::utimensat(AT_FDCWD, PathOf(file).c_str(), nullptr, 0);  // the order of files after a restart, no more
}

}  // namespace tally
