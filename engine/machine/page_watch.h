// SPDX-License-Identifier: Apache-2.0
// Which pages of ranges of memory are touched, as the memory-management unit sees it: all of them are protected, the first touch
// of each faults, is noted, and opens the page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/status.h"

namespace tally {

// Installs handlers of SIGSEGV and SIGBUS for as long as it lives, for the whole process: faults elsewhere go to the handlers that
// it found, which its end puts back. One at a time in a process. Any threads may touch the range between Start and Stop; prefetches
// are no touches. No thread may touch the range during Start, Stop and the destructor.
class PageWatch {
 public:
  // Watches the pages of the ranges, which start at a page and must outlive the watch. They are read-only from the first Start on, for
  // good; who fills them later writes through another view (MirroredMemory). Pages are counted through all ranges, in their order.
  // kBadInput: another watch lives; a range that does not start a page or is empty.
  static Result<std::unique_ptr<PageWatch>> New(std::span<const std::span<const uint8_t>> ranges);
  static Result<std::unique_ptr<PageWatch>> New(const uint8_t* begin, size_t bytes);
  PageWatch(const PageWatch&) = delete;
  PageWatch& operator=(const PageWatch&) = delete;
  ~PageWatch();

  // Protects every page. kNoRoom: the system refuses.
  Status Start();
  // Opens every page, and returns which were touched since Start. A write to a page does not open it: the process ends as it would have
  // without the watch. kNoRoom: the system refused to open a single page, as it does where touched and untouched pages alternate more
  // often than it keeps mappings (Linux: vm.max_map_count); the rest was then not seen.
  Result<std::vector<bool>> Stop();
  // Between Start and Stop: which of the pages [first, first + count), of one range, were touched since Start or since they were last
  // taken. They are protected again, and Stop does not tell of them. No thread may touch them during the call. Errors of Stop.
  Result<std::vector<bool>> Take(size_t first, size_t count);

  bool started() const;  // Start, and no Stop after it
  size_t page_bytes() const { return page_; }

 private:
  struct Ranges;
  PageWatch(std::unique_ptr<Ranges> ranges, size_t page);
  std::unique_ptr<Ranges> ranges_;
  size_t page_;
};

}  // namespace tally
