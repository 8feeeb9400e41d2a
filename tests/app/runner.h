// SPDX-License-Identifier: Apache-2.0
// Runs the tally binary and keeps what it said.
#pragma once

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

extern char** environ;

namespace tally {

struct Ended {
  int code = -1;  // the exit code, or 128 + the signal that ended it
  bool by_signal = false;
  std::string out, err;
};

struct RunOptions {
  std::string stdin_file = "/dev/null";
  std::string stdout_file{};                     // instead of being kept; "-": closed before the start
  bool terminal = false;                         // standard error is one, TERM=xterm
  bool output_terminal = false;                  // standard output and standard error are one, TERM=xterm, in `out` together
  int columns = 80;                              // of the terminal
  std::vector<std::string> environment{};        // NAME=VALUE, besides this process's own
  bool no_reader = false;                        // standard output is a pipe that nobody reads
  std::vector<std::string> wrapper{};            // a command that is given the binary and its arguments
  std::function<void(pid_t)> on_start{};         // called when the process runs
  std::function<void(pid_t)> on_first_output{};  // called when the first byte of standard output has come
};

// NAME=VALUE of an environment in which a library's name stands, in `folder`, for another library.
inline std::string OtherLibraryAs(const std::string& name, const std::string& folder) {
  std::string other;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; other.empty() && std::getline(maps, line);) {
    if (line.find("libstdc++.so") != std::string::npos) other = line.substr(line.find('/'));
  }
  EXPECT_EQ(symlink(other.c_str(), (folder + "/" + name).c_str()), 0);
  const char* const path = std::getenv("LD_LIBRARY_PATH");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return "LD_LIBRARY_PATH=" + folder + (path == nullptr ? "" : std::string(":") + path);
}

// The binary is the one of this build (TALLY_BINARY).
inline Ended Tally(const std::vector<std::string>& arguments, const RunOptions& options = {}) {
  Ended ended;
  std::array<int, 2> out{}, err{};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) return ended;
  std::string terminal;
  if (options.terminal || options.output_terminal) {
    const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    std::array<char, 64> name{};
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0 || ptsname_r(master, name.data(), name.size()) != 0)
      return ended;
    const winsize size{24, static_cast<unsigned short>(options.columns), 0, 0};
    ioctl(master, TIOCSWINSZ, &size);
    int& end = options.output_terminal ? out[0] : err[0];
    close(end);
    end = master;
    terminal = name.data();
  }
  if (options.no_reader) {  // before the start, so that the first write already fails
    close(out[0]);
    out[0] = -1;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, options.stdin_file.c_str(), O_RDONLY, 0);
  if (options.output_terminal) {
    posix_spawn_file_actions_addopen(&actions, 1, terminal.c_str(), O_WRONLY | O_NOCTTY, 0);
  } else if (options.stdout_file == "-") {
    posix_spawn_file_actions_addclose(&actions, 1);
  } else if (!options.stdout_file.empty()) {
    posix_spawn_file_actions_addopen(&actions, 1, options.stdout_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  } else {
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  }
  if (!terminal.empty()) {
    posix_spawn_file_actions_addopen(&actions, 2, terminal.c_str(), O_WRONLY | O_NOCTTY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  }
  // Signals as a shell gives them, whatever this test was started with.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int s : {SIGHUP, SIGINT, SIGTERM, SIGPIPE}) sigaddset(&defaults, s);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (const std::string& a : options.wrapper) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(const_cast<char*>(argv.empty() ? "tally" : TALLY_BINARY));
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> set = options.environment;
  if (!terminal.empty()) set.insert(set.begin(), "TERM=xterm");
  std::map<std::string, std::string> variables;
  for (char** v = environ; *v != nullptr; ++v) variables[std::string(*v).substr(0, std::string(*v).find('='))] = *v;
  for (const std::string& v : set) variables[v.substr(0, v.find('='))] = v;
  std::vector<char*> envp;
  for (auto& [name, v] : variables) envp.push_back(v.data());
  envp.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      posix_spawnp(&pid, options.wrapper.empty() ? TALLY_BINARY : argv[0], &actions, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(out[1]);
  close(err[1]);
  if (error != 0) {
    if (out[0] >= 0) close(out[0]);
    close(err[0]);
    return ended;
  }
  if (options.on_start) options.on_start(pid);
  pollfd fds[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  bool seen = false;
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (poll(fds, 2, -1) < 0) break;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char piece[4096];
      const ssize_t n = read(fds[i].fd, piece, sizeof piece);
      if (n <= 0) {
        close(fds[i].fd);
        fds[i].fd = -1;
        continue;
      }
      (i == 0 ? ended.out : ended.err).append(piece, static_cast<size_t>(n));
      if (i == 0 && !seen && options.on_first_output) options.on_first_output(pid);
      seen = seen || i == 0;
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  ended.by_signal = WIFSIGNALED(status);
  ended.code = ended.by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ended;
}

// Whether a process that Tally started, and that nobody has waited for, has ended.
inline bool HasEnded(pid_t pid) {
  siginfo_t ended{};
  return waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == pid;
}

// The signals that a process has handlers for, as the kernel says; none where it does not.
inline std::optional<unsigned long long> HandledSignals(const std::string& pid) {
  std::ifstream status("/proc/" + pid + "/status");
  std::string word, caught;
  while (status >> word && word != "SigCgt:") {
  }
  if (!(status >> caught)) return {};
  return std::stoull(caught, nullptr, 16);
}

// Until the process has a handler for `signal`. False where it ends without.
inline bool WaitUntilHandled(pid_t pid, int signal) {
  for (; !HasEnded(pid); usleep(100)) {
    if (HandledSignals(std::to_string(pid)).value_or(0) >> (signal - 1) & 1) return true;
  }
  return false;
}

// One line: what errors are made of.
inline bool IsOneLine(const std::string& text) {
  return text.starts_with("tally: ") && text.ends_with("\n") && text.find('\n') == text.size() - 1;
}

// What a command that succeeds prints.
inline std::string Text(const std::vector<std::string>& arguments, const RunOptions& options = {}) {
  const Ended e = Tally(arguments, options);
  EXPECT_EQ(e.code, 0) << e.err;
  return e.out;
}

// Expects exit code 2, nothing on standard output, and one line with all of `parts` on standard error.
inline void ExpectAdvice(const std::vector<std::string>& arguments, const std::vector<std::string>& parts,
                         const RunOptions& options = {}) {
  std::string shown;
  for (const std::string& a : arguments) shown += a + " ";
  SCOPED_TRACE(shown);
  const Ended e = Tally(arguments, options);
  EXPECT_EQ(e.code, 2);
  EXPECT_EQ(e.out, "");
  EXPECT_TRUE(IsOneLine(e.err)) << e.err;
  for (const std::string& part : parts) EXPECT_NE(e.err.find(part), std::string::npos) << "no '" << part << "' in " << e.err;
}

}  // namespace tally
