// SPDX-License-Identifier: Apache-2.0
// What the commands say and how: text to standard output with its errors kept, one line for a failure, a progress bar.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/status.h"
#include "engine/machine/machine.h"

namespace tally::app {

// Makes descriptors 0 to 2 refer to something where the caller closed them, so that no file that we open takes their place
// (writing to standard output still fails), and makes a closed pipe an error of the write instead of a silent death.
void PrepareStandardStreams();

// Whether standard input is open and no terminal: a file, a pipe, /dev/null. Where nothing comes from it for a second, says at a
// terminal that it is being read.
bool InputIsGiven();

// Whether a stream is a terminal that can rewrite a line: TERM is neither unset nor "dumb".
bool CanMoveCursor(Stream stream);

// Whether text to a terminal may have colour: it can move its cursor, and NO_COLOR is not set
// (https://no-color.org).
bool ColourOn(Stream stream);

// Columns of a line of standard output: `asked` where that is not 0, else the terminal's, else those of the variable COLUMNS; at most
// 10,000. 0: none of these is known; lines are then not broken, since programs read them.
size_t OutputWidth(uint64_t asked);

// Standard output. Errors are kept until Flush: a full disk is reported once, at the end.
void Print(std::string_view text);
// True as long as everything could be written.
bool PrintedAll();
// kBadInput with the reason where something printed did not arrive. Where its reader has left (`| head`), a status that Report
// is silent about.
Status FlushOutput();

// Standard error, as it is.
void Note(std::string_view text);
// Writes a line (at most 4096 bytes with its newline) to standard error if that takes it at once. Else drops it and returns false: a full
// pipe without a reader must not stop a server.
bool NoteWithoutWaiting(std::string_view line);
// True if standard error took everything so far. If not, the command must end with a failure, although there is no place left to say why.
bool NotedAll();

// kBadInput where `path` is the file that standard output or standard error has been sent to, and each would overwrite what the
// other has written. Pipes and devices take both.
Status CheckNotStandardStream(const std::string& path);

// "tally: <message>" in one line on standard error; the exit code of the status (0 where it is ok). Nothing, and 141, as a shell
// says of a program that SIGPIPE ended, where the reader of standard output has left.
int Report(const Status& status);
// The code, or Report of the status in its place.
inline int Report(const Result<int>& code) { return code.ok() ? *code : Report(code.status()); }
// From now on Report says what `before` makes of a status; nothing, if its message is empty.
void SetBeforeReport(Status (*before)(const Status&));

// A bar on standard error, where that is a terminal that can rewrite a line (not TERM=dumb); wiped on destruction. From
// the second second on it says how long the rest will take, if that goes as the first part did.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();
  void Label(std::string label) { label_ = std::move(label); }
  void Show(uint64_t done, uint64_t total);  // bytes
  // Anything, described by `text`. `left`: seconds that the rest will take, where the caller knows better; below 0: nobody knows.
  void Show(uint64_t done, uint64_t total, const std::string& text, std::optional<double> left = {});
  void Wipe();

 private:
  std::string label_;
  bool terminal_ = false, shown_ = false;
  double begin_ = 0, last_ = 0;
};

// The command line of this process, as a shell reads it.
std::string& CommandLine();

}  // namespace tally::app
