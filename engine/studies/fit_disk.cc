// SPDX-License-Identifier: Apache-2.0
// The disk of fit.h: given in words, or measured and kept.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "engine/base/format.h"
#include "engine/machine/disk_rate.h"
#include "engine/machine/kept_file.h"
#include "engine/studies/fit.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using DiskJson = nlohmann::ordered_json;

constexpr int kDiskVersion = 1;  // of the file
constexpr double kLeastRate = 1e5, kMostRate = 1e15;
constexpr uint64_t kLeastFile = uint64_t{64} << 20;

// What MeasureDisk can read or write: a large file, of a directory its largest file, or a directory that there is.
std::string PlaceToMeasure(const std::string& path) {
  std::error_code error;
  fs::path place = path.empty() ? fs::path(".") : fs::path(path);
  while (!fs::exists(place, error)) {
    const fs::path above = place.parent_path();
    if (above.empty() || above == place) return ".";
    place = above;
  }
  if (fs::is_regular_file(place, error) && fs::file_size(place, error) >= kLeastFile) return place.string();
  if (!fs::is_directory(place, error)) place = place.has_parent_path() ? place.parent_path() : fs::path(".");
  fs::path largest;
  uintmax_t most = kLeastFile - 1;
  for (auto at = fs::directory_iterator(place, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code of_entry;
    const uintmax_t size = at->is_regular_file(of_entry) ? at->file_size(of_entry) : 0;
    if (!of_entry && size > most) most = size, largest = at->path();
  }
  return largest.empty() ? place.string() : largest.string();
}

}  // namespace

Result<FitDisk> ParseDisk(std::string_view text) {
  const double read = ParseAmount(text, {"/s", "B"});
  if (!(read >= kLeastRate && read <= kMostRate)) return BadInput(Quote(text) + " is no rate of a disk such as 3GB/s");
  return FitDisk{.read = read, .source = DiskSource::kGiven};
}

Result<FitDisk> MeasureFitDisk(const std::string& directory, const std::string& path, bool anew) {
  const std::string place = PlaceToMeasure(path), boot = BootId();
  const std::optional<uint64_t> id = FileSystemId(place);
  const bool keeps = !directory.empty() && !boot.empty() && id;
  const std::string name = "disk-" + std::to_string(id.value_or(0)) + ".json";
  const std::optional<std::string> text = keeps && !anew ? ReadKeptFile(directory + "/" + name) : std::nullopt;
  if (const DiskJson j = text ? DiskJson::parse(*text, nullptr, false) : DiskJson(); j.is_object()) {
    try {
      FitDisk kept{.read = j.at("read"),
                   .source = DiskSource::kMeasured,
                   .refused_direct = j.at("refused_direct"),
                   .written = j.at("written"),
                   .where = j.at("where")};
      if (j.at("tally_disk") == kDiskVersion && j.at("boot") == boot && kept.read >= kLeastRate && kept.read <= kMostRate)
        return kept;
    } catch (const DiskJson::exception&) {  // damaged: measured anew
    }
  }
  TALLY_ASSIGN_OR_RETURN(const DiskRate rate, MeasureDisk(place));
  FitDisk disk{.read = rate.bytes_per_second,
               .source = DiskSource::kMeasured,
               .refused_direct = !rate.direct,
               .written = rate.written,
               .where = place};
  if (disk.read < kLeastRate) return BadInput("the disk's rate: " + Printable(place) + ": nothing could be read in a second");
  if (keeps) {
    const DiskJson kept = {{"tally_disk", kDiskVersion}, {"boot", boot},
                           {"read", disk.read},          {"refused_direct", disk.refused_direct},
                           {"written", disk.written},    {"where", disk.where}};
    WriteKeptFile(directory, name, kept.dump(1, ' ', false, DiskJson::error_handler_t::replace) + "\n");
  }
  return disk;
}

}  // namespace tally
