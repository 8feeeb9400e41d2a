// SPDX-License-Identifier: Apache-2.0
#include "engine/app/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include "engine/app/interrupt.h"
#include "engine/app/numbers.h"
#include "engine/base/format.h"
#include "engine/base/system_error.h"
#include "engine/machine/machine.h"

namespace tally::app {
namespace {

int g_output_error = 0;  // errno of the first failed write to standard output
Status (*g_before_report)(const Status&) = nullptr;
bool g_noted_all = true;  // standard error has taken everything

constexpr const char* kReaderLeft = "the reader of standard output has left";
constexpr int kReaderLeftCode = 141;  // 128 + SIGPIPE

// Some file systems say only when a file is closed that it has no room.
int CloseError(int fd) {
  const int copy = ::dup(fd);
  return copy >= 0 && ::close(copy) != 0 && errno != EINTR ? errno : 0;
}

// "8 s left", "3 min 20 s left"
std::string SecondsLeft(double seconds) {
  const auto whole = static_cast<int64_t>(std::min(seconds + 0.5, 1e9));
  const int64_t minutes = whole / 60;
  if (minutes >= 60) return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min left";
  return (minutes > 0 ? std::to_string(minutes) + " min " : "") + std::to_string(whole % 60) + " s left";
}

}  // namespace

void PrepareStandardStreams() {
#ifdef SIGPIPE
  std::signal(SIGPIPE, SIG_IGN);
#endif
#ifdef SIGXFSZ  // a file as large as the process may write: the write fails, and says so
  std::signal(SIGXFSZ, SIG_IGN);
#endif
  // The lowest free descriptor is the missing one. It is open the wrong way round: what is read or printed must fail, not be
  // empty or vanish, nor go to a file that is opened later.
  for (const auto& [fd, mode] : {std::pair{STDIN_FILENO, "w"}, {STDOUT_FILENO, "r"}, {STDERR_FILENO, "r"}}) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF && std::fopen("/dev/null", mode) == nullptr) return;
  }
}

bool InputIsGiven() {
  const int flags = ::fcntl(STDIN_FILENO, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY || ::isatty(STDIN_FILENO) == 1) return false;
  pollfd waiting{STDIN_FILENO, POLLIN, 0};
  if (::poll(&waiting, 1, 1000) == 0) Note("reading standard input (</dev/null: none)\n");
  return true;
}

bool CanMoveCursor(Stream stream) {
  const char* const term = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return IsTerminal(stream) && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

bool ColourOn(Stream stream) {
  const char* const none = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return CanMoveCursor(stream) && (none == nullptr || *none == '\0');
}

size_t OutputWidth(uint64_t asked) {
  constexpr uint64_t kMost = 10'000;
  if (asked > 0) return static_cast<size_t>(std::min(asked, kMost));
  if (const int columns = TerminalWidth(Stream::kOutput, 0); columns > 0) return static_cast<size_t>(columns);
  const char* const variable = std::getenv("COLUMNS");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  size_t columns = 0;
  if (variable == nullptr || !ParseNumber(variable, columns)) return 0;
  return std::min<size_t>(columns, kMost);
}

void Print(std::string_view text) {
  if (g_output_error != 0 || text.empty()) return;
  errno = 0;
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!whole || std::ferror(stdout) != 0)
    g_output_error = errno != 0 ? errno : EIO;  // fwrite takes what a stream that is flushed by lines could not write
}

bool PrintedAll() {
  errno = 0;
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && g_output_error == 0) g_output_error = errno != 0 ? errno : EIO;
  return g_output_error == 0;
}

Status FlushOutput() {
  if (PrintedAll()) g_output_error = CloseError(STDOUT_FILENO);
  if (g_output_error == 0) return {};
  if (g_output_error == EPIPE) return Status(StatusCode::kInterrupted, kReaderLeft);
  return SystemError("standard output cannot be written", g_output_error);
}

void Note(std::string_view text) {
  g_noted_all &=
      std::fwrite(text.data(), 1, text.size(), stderr) == text.size() && std::fflush(stderr) == 0 && std::ferror(stderr) == 0;
}

bool NoteWithoutWaiting(std::string_view line) {
  pollfd error = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&error, 1, 0) != 1 || (error.revents & POLLOUT) == 0) return false;
  return ::write(STDERR_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

bool NotedAll() { return g_noted_all && CloseError(STDERR_FILENO) == 0; }

Status CheckNotStandardStream(const std::string& path) {
  struct stat file = {}, stream = {};
  if (::stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return {};
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::fstat(fd, &stream) == 0 && stream.st_dev == file.st_dev && stream.st_ino == file.st_ino) {
      return BadInput(Quote(path) + " is where standard output or standard error goes: each would overwrite the other");
    }
  }
  return {};
}

void SetBeforeReport(Status (*before)(const Status&)) { g_before_report = before; }

int Report(const Status& given) {
  const Status status = g_before_report != nullptr ? g_before_report(given) : given;
  if (status.ok()) return 0;
  if (status.code() == StatusCode::kInterrupted && status.message() == kReaderLeft) return kReaderLeftCode;
  if (!status.message().empty()) Note("tally: " + Printable(status.message()) + "\n");
  switch (status.code()) {
    case StatusCode::kOk: return 0;
    case StatusCode::kInternal: return 1;
    case StatusCode::kBadInput:
    case StatusCode::kNoRoom:
    case StatusCode::kUnreadable:
    case StatusCode::kNotFinite: return 2;
    case StatusCode::kDisagreement: return 3;
    case StatusCode::kInterrupted: return InterruptExitCode();
  }
  return 1;
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), terminal_(CanMoveCursor(Stream::kError)), begin_(MonotonicSeconds()) {}

ProgressBar::~ProgressBar() { Wipe(); }

void ProgressBar::Show(uint64_t done, uint64_t total) { Show(done, total, BytesText(done) + " of " + BytesText(total)); }

void ProgressBar::Show(uint64_t done, uint64_t total, const std::string& text, std::optional<double> left) {
  if (!terminal_ || total == 0) return;
  const double now = MonotonicSeconds();
  if (shown_ && now - last_ < 0.05 && done < total) return;
  last_ = now;
  shown_ = true;
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  char percent[16];
  std::snprintf(percent, sizeof percent, "%3d%%", static_cast<int>(part * 100));
  const int columns = TerminalWidth(Stream::kError, 80);
  if (!left && now - begin_ >= 1 && part > 0 && part < 1) left = (now - begin_) * (1 - part) / part;
  std::string tail = std::string(" ") + percent + (left && *left >= 0 ? ", " + SecondsLeft(*left) : "") + "  " + text;
  const size_t most = static_cast<size_t>(std::max(8, columns - static_cast<int>(label_.size()) - 3));
  if (tail.size() > most) tail.resize(most);  // a line that wraps cannot be wiped
  const int room = columns - static_cast<int>(label_.size() + tail.size()) - 4;
  std::string line = "\r" + label_ + " ";
  if (room >= 8) {
    const int width = std::min(room, 40), filled = static_cast<int>(part * width);
    line += "[" + std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(width - filled), '.') + "]";
  }
  Note(line + tail + "\x1b[K");
}

void ProgressBar::Wipe() {
  if (shown_) Note("\r\x1b[K");
  shown_ = false;
}

std::string& CommandLine() {
  static std::string line;
  return line;
}

}  // namespace tally::app
