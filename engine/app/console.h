// What the commands say and how: text to standard output with its errors kept, one line for a failure, a progress bar.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/status.h"

namespace tally::app {

// Makes descriptors 0 to 2 refer to something where the caller closed them, so that no file that we open takes their place
// (writing to standard output still fails), and makes a closed pipe an error of the write instead of a silent death.
void PrepareStandardStreams();

// Standard output. Errors are kept until Flush: a full disk and a closed pipe are reported once, at the end.
void Print(std::string_view text);
// True as long as everything could be written.
bool PrintedAll();
// kBadInput with the reason where something printed did not arrive.
Status FlushOutput();

// Standard error, as it is.
void Note(std::string_view text);
// True as long as it took everything: books that nobody got are no success, though there is nowhere left to say so.
bool NotedAll();

// kBadInput where `path` is the file that standard output or standard error has been sent to, and each would overwrite what the
// other has written. Pipes and devices take both.
Status CheckNotStandardStream(const std::string& path);

// "tally: <message>" in one line on standard error; the exit code of the status (0 where it is ok).
int Report(const Status& status);

// A bar on standard error, where that is a terminal; wiped on destruction.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();
  void Label(std::string label) { label_ = std::move(label); }
  void Show(uint64_t done, uint64_t total);                           // bytes
  void Show(uint64_t done, uint64_t total, const std::string& text);  // anything, described by `text`
  void Wipe();

 private:
  std::string label_;
  bool terminal_ = false, shown_ = false;
  double last_ = 0;
};

}  // namespace tally::app
