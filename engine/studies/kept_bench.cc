// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/kept_bench.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/file_lock.h"
#include "engine/base/hash.h"
#include "engine/machine/kept_file.h"
#include "engine/machine/machine.h"
#include "engine/recipe/recipe.h"
#include "engine/studies/fit.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using KeptJson = nlohmann::json;

constexpr int kFileVersion = 3;  // of the file

// Path, size and time of change; of a directory those of all its files together. Null where there is none.
KeptJson KeyOf(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::canonical(path, error);
  if (error) return nullptr;
  uint64_t size = 0;
  int64_t changed = 0;
  const auto add = [&](const fs::path& file) {
    size += fs::file_size(file, error);
    const auto time = fs::last_write_time(file, error);
    changed = std::max<int64_t>(changed, time.time_since_epoch().count());
  };
  if (fs::is_regular_file(whole, error)) {
    add(whole);
  } else {
    for (auto at = fs::directory_iterator(whole, error); !error && at != fs::directory_iterator(); at.increment(error)) {
      if (at->is_regular_file(error)) add(at->path());
    }
  }
  if (error) return nullptr;
  return {{"path", whole.string()}, {"size", size}, {"changed", changed}, {"host", HostName()}};
}

// "bench-0123456789abcdef.json"
std::string HashedName(const char* kind, const std::string& text) {
  constexpr HashKey kKey = {0x74616c6c79, 1};  // the same in every process
  char name[48];
  std::snprintf(name, sizeof name, "%s-%016llx.json", kind, static_cast<unsigned long long>(SipHash13(text, kKey)));
  return name;
}
std::string FileName(const KeptJson& key) {
  return HashedName("bench", key["path"].get<std::string>() + '\0' + key["host"].get<std::string>());
}

constexpr int kHitsVersion = 2;  // of the file of hit rates
constexpr uint64_t kFewestTokens = 64, kMostTokens = 100'000;
constexpr int kLockTries = 100;
constexpr double kLockPause = .01;  // seconds

bool IsValid(const KeptHits& k) {
  return k.slots > 0 && k.rows > 0 && k.tokens >= kFewestTokens && !k.hit_rates.empty() &&
         std::ranges::all_of(k.hit_rates, [](double h) { return h >= 0 && h <= 1; });
}

template <class Point>
void AddPoints(SpeedWork work, const std::vector<Point>& points, double Point::*of_roof, std::vector<KeptPoint>& kept) {
  for (const Point& p : points) {
    kept.push_back({work, p.threads, std::string(kKvTypeNames[static_cast<size_t>(p.kv)]), p.depth, p.batch, p.tokens,
                    p.rate.median, p.*of_roof});
  }
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(KeptHits, slots, hit_rates, tokens, rows)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(KeptPoint, work, threads, kv, depth, batch, tokens, tokens_per_second, of_roof)

std::string CacheDirectory() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
    return value != nullptr && value[0] == '/' ? value : "";
  };
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/tally";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/tally";
}

void KeepBench(const std::string& path, const SpeedReport& report) {
  const std::string directory = CacheDirectory();
  KeepBestRates(directory, report);
  const KeptJson key = KeyOf(path);
  if (directory.empty() || key.is_null()) return;
  std::vector<KeptPoint> points;
  AddPoints(SpeedWork::kPrefill, report.prefill, &PrefillSpeed::ratio_of_peak, points);
  AddPoints(SpeedWork::kDecode, report.decode, &DecodeSpeed::ratio_of_bandwidth, points);
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const KeptJson document = {{"tally_bench", kFileVersion},
                             {"model", key},
                             {"target", report.target},
                             {"when", now},
                             {"boot", BootId()},
                             {"points", points}};
  WriteKeptFile(directory, FileName(key), document.dump(1, ' ', false, KeptJson::error_handler_t::replace) + "\n");
}

std::optional<KeptBench> FindBench(const std::string& path) {
  const std::string directory = CacheDirectory();
  const KeptJson key = KeyOf(path);
  if (directory.empty() || key.is_null()) return std::nullopt;
  const std::optional<std::string> text = ReadKeptFile(directory + "/" + FileName(key));
  if (!text) return std::nullopt;
  const KeptJson j = KeptJson::parse(*text, nullptr, false);
  const auto is = [&](const char* name, const KeptJson& value) { return j.contains(name) && j[name] == value; };
  if (!j.is_object() || !is("tally_bench", kFileVersion) || !is("model", key)) return std::nullopt;
  const std::string boot = BootId();
  try {
    KeptBench kept{j.at("target"), j.at("when"), !boot.empty() && is("boot", boot), j.at("points")};
    std::erase_if(kept.points, [](const KeptPoint& p) {
      return p.threads <= 0 || p.depth < 0 || p.batch <= 0 || p.tokens <= 0 || !(p.tokens_per_second > 0) ||
             (p.work != SpeedWork::kPrefill && p.work != SpeedWork::kDecode);
    });
    return kept.points.empty() ? std::nullopt : std::optional(std::move(kept));
  } catch (const KeptJson::exception&) {  // damaged
    return std::nullopt;
  }
}

std::optional<double> KeptReadBandwidth(const books::RunFigures& run) {
  KeepBestRates(CacheDirectory(), run);
  const std::optional<FitMachine> machine = FindMachine(CacheDirectory(), run.threads);
  return machine ? std::optional(machine->read) : std::nullopt;
}

std::string RoutingId(const Recipe& recipe) {
  const Experts& e = ExpertsOf(recipe);
  std::string id = recipe.family;
  for (const int32_t n : {recipe.n_layers, recipe.d_model, recipe.vocab, e.n_experts, e.top_k, e.width})
    id += "-" + std::to_string(n);
  return id;
}

std::vector<KeptHits> FindHitRates(const std::string& routing_id) {
  const std::string directory = CacheDirectory();
  const std::optional<std::string> text =
      directory.empty() ? std::nullopt : ReadKeptFile(directory + "/" + HashedName("hits", routing_id));
  if (!text) return {};
  const KeptJson j = KeptJson::parse(*text, nullptr, false);
  const auto is = [&](const char* name, const KeptJson& value) { return j.contains(name) && j[name] == value; };
  if (!j.is_object() || !is("tally_hits", kHitsVersion) || !is("model", routing_id)) return {};
  try {
    std::vector<KeptHits> kept = j.at("runs");
    std::erase_if(kept, [](const KeptHits& k) { return !IsValid(k); });
    std::ranges::sort(kept, {}, [](const KeptHits& k) { return std::pair(k.rows, k.slots); });
    return kept;
  } catch (const KeptJson::exception&) {  // damaged
    return {};
  }
}

int64_t RowsOfHits(double rows) { return int64_t{1} << std::lround(std::log2(std::clamp(rows, 1.0, 65536.0))); }

void KeepHitRates(const std::string& routing_id, const KeptHits& run) {
  const std::string directory = CacheDirectory();
  std::error_code error;
  if (directory.empty() || !IsValid(run)) return;
  fs::create_directories(directory, error);
  FileLock lock;  // what is read here is written
  int taken = EWOULDBLOCK;
  for (int i = 0; i < kLockTries && taken == EWOULDBLOCK; ++i) {
    if (i > 0) SleepFor(kLockPause);
    taken = lock.Take(directory + "/" + HashedName("hits", routing_id) + ".lock", 0600, FileLock::After::kRemove);
  }
  if (taken != 0 && !NoFileLocks(taken)) return;
  std::vector<KeptHits> kept = FindHitRates(routing_id);
  std::erase_if(kept, [&](const KeptHits& k) { return k.hit_rates.size() != run.hit_rates.size(); });
  const auto same = std::ranges::find_if(kept, [&](const KeptHits& k) { return k.slots == run.slots && k.rows == run.rows; });
  if (same == kept.end()) {
    kept.push_back(run);
    kept.back().tokens = std::min(run.tokens, kMostTokens);
  } else {
    const double before = static_cast<double>(same->tokens), now = static_cast<double>(run.tokens);
    for (size_t i = 0; i < run.hit_rates.size(); ++i) {
      same->hit_rates[i] = (same->hit_rates[i] * before + run.hit_rates[i] * now) / (before + now);
    }
    same->tokens = std::min(SaturatingAdd(same->tokens, run.tokens), kMostTokens);
  }
  const KeptJson document = {{"tally_hits", kHitsVersion}, {"model", routing_id}, {"runs", kept}};
  WriteKeptFile(directory, HashedName("hits", routing_id), document.dump(1) + "\n");
}

}  // namespace tally
