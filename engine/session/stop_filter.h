// SPDX-License-Identifier: Apache-2.0
// Cuts a stream of text before the first stop string. Holds back text that may be the beginning of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tally {

class StopFilter {
 public:
  // Empty strings are ignored. Those that are among `shown` too stay in the text that they stop.
  explicit StopFilter(std::vector<std::string> stops, std::vector<std::string> shown = {});
  // Adds text; returns the text that can no longer be part of a stop string. After a match it returns nothing.
  std::string Push(std::string_view text);
  // Adds text in which nothing stops, nor across its beginning; returns all that there is.
  std::string PushThrough(std::string_view text);
  // Returns the text held back, at the end of the stream.
  std::string Finish();
  bool stopped() const { return stopped_; }
  const std::string& stop() const { return stop_; }  // the string that came; empty: none has

 private:
  std::vector<std::string> stops_, shown_;
  std::string pending_;
  bool stopped_ = false;
  std::string stop_;
};

}  // namespace tally
