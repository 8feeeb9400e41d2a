#include "engine/app/console.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "engine/app/interrupt.h"
#include "engine/machine/machine.h"

namespace tally::app {
namespace {

int g_output_error = 0;  // errno of the first failed write to standard output

size_t Utf8Length(std::string_view text, size_t at) {  // 0: not a valid character
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char c = byte(at);
  const size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
  if (n == 0 || at + n > text.size()) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  return n;
}

}  // namespace

void PrepareStandardStreams() {
#ifdef SIGPIPE
  std::signal(SIGPIPE, SIG_IGN);
#endif
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory("/dev/fd", ignored)) return;
  for (const char* fd : {"/dev/fd/0", "/dev/fd/1", "/dev/fd/2"}) {
    // The lowest free descriptor is the missing one. Open for reading only: what is printed must fail, not vanish.
    if (!fs::exists(fd, ignored) && std::fopen("/dev/null", "r") == nullptr) return;
  }
}

void Print(std::string_view text) {
  if (g_output_error != 0 || text.empty()) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) g_output_error = errno != 0 ? errno : EIO;
}

bool PrintedAll() {
  errno = 0;
  if (std::fflush(stdout) != 0 && g_output_error == 0) g_output_error = errno != 0 ? errno : EIO;
  return g_output_error == 0;
}

Status FlushOutput() {
  if (PrintedAll()) return {};
  return BadInput(std::string("standard output cannot be written: ") + std::strerror(g_output_error));
}

void Note(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

int Report(const Status& status) {
  if (status.ok()) return 0;
  Note("tally: " + Printable(status.message()) + "\n");
  switch (status.code()) {
    case StatusCode::kOk: return 0;
    case StatusCode::kInternal: return 1;
    case StatusCode::kBadInput: return 2;
    case StatusCode::kDisagreement: return 3;
    case StatusCode::kInterrupted: return InterruptExitCode();
  }
  return 1;
}

std::string Printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t n = Utf8Length(text, i);
    // C1 controls (U+0080 to U+009F) drive terminals too.
    if (n == 0 || c < 0x20 || c == 0x7f || (c == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0)) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", c);
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : escaped;
      ++i;
    } else {
      out += text.substr(i, n);
      i += n;
    }
  }
  return out;
}

std::string HumanBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 6) value /= 1024, ++unit;
  char text[48];
  if (unit == 0) {
    std::snprintf(text, sizeof text, "%llu bytes", static_cast<unsigned long long>(bytes));
  } else {
    std::snprintf(text, sizeof text, "%.2f %s", value, kUnits[unit]);
  }
  return text;
}

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), terminal_(StandardErrorIsTerminal()) {}

ProgressBar::~ProgressBar() { Wipe(); }

void ProgressBar::Show(uint64_t done, uint64_t total) {
  if (!terminal_ || total == 0) return;
  const double now = MonotonicSeconds();
  if (shown_ && now - last_ < 0.05 && done < total) return;
  last_ = now;
  shown_ = true;
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  char percent[16];
  std::snprintf(percent, sizeof percent, "%3d%%", static_cast<int>(part * 100));
  const std::string tail = std::string(" ") + percent + "  " + HumanBytes(done) + " of " + HumanBytes(total);
  const int room = TerminalWidth(80) - static_cast<int>(label_.size() + tail.size()) - 4;
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

}  // namespace tally::app
