// SPDX-License-Identifier: Apache-2.0
#include "engine/app/bench_neighbour.h"

#include <cstdio>
#include <iostream>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/numbers.h"
#include "engine/base/format.h"
#include "engine/machine/child_process.h"

namespace tally::app {
namespace {

constexpr std::string_view kReady = "ready", kRunning = "running", kRate = "rate ", kFailed = "failed ", kStop = "stop";

Status Unexpected(const std::string& line) {
  if (line.starts_with(kFailed)) return BadInput("the second process: " + line.substr(kFailed.size()));
  return InternalError("the second process says " + Quote(line));
}

class SecondProcess final : public SpeedNeighbour {
 public:
  explicit SecondProcess(ChildProcess process) : process_(std::move(process)) {}
  std::string name() const override { return "self"; }
  Status Expect(std::string_view wanted) {
    TALLY_ASSIGN_OR_RETURN(const std::string line, process_.ReadLine(Interrupted));
    return line == wanted ? Status() : Unexpected(line);
  }
  Status Begin(SpeedWork work) override {
    TALLY_RETURN_IF_ERROR(process_.WriteLine(kSpeedWorkNames[static_cast<size_t>(work)]));
    return Expect(kRunning);
  }
  Result<double> End() override {
    TALLY_RETURN_IF_ERROR(process_.WriteLine(kStop));
    TALLY_ASSIGN_OR_RETURN(const std::string line, process_.ReadLine(Interrupted));
    double rate = 0;
    if (!line.starts_with(kRate) || !ParseNumber(std::string_view(line).substr(kRate.size()), rate)) return Unexpected(line);
    return rate;
  }

 private:
  ChildProcess process_;
};

class Command final : public SpeedNeighbour {
 public:
  // The shell's standard input is a pipe from this process. Where it is gone, `cat` ends, and the group is killed.
  explicit Command(const std::string& command)
      : command_(command),
        line_("exec 3<&0\n{ " + command +
              "\n} >/dev/null 2>&1 </dev/null 3<&- & running=$!\n"
              "{ cat <&3 >/dev/null; kill -KILL 0; } &\n"
              "wait $running") {}
  std::string name() const override { return "command"; }
  Status Begin(SpeedWork) override {
    TALLY_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start({"/bin/sh", "-c", line_}));
    process_.emplace(std::move(process));
    return {};
  }
  Result<double> End() override {
    const bool ran = process_->Runs();
    process_.reset();
    if (!ran) return BadInput("the command beside the benchmark ended before it did: " + Quote(command_));
    return 0.0;
  }

 private:
  std::string command_, line_;
  std::optional<ChildProcess> process_;
};

// A line for the first process; false where nobody reads it.
bool Say(std::string_view text) {
  Print(std::string(text) + "\n");
  return PrintedAll();
}

int Fail(const Status& status) {
  Say(std::string(kFailed) + Printable(status.message()));
  return Report(status);
}

}  // namespace

Result<std::unique_ptr<SpeedNeighbour>> NewSecondProcess(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "/proc/self/exe");
  TALLY_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start(arguments));
  auto second = std::make_unique<SecondProcess>(std::move(process));
  TALLY_RETURN_IF_ERROR(second->Expect(kReady));
  return std::unique_ptr<SpeedNeighbour>(std::move(second));
}

std::unique_ptr<SpeedNeighbour> NewCommand(const std::string& command) { return std::make_unique<Command>(command); }

int ServeSpeedSteps(Result<std::unique_ptr<SpeedLoop>> loop) {
  if (!loop.ok()) return Fail(loop.status());
  if (!Say(kReady)) return 0;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == kStop) continue;  // of work that had failed
    const SpeedWork work = line == kSpeedWorkNames[0] ? SpeedWork::kPrefill : SpeedWork::kDecode;
    if (!Say(kRunning)) return 0;
    const Result<double> rate = (*loop)->Run(work, InputWaits);
    if (!rate.ok()) return Fail(rate.status());
    if (!std::getline(std::cin, line)) return 0;
    char text[64];
    std::snprintf(text, sizeof text, "%s%.17g", std::string(kRate).c_str(), *rate);
    if (!Say(text)) return 0;
  }
  return 0;
}

}  // namespace tally::app
