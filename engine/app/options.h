// Options that several commands share, and the reading of their arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/token_list.h"
#include "engine/base/status.h"

namespace CLI {
class App;
}

namespace tally::app {

struct ModelFlags {
  std::string model = "demo";
  int64_t threads = 0, context = 0;
  std::string activations = "auto", kv = "auto", impl = "auto";
};
void AddModel(CLI::App& command, std::string& model);  // [MODEL]; what it holds is the default
// [MODEL] --threads --ctx --activations --kv --impl
void AddModelFlags(CLI::App& command, ModelFlags& flags);
// kBadInput names the option and its range.
Result<LoadOptions> ToLoadOptions(const ModelFlags& flags);

// A model and its engine, loaded with a progress bar where that can be seen; stops when interrupted.
struct Loaded {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
};
// MODEL as given -> the file or directory: "demo" is the bundled model (./demo is a file of that name).
Result<std::string> ModelPath(const std::string& given);
// Says on standard error where the context goes beyond what a model with rotary positions was trained on.
Result<Loaded> Load(const std::string& given, LoadOptions options);

// Says on standard error where OpenBLAS was asked for and never ran, once everything has.
void NoteUnusedBlas(const Engine& engine, const LoadOptions& options);

// The whole of a file, or of standard input for "-".
Result<std::string> ReadText(const std::string& path);

}  // namespace tally::app
