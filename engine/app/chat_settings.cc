// SPDX-License-Identifier: Apache-2.0
#include "engine/app/chat_settings.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <random>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/app/numbers.h"
#include "engine/app/usage.h"
#include "engine/base/format.h"
#include "engine/render/json.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

struct ChatSetting {
  std::vector<std::string_view> names;  // ours, then those of others
  const char* meaning;
  bool (*set)(AnswerSettings& answers, std::string_view text);  // false: no value of it
  Json (*get)(const AnswerSettings& answers);
};

template <auto Member>
bool SetSampling(AnswerSettings& answers, std::string_view text) {
  if constexpr (std::is_integral_v<std::remove_reference_t<decltype(answers.sampling.*Member)>>) {
    return ParseWhole(text, answers.sampling.*Member);
  } else {
    return ParseNumber(text, answers.sampling.*Member);
  }
}
template <auto Member>
Json GetSampling(const AnswerSettings& answers) {
  return answers.sampling.*Member;
}

template <auto Member>
ChatSetting OfSampling(std::vector<std::string_view> names, const char* meaning) {
  return {std::move(names), meaning, SetSampling<Member>, GetSampling<Member>};
}

const std::vector<ChatSetting>& AllSettings() {
  static const std::vector<ChatSetting> settings = {
      OfSampling<&SamplingOptions::temperature>({"temperature", "temp"}, "0: the most likely token"),
      OfSampling<&SamplingOptions::top_k>({"top_k"}, "among the k most probable; 0: all"),
      OfSampling<&SamplingOptions::top_p>({"top_p"}, "the fewest that reach this probability; 1: all"),
      OfSampling<&SamplingOptions::min_p>({"min_p"}, "least part of the greatest probability; 0: off"),
      OfSampling<&SamplingOptions::repeat_penalty>({"repeat_penalty"}, "on recent tokens; 1: off"),
      OfSampling<&SamplingOptions::repeat_last_n>({"repeat_last_n"}, "how many are recent; -1: all"),
      OfSampling<&SamplingOptions::presence_penalty>({"presence_penalty"}, "on tokens drawn before; 0: off"),
      OfSampling<&SamplingOptions::frequency_penalty>({"frequency_penalty"}, "by how often they were drawn; 0: off"),
      {{"seed"},
       "of the draws; -1: a new one",
       [](AnswerSettings& answers, std::string_view text) {
         answers.seed_drawn = text == "-1";
         if (!answers.seed_drawn) return ParseNumber(text, answers.sampling.seed);
         answers.sampling.seed = std::random_device{}();
         return true;
       },
       GetSampling<&SamplingOptions::seed>},
      {{"tokens", "max_tokens", "num_predict", "n_predict", "n"},
       "most of an answer; -1: until the context is full",
       [](AnswerSettings& answers, std::string_view text) { return ParseWhole(text, answers.tokens); },
       [](const AnswerSettings& answers) { return Json(answers.tokens); }}};
  return settings;
}

std::string SettingText(const Json& value) {
  char text[32];
  std::string shown = JsonText(value);
  if (shown.find_first_of(".e") == shown.npos) return shown;
  const auto end = std::to_chars(text, text + sizeof text, value.Number(), std::chars_format::general, 6).ptr;
  return {text, end};
}

std::string SettingLine(const ChatSetting& setting, const AnswerSettings& answers) {
  std::string line = "  " + std::string(setting.names.front());
  line.resize(std::max<size_t>(21, line.size() + 1), ' ');
  line += SettingText(setting.get(answers));
  line.resize(std::max<size_t>(32, line.size() + 2), ' ');
  return line + setting.meaning + "\n";
}

// Cuts the first word off.
std::string CutWord(std::string& text) {
  const size_t end = std::min(text.find_first_of(" \t="), text.size());
  std::string word = text.substr(0, end);
  text.erase(0, std::min(text.find_first_not_of(" \t=", end), text.size()));
  return word;
}

}  // namespace

std::string SettingLines(const Talk& talk) {
  std::string text;
  for (const ChatSetting& setting : AllSettings()) text += SettingLine(setting, talk.answers());
  return text;
}

Json SettingsJson(const Talk& talk) {
  Json settings = Json::Object();
  for (const ChatSetting& setting : AllSettings()) settings[setting.names.front()] = setting.get(talk.answers());
  return settings;
}

Result<std::string> SetOne(Talk& talk, const std::string& arguments) {
  std::string value = arguments;
  std::string name = CutWord(value);
  if (name == "parameter") name = CutWord(value);  // as ollama has it
  std::ranges::replace(name, '-', '_');
  const auto& settings = AllSettings();
  const auto found =
      std::ranges::find_if(settings, [&](const ChatSetting& s) { return std::ranges::find(s.names, name) != s.names.end(); });
  if (found == settings.end()) {
    std::vector<std::string> names;
    for (const ChatSetting& s : settings) names.emplace_back(s.names.front());
    if (name == "system") return BadInput("/system TEXT sets the system prompt");
    if (name == "num_ctx" || name == "ctx") return BadInput("the context is the engine's: tally chat -c N makes it larger");
    const std::optional<std::string> near = Nearest(name, names);
    return BadInput("there is no setting " + Quote(name) + (near ? ": did you mean " + *near + "?" : "") + " (" +
                    Join(names, ", ") + ")");
  }
  AnswerSettings answers = talk.answers();
  if (value.empty()) return SettingLine(*found, answers);
  if (!found->set(answers, value)) return BadInput(Quote(value) + " is no value of " + std::string(found->names.front()));
  TALLY_RETURN_IF_ERROR(talk.SetAnswers(answers, /*restart=*/found->names.front() == "seed"));
  return SettingLine(*found, talk.answers());
}

}  // namespace tally::app
