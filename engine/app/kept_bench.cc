// SPDX-License-Identifier: Apache-2.0
#include "engine/app/kept_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/app/json.h"
#include "engine/base/hash.h"
#include "engine/machine/kept_file.h"

namespace tally::app {
namespace {

namespace fs = std::filesystem;

constexpr int kFileVersion = 2;  // of the file

// Path, size and time of change; of a directory those of all its files together. Null where there is none.
Json KeyOf(const std::string& path) {
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

std::string FileName(const Json& key) {
  constexpr HashKey kKey = {0x74616c6c79, 1};  // the same in every process
  const std::string text = key["path"].get<std::string>() + '\0' + key["host"].get<std::string>();
  char name[40];
  std::snprintf(name, sizeof name, "bench-%016llx.json", static_cast<unsigned long long>(SipHash13(text, kKey)));
  return name;
}

template <class Point>
Json PointJson(SpeedWork work, const Point& p, double of_roof) {
  return {{"work", kSpeedWorkNames[static_cast<size_t>(work)]},
          {"threads", p.threads},
          {"kv", kKvTypeNames[static_cast<size_t>(p.kv)]},
          {"depth", p.depth},
          {"batch", p.batch},
          {"tokens", p.tokens},
          {"tokens_per_second", p.rate.median},
          {"of_roof", of_roof}};
}

std::optional<KeptPoint> PointOf(const Json& j) {
  const auto whole = [&](const char* name) { return j.contains(name) && j[name].is_number_integer(); };
  const auto text = [&](const char* name) { return j.contains(name) && j[name].is_string(); };
  const auto number = [&](const char* name) { return j.contains(name) && j[name].is_number(); };
  if (!j.is_object() || !text("work") || !text("kv") || !whole("threads") || !whole("depth") || !whole("batch") ||
      !whole("tokens") || !number("tokens_per_second") || !number("of_roof")) {
    return std::nullopt;
  }
  KeptPoint p{j["work"].get<std::string>() == kSpeedWorkNames[0] ? SpeedWork::kPrefill : SpeedWork::kDecode,
              j["threads"].get<int>(),
              j["kv"].get<std::string>(),
              j["depth"].get<int64_t>(),
              j["batch"].get<int64_t>(),
              j["tokens"].get<int64_t>(),
              j["tokens_per_second"].get<double>(),
              j["of_roof"].get<double>()};
  const bool sound = p.threads > 0 && p.depth >= 0 && p.batch > 0 && p.tokens > 0 && p.tokens_per_second > 0;
  return sound ? std::optional(std::move(p)) : std::nullopt;
}

}  // namespace

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
  const Json key = KeyOf(path);
  if (directory.empty() || key.is_null()) return;
  Json points = Json::array();
  for (const PrefillSpeed& p : report.prefill) points.push_back(PointJson(SpeedWork::kPrefill, p, p.ratio_of_peak));
  for (const DecodeSpeed& p : report.decode) points.push_back(PointJson(SpeedWork::kDecode, p, p.ratio_of_bandwidth));
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const Json document = {
      {"tally_bench", kFileVersion}, {"model", key}, {"target", report.target}, {"when", now}, {"boot", BootId()},
      {"points", std::move(points)}};
  WriteKeptFile(directory, FileName(key), document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::optional<KeptBench> FindBench(const std::string& path) {
  const std::string directory = CacheDirectory();
  const Json key = KeyOf(path);
  if (directory.empty() || key.is_null()) return std::nullopt;
  const std::optional<std::string> text = ReadKeptFile(directory + "/" + FileName(key));
  if (!text) return std::nullopt;
  const Json j = Json::parse(*text, nullptr, false);
  const auto is = [&](const char* name, const Json& value) { return j.contains(name) && j[name] == value; };
  if (!j.is_object() || !is("tally_bench", kFileVersion) || !is("model", key)) return std::nullopt;
  if (!j.contains("target") || !j["target"].is_string() || !j.contains("when") || !j["when"].is_number_integer())
    return std::nullopt;
  const std::string boot = BootId();
  KeptBench kept{j["target"].get<std::string>(), j["when"].get<int64_t>(), !boot.empty() && is("boot", boot), {}};
  if (!j.contains("points") || !j["points"].is_array()) return std::nullopt;
  for (const Json& point : j["points"]) {
    if (std::optional<KeptPoint> p = PointOf(point)) kept.points.push_back(*std::move(p));
  }
  return kept.points.empty() ? std::nullopt : std::optional(std::move(kept));
}

std::optional<double> KeptReadBandwidth(int threads) {
  const std::optional<FitMachine> machine = FindMachine(CacheDirectory(), threads);
  return machine ? std::optional(machine->read) : std::nullopt;
}

}  // namespace tally::app
