// SPDX-License-Identifier: Apache-2.0
// The rate of a disk, measured past the page cache: what streamed weights can be read at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/status.h"

namespace tally {

struct DiskProbe {
  double seconds = 1;                    // of reading, and again of writing where a file has to be made
  uint64_t bytes = uint64_t{1} << 30;    // at most so many are read, and so many written
  uint64_t request = uint64_t{4} << 20;  // a multiple of 4096
  int readers = 4;                       // threads that each read the next request
};

struct DiskRate {
  double bytes_per_second = 0;
  uint64_t bytes = 0;    // that were read
  bool direct = true;    // false: O_DIRECT is refused, and pages were given up before they were read
  bool written = false;  // of a file that was made for it: a disk may still have it in a cache of its own
};

// Reads `path` in order, O_DIRECT, in several requests at a time; begins again at its end. A directory: a nameless file is written there
// first, and is gone afterwards whatever happens. kBadInput: there is no such file or directory, a file of less than 16 requests, or a
// disk that fails. kNoRoom: no room for 16 requests.
Result<DiskRate> MeasureDisk(const std::string& path, const DiskProbe& probe = {});

// What tells the file system of an existing path from others of this boot; nullopt: unknown.
std::optional<uint64_t> FileSystemId(const std::string& path);

}  // namespace tally
