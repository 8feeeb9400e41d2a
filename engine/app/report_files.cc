// SPDX-License-Identifier: Apache-2.0
#include "engine/app/report_files.h"

#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "engine/api/tally.h"
#include "engine/app/output_files.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMarkWithin = 1024;  // bytes

}  // namespace

Status CheckReportFile(const std::string& path) {
  std::error_code none;
  if (!fs::exists(path, none)) return {};
  if (!fs::is_regular_file(path, none)) return BadInput(Quote(path) + " is no file that a report can be written to");
  std::FILE* const file = std::fopen(path.c_str(), "rbe");
  if (file == nullptr) return BadInput(Quote(path) + " is there and cannot be read: it is not overwritten");
  char beginning[kMarkWithin];
  const std::string_view text(beginning, std::fread(beginning, 1, sizeof beginning, file));
  std::fclose(file);
  if (text.empty() || text.find(kReportMark) != std::string_view::npos) return {};
  return BadInput(Quote(path) + " is there and is no report: it is not overwritten");
}

ReportRoofs MachineRoofs(int threads, const std::string& target) {
  const Result<FitMachine> machine = MeasureMachine(CacheDirectory(), threads);
  ReportRoofs unknown;
  if (!machine.ok()) {
    unknown.how = machine.status().message();
  } else if (target.empty()) {
    return RoofsOf(*machine, "the best moments of this machine, measured once a boot");
  } else if (machine->target == target) {
    return RoofsOf(*machine, "the best moments of the machine on which this page was made");
  }
  return unknown;
}

Status MakeFigureFolder(const std::string& path, bool force) {
  TALLY_RETURN_IF_ERROR(CheckMayReplaceIn(path, ".svg", force));
  std::error_code error, none;
  fs::create_directory(path, error);
  if (fs::is_directory(path, none)) return {};
  return BadInput("cannot write to the folder " + Quote(path) + (error ? ": " + error.message() : ""));
}

}  // namespace tally::app
