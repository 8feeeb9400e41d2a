// SPDX-License-Identifier: Apache-2.0
// The tally binary at a terminal of its own, at which a test types.
#pragma once

#include <gtest/gtest.h>

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace tally {

class Terminal {
 public:
  // Standard input, output and error are the terminal, which also is the process's controlling one: Ctrl-C is a signal.
  explicit Terminal(std::vector<std::string> arguments, const std::vector<std::string>& environment = {}) {
    arguments.insert(arguments.begin(), "tally");
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    winsize size{24, 80, 0, 0};
    pid_ = forkpty(&master_, nullptr, nullptr, &size);
    if (pid_ != 0) return;
    (void)signal(SIGINT, SIG_DFL);  // which a job in the background has ignored
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    for (const std::string& v : environment) setenv(v.substr(0, v.find('=')).c_str(), v.c_str() + v.find('=') + 1, 1);
    execv(TALLY_BINARY, argv.data());
    _exit(127);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(master_);
  }

  // What was shown since the last Expect up to and including `text`, which has to come.
  std::string Expect(const std::string& text) {
    constexpr int kPatience = 30'000;  // ms
    size_t at = 0;
    while ((at = shown_.find(text, seen_)) == shown_.npos) {
      if (!Read(kPatience)) {
        ADD_FAILURE() << "no '" << text << "' in: " << shown_.substr(seen_);
        return "";
      }
    }
    const std::string part = shown_.substr(seen_, at + text.size() - seen_);
    seen_ = at + text.size();
    return part;
  }
  void Type(const std::string& text) { ASSERT_EQ(write(master_, text.data(), text.size()), static_cast<ssize_t>(text.size())); }
  // A line once the prompt is there. What is shown until the next prompt.
  std::string Enter(const std::string& line) {
    Type(line + "\r");
    return Expect("\n> ");
  }
  void Signal(int signal) { kill(pid_, signal); }
  // The exit code, or 128 + the signal that ended it.
  int End() {
    while (Read(30'000)) {
    }
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == 0) {  // closing a terminal comes before the end of a process, but not by much
      usleep(500'000);
      if (waitpid(pid_, &status, WNOHANG) == 0) {
        ADD_FAILURE() << "it has not ended: " << shown_.substr(seen_);
        return -1;
      }
    }
    pid_ = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  const std::string& shown() const { return shown_; }
  bool pastes_marked() const { return pastes_marked_; }  // what was asked for last

 private:
  // False: nothing comes any more.
  bool Read(int patience) {
    pollfd waiting{master_, POLLIN, 0};
    char piece[4096];
    if (poll(&waiting, 1, patience) <= 0) return false;
    const ssize_t n = read(master_, piece, sizeof piece);
    if (n <= 0) return false;
    shown_.append(piece, static_cast<size_t>(n));
    // Whether pastes are to be marked is nothing that is shown.
    for (size_t at; (at = shown_.find("\x1b[?2004", seen_)) < shown_.size() && at + 8 <= shown_.size();) {
      pastes_marked_ = shown_[at + 7] == 'h';
      shown_.erase(at, 8);
    }
    return true;
  }

  int master_ = -1;
  pid_t pid_ = 0;
  bool pastes_marked_ = false;
  std::string shown_;
  size_t seen_ = 0;
};

}  // namespace tally
