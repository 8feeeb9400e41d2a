// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

extern char** environ;

namespace tally {
namespace {

Status Refused(const std::string& what, int error) { return BadInput(what + ": " + std::generic_category().message(error)); }

// Waits until the child has stopped or resumed (`options` of waitpid). kBadInput: it has ended; `pid` is -1 then.
Status Await(pid_t& pid, int options) {
  int status = 0;
  pid_t got = 0;
  do {
    got = ::waitpid(pid, &status, options);
  } while (got < 0 && errno == EINTR);
  if (got == pid && !WIFEXITED(status) && !WIFSIGNALED(status)) return {};
  pid = -1;
  return BadInput("the process beside this one has ended");
}

void KillAndReap(pid_t pid, bool group) {
  if (pid < 0) return;
  ::kill(group ? -pid : pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// True for "NAME=value" by which a launcher (machine/communicator.h) tells this process its rank. Programs that this process starts are no
// ranks.
bool IsRank(std::string_view variable) {
  constexpr std::array<std::string_view, 5> kNames = {"OMPI_COMM_WORLD_", "PMIX_", "PMI_", "SLURM_PROCID=", "SLURM_STEP_"};
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view name) { return variable.starts_with(name); });
}

}  // namespace

Result<BusyProcess> BusyProcess::Start() {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Refused("a busy process cannot be started", errno);
  if (pid == 0) {  // only calls that are allowed after fork in a process of several threads
    for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_IGN);  // it ends with its parent
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::kill(::getpid(), SIGKILL);  // the parent ended before the line above
    ::kill(::getpid(), SIGSTOP);
    for (volatile uint64_t turns = 0;;) {
      const uint64_t n = turns;
      turns = n + 1;
    }
  }
  BusyProcess process(pid);
  TALLY_RETURN_IF_ERROR(Await(process.pid_, WUNTRACED));
  return process;
}

BusyProcess::~BusyProcess() { KillAndReap(pid_, false); }

Status BusyProcess::Resume() {
  if (pid_ < 0) return BadInput("the process beside this one has ended");
  ::kill(pid_, SIGCONT);
  TALLY_RETURN_IF_ERROR(Await(pid_, WCONTINUED));
  const timespec settle = {0, 20'000'000};
  ::nanosleep(&settle, nullptr);
  return {};
}

Status BusyProcess::Pause() {
  if (pid_ < 0) return BadInput("the process beside this one has ended");
  ::kill(pid_, SIGSTOP);
  return Await(pid_, WUNTRACED);
}

Result<ChildProcess> ChildProcess::Start(const std::vector<std::string>& arguments) {
  std::array<int, 2> in{}, out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0) return Refused("no pipe", errno);
  if (::pipe2(out.data(), O_CLOEXEC) != 0) {
    const int error = errno;
    for (const int fd : in) ::close(fd);
    return Refused("no pipe", error);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // a group of its own
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!IsRank(*variable)) environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  if (error != 0) {
    ::close(in[1]);
    ::close(out[0]);
    return Refused(arguments[0] + " cannot be started", error);
  }
  return ChildProcess(pid, in[1], out[0]);
}

ChildProcess::ChildProcess(ChildProcess&& o) noexcept
    : pid_(std::exchange(o.pid_, -1)),
      in_(std::exchange(o.in_, -1)),
      out_(std::exchange(o.out_, -1)),
      read_(std::move(o.read_)) {}

ChildProcess::~ChildProcess() {
  if (in_ >= 0) ::close(in_);
  if (out_ >= 0) ::close(out_);
  KillAndReap(pid_, true);
}

Status ChildProcess::WriteLine(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  const ssize_t n = ::write(in_, text.data(), text.size());  // short enough to go through a pipe at once
  return n == static_cast<ssize_t>(text.size()) ? Status() : BadInput("the process beside this one has ended");
}

Result<std::string> ChildProcess::ReadLine(const std::function<bool()>& interrupted) {
  constexpr int kPollMilliseconds = 50;
  while (true) {
    if (const size_t end = read_.find('\n'); end != std::string::npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    if (interrupted && interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
    pollfd fd = {out_, POLLIN, 0};
    if (::poll(&fd, 1, kPollMilliseconds) <= 0) continue;
    std::array<char, 512> piece;
    const ssize_t n = ::read(out_, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return BadInput("the process beside this one has ended");
    read_.append(piece.data(), static_cast<size_t>(n));
  }
}

bool ChildProcess::Runs() {
  siginfo_t info = {};
  return pid_ >= 0 && ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

bool InputWaits() {
  pollfd fd = {STDIN_FILENO, POLLIN, 0};
  return ::poll(&fd, 1, 0) > 0;
}

}  // namespace tally
