// SPDX-License-Identifier: Apache-2.0
// Processes that run beside this one, for measuring how it shares the cores.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace tally {

// One busy loop in a process of its own, bound to no core. It ends with this object, and with the thread that started it.
class BusyProcess {
 public:
  // Stopped until Resume. The child shares this process's pages until one of the two writes them: the first write to a page after
  // Start costs a copy. kBadInput: the system refuses a process.
  static Result<BusyProcess> Start();
  BusyProcess(BusyProcess&& o) noexcept : pid_(std::exchange(o.pid_, -1)) {}
  BusyProcess& operator=(BusyProcess&&) = delete;
  ~BusyProcess();
  Status Resume();  // returns when it has run for some milliseconds, so that the system has given it a core
  Status Pause();   // returns when it has stopped
  pid_t pid() const { return pid_; }

 private:
  explicit BusyProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

// Another program, spoken to by lines: its standard input and output are pipes to this process, its standard error is /dev/null. It is
// killed on destruction, with all that it has started (its process group). If this process is killed, the program's standard input ends.
class ChildProcess {
 public:
  // arguments[0] is the program's path. kBadInput: it cannot be started.
  static Result<ChildProcess> Start(const std::vector<std::string>& arguments);
  ChildProcess(ChildProcess&& o) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();
  bool Runs();  // false: it has ended
  // `line` without its end. kBadInput: the program has ended.
  Status WriteLine(std::string_view line);
  // The next line, without its end. `interrupted` is polled while waiting and may be null. kBadInput: the program has ended.
  // kInterrupted.
  Result<std::string> ReadLine(const std::function<bool()>& interrupted);

 private:
  ChildProcess(pid_t pid, int in, int out) : pid_(pid), in_(in), out_(out) {}
  pid_t pid_;
  int in_, out_;  // its standard input and output
  std::string read_;
};

// Whether standard input has something to read, or has ended.
bool InputWaits();

}  // namespace tally
