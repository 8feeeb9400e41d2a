// SPDX-License-Identifier: Apache-2.0
// Counting a model without its weights: parameters, FLOPs and bytes from its configuration.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "counters/books/model_count.h"
#include "counters/books/published.h"
#include "counters/books/training.h"
#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/recipe/sizes.h"

namespace tally {

struct CountRequest {
  // A GGUF file, a Hugging Face directory or its config.json; else the name of a built-in model, in any case: "gpt-oss-120b".
  std::string model = {};
  std::vector<std::string> settings = {};  // changes of the configuration, in order: "d_model=128", "tied"
  books::CountOptions options = {};
  bool type_given = false;  // true: count weights as options.type; false: as stored in the checkpoint, or as published
};

struct CountedModel {
  std::string name = {};  // as asked for
  books::Count count = {};
  std::string stored_as = {};  // types of the weight bytes: "MXFP4 + BF16", "Q8_0"
  // Of a checkpoint's tensors that are counted as stored, by name as in CountOptions::stored_bytes; else empty.
  std::map<std::string, DType> stored_types = {};
  books::PublishedFigures published = {};  // built-in model without settings; else empty
  // Parts beside what `count` counts: tensors that are stored and not run, or what a configuration describes. Bytes as stored or
  // published. With settings their sizes are unknown.
  std::vector<PartNotRun> not_run = {};
  // With CountRequest::type_given: the types of the weights without it, which presets start from. `start_types` has those of
  // tensors that a checkpoint stores, by name; the others have `start_type`. Without type_given both are empty: the weights are
  // counted in these types.
  std::optional<DType> start_type = {};
  std::map<std::string, DType> start_types = {};
  Status quantisation = {};  // kBadInput: the weights are quantised by a method that cannot be read (CheckQuantMethod)

  // True if the model has parts with parameters that are not run, and so not counted.
  TALLY_API bool counts_part() const;
  // Parameters, run or not; nullopt: a part's size is unknown.
  TALLY_API std::optional<uint64_t> all_parameters() const;
  // The same, without parts of unknown size.
  TALLY_API uint64_t known_parameters() const;
  // As all_parameters(), of the bytes of weights.
  TALLY_API std::optional<uint64_t> all_bytes() const;
};

// Reads no weights. kBadInput: neither a file nor a known name, a malformed file, an unknown architecture, an unknown setting,
// counts that do not fit 64 bits.
TALLY_API Result<CountedModel> CountModel(const CountRequest& request);

// Bytes of the weights as a preset of Quantize stores them ("Q4_K_M"); MXFP4 experts stay as they are. If a file keeps query, key and
// value in one matrix and the recipe has three (BLOOM), the file is a few percent larger, since the preset's rules see one tensor.
// kBadInput: there is no such preset.
TALLY_API Result<uint64_t> PresetBytes(const CountedModel& model, std::string_view preset);

// The built-in models with the same counts: layers, widths, vocabulary, parameters by every convention. Mostly one or none; a
// base model and models trained from it may have the same counts. Empty if the recipe cannot be counted.
TALLY_API std::vector<CountedModel> KnownModelsLike(const Recipe& recipe);

// A built-in model as lists show it.
struct KnownModelLine {
  std::string_view name = {};
  std::vector<std::string_view> aliases = {};  // beside the name in other case, and with other marks: llama3.3:70b
  std::string family = {};
  bool runs = false;                       // false: it is counted and not run
  books::ParameterCounts parameters = {};  // of what is run, without multi-token prediction
  std::vector<PartNotRun> not_run = {};
  books::PublishedFigures published = {};
};
TALLY_API std::vector<KnownModelLine> KnownModelLines();

// The name of the built-in model that is called so, as KnownModels has it; empty: there is none. Case and the marks '-', '.', '_' and ':'
// do not matter, but whether one is between two digits (opt-13b, OPT-1.3B), and an alias is as good.
TALLY_API std::string_view KnownModelName(std::string_view given);
// The names of the built-in models.
TALLY_API std::vector<std::string_view> KnownModels();
// Those whose names are nearly `name`, three at most; empty: none is.
TALLY_API std::string NearestKnownModels(std::string_view name);
// False of those that are counted and not run.
TALLY_API bool KnownModelRuns(std::string_view name);
// The settings, "KEY=VALUE", for help and messages.
TALLY_API std::string SettingKeys();

}  // namespace tally
