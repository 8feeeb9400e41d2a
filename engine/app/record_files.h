// What every op was charged with, to files: --ledger (JSON lines, docs/ledger.schema.json), --trace (for Perfetto), --csv.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/api/tally.h"
#include "engine/app/json.h"
#include "engine/base/status.h"

namespace CLI {
class App;
}

namespace tally::app {

struct RecordFlags {
  std::optional<std::string> ledger, trace, csv;
};
void AddRecordFlags(CLI::App& command, RecordFlags& flags);

// Of the lines of --ledger: raised where a field changes its meaning or goes; new fields may come without.
inline constexpr int kLedgerVersion = 1;
Json RecordJson(const OpRecord& record, std::span<const WeightInfo> weights);

// The files that were asked for. They are written as the ops run, line by line: what an interrupted run leaves is whole but for
// the trace's last bracket, which its readers do without.
class RecordFiles {
 public:
  // Opens the files; what they hold stays until Attach. kBadInput: a file that cannot be written, the same file twice, the model.
  static Result<RecordFiles> Open(const RecordFlags& flags, const std::string& model);
  // From now on, every op of `engine` is timed and written. The engine must not step after these files are gone.
  void Attach(Engine& engine);
  // Ends the files and the recording. kBadInput: something could not be written. Call once.
  Status Close();

 private:
  struct CloseFile {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  struct File {
    std::string path;
    std::unique_ptr<std::FILE, CloseFile> file;
    int error = 0;  // errno of the first failure
    void Write(std::string_view text);
    Status Close();
  };
  void Write(const OpRecord& record);
  void Trace(const OpRecord& record);
  void EndSlices(bool step_too);

  std::optional<File> ledger_, trace_, csv_;
  Engine* engine_ = nullptr;
  // The trace's open slices.
  struct Slice {
    std::string name;
    uint64_t begin = 0, end = 0;  // ns
  };
  std::optional<Slice> step_, layer_;
  uint64_t step_number_ = 0;
  int32_t layer_number_ = -1;
  bool first_event_ = true;
};

}  // namespace tally::app
