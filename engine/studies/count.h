// Counting a model without its weights: parameters, FLOPs and bytes from its configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "counters/books/model_count.h"
#include "counters/books/published.h"
#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/recipe/recipe.h"

namespace tally {

struct CountRequest {
  // A GGUF file, a Hugging Face directory or its config.json; else a name that is built in, in any case: "gpt-oss-120b".
  std::string model;
  std::vector<std::string> settings;  // changes of the configuration, in order: "d_model=128", "tied"
  books::CountOptions options;
  bool type_given = false;  // count weights as options.type; else as the checkpoint stores them, or as the model is published
};

struct CountedModel {
  std::string name;  // as asked for
  books::Count count;
  std::string stored_as;              // what weight bytes are counted in: "MXFP4 + BF16", "Q8_0"
  books::PublishedFigures published;  // of a built-in model without settings; else empty
};

// Reads no weights. kBadInput: neither a file nor a known name, a file that is not what it should be, an architecture that is not
// known, a setting that is none, counts that do not fit 64 bits.
TALLY_API Result<CountedModel> CountModel(const CountRequest& request);

// The built-in models that a loaded one is, going by what is counted: layers, widths, vocabulary, parameters by every convention.
// Mostly one or none; a base model and what was trained from it may be the same here. Empty where the recipe cannot be counted.
TALLY_API std::vector<CountedModel> KnownModelsLike(const Recipe& recipe);

// The names that are built in.
TALLY_API std::vector<std::string_view> KnownModels();
// "KEY=VALUE": what settings there are, for help and messages.
TALLY_API std::string SettingKeys();

}  // namespace tally
