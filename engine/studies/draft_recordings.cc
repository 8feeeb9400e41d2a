// SPDX-License-Identifier: Apache-2.0
// Recorded answers, read.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/format.h"
#include "engine/base/json.h"
#include "engine/recipe/recipe.h"
#include "engine/studies/draft_speed.h"

namespace tally {
namespace {

using Json = nlohmann::ordered_json;

// A text, or token ids.
Result<std::vector<int32_t>> TokensOf(const Json& line, const char* key, const std::string& where, const Model& model) {
  const auto found = line.find(key);
  const std::string wanted = where + ": expected \"" + key + "\", a text or token ids";
  if (found == line.end()) return BadInput(wanted);
  if (found->is_string()) {
    TALLY_RETURN_IF_ERROR(model.tokenizer_status());
    if (model.tokenizer() == nullptr) return BadInput(where + ": the model has no tokenizer: give token ids");
    const bool prompt = std::string_view(key) == "prompt";
    return model.tokenizer()->Encode(found->get<std::string>(), {.add_special = prompt, .parse_special = false});
  }
  if (!found->is_array()) return BadInput(wanted);
  std::vector<int32_t> tokens;
  for (const Json& id : *found) {
    if (!id.is_number_integer() || id < 0 || id >= model.recipe().vocab) {
      return BadInput(where + ": \"" + key + "\" has " + Quote(id.dump()) + ", and ids of this model are 0 to " +
                      std::to_string(model.recipe().vocab - 1));
    }
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

}  // namespace

Result<std::vector<RecordedAnswer>> ReadRecordings(const std::string& source, std::string_view text, const Model& model) {
  std::vector<RecordedAnswer> recordings;
  int64_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = source + ", line " + std::to_string(number);
    TALLY_ASSIGN_OR_RETURN(const Json json, ReadJson<Json>(where, line, {.values = size_t{1} << 22, .members = 64}));
    RecordedAnswer& recording = recordings.emplace_back();
    TALLY_ASSIGN_OR_RETURN(recording.prompt, TokensOf(json, "prompt", where, model));
    TALLY_ASSIGN_OR_RETURN(recording.answer, TokensOf(json, "answer", where, model));
  }
  return recordings;
}

}  // namespace tally
