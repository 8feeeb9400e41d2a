// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/template_source.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/base/format.h"
#include "engine/text/json_steps.h"
#include "engine/text/utf8.h"
#include "loaders/inventory/side_files.h"

namespace tally {
namespace {

constexpr uint64_t kMaxTemplateBytes = 1 << 20;  // published ones have up to 20 KiB
constexpr size_t kMaxTemplates = 64;
constexpr std::string_view kExtension = ".jinja";

class Reader {
 public:
  explicit Reader(std::map<std::string, std::string> special_tokens) : special_tokens_(std::move(special_tokens)) {}

  Status Add(std::string name, std::string text, std::string origin) {
    if (text.size() > kMaxTemplateBytes) {
      return BadInput(origin + ": a chat template of " + std::to_string(text.size()) + " bytes, at most " +
                      std::to_string(kMaxTemplateBytes) + " expected");
    }
    if (found_.size() == kMaxTemplates) {
      return BadInput(origin + ": more than " + std::to_string(kMaxTemplates) + " chat templates");
    }
    std::string repaired;
    if (WellFormed(text, &repaired).data() != text.data()) return BadInput(origin + ": the chat template is not UTF-8");
    if (name == "default") name.clear();
    found_.push_back(
        {.name = std::move(name), .text = std::move(text), .origin = std::move(origin), .special_tokens = special_tokens_});
    return {};
  }
  Status AddFile(std::string name, const SideFiles& files, const std::string& file) {
    TALLY_ASSIGN_OR_RETURN(std::string text, files.Read(file, kMaxTemplateBytes));
    return Add(std::move(name), std::move(text), Printable(files.PathOf(file)));
  }
  void SetStop(const std::vector<std::string>& stop) {
    for (ChatTemplateSource& source : found_) source.stop = stop;
  }
  void SetAdditionalTokens(const std::vector<std::string>& tokens) {
    for (ChatTemplateSource& source : found_) source.additional_special_tokens = tokens;
  }
  bool empty() const { return found_.empty(); }
  std::vector<ChatTemplateSource> Take() {
    std::stable_sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return std::move(found_);
  }

 private:
  std::map<std::string, std::string> special_tokens_;
  std::vector<ChatTemplateSource> found_;
};

Result<std::vector<ChatTemplateSource>> FromGguf(const Inventory& inventory, const Tokenizer* tokenizer) {
  const Metadata& metadata = inventory.metadata;
  std::map<std::string, std::string> special;
  constexpr std::pair<const char*, const char*> kTokens[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                                             {"eos_token", "tokenizer.ggml.eos_token_id"},
                                                             {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                                             {"pad_token", "tokenizer.ggml.padding_token_id"}};
  for (const auto& [variable, key] : kTokens) {
    if (tokenizer == nullptr) break;
    TALLY_ASSIGN_OR_RETURN(const auto id, metadata.GetInt(key));
    if (!id || *id < 0 || *id >= tokenizer->vocab_size()) continue;
    std::string text = tokenizer->ControlText(static_cast<int32_t>(*id));
    if (!text.empty()) special.emplace(variable, std::move(text));
  }
  Reader reader(std::move(special));
  constexpr std::string_view kKey = "tokenizer.chat_template";
  for (const auto& [key, value] : metadata.values()) {
    if (key != kKey && !key.starts_with(std::string(kKey) + ".")) continue;
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr) {
      return BadInput(metadata.source + ": key '" + Printable(key) + "': expected a string, found " +
                      std::string(internal::KindOf(value)));
    }
    TALLY_RETURN_IF_ERROR(
        reader.Add(key.size() > kKey.size() ? key.substr(kKey.size() + 1) : "", *text, metadata.source + ": " + Printable(key)));
  }
  TALLY_ASSIGN_OR_RETURN(auto stop, metadata.GetStrings("tally.chat.stop_strings"));
  reader.SetStop(std::move(stop).value_or(std::vector<std::string>()));
  return reader.Take();
}

// A token of tokenizer_config.json: a string, or an added token with its content. Null: no token.
const std::string* TokenText(const Json& token) {
  const Json& text = token.is_object() ? Member(token, "content") : token;
  return text.get_ptr<const std::string*>();
}

// What tokenizer_config.json gives under NAME_token.
std::map<std::string, std::string> SpecialTokens(const Json& config) {
  std::map<std::string, std::string> special;
  if (!config.is_object()) return special;
  for (const auto& [key, value] : config.items()) {
    const std::string* const text = key.ends_with("_token") ? TokenText(value) : nullptr;
    if (text != nullptr) special.emplace(key, *text);
  }
  return special;
}

std::vector<std::string> AdditionalTokens(const Json& config) {
  std::vector<std::string> tokens;
  const Json& given = Member(config, "additional_special_tokens");
  if (!given.is_array()) return tokens;
  for (const Json& token : given) {
    if (const std::string* const text = TokenText(token)) tokens.push_back(*text);
  }
  return tokens;
}

Status AddConfigured(const Json& config, const std::string& path, Reader* reader) {
  const Json& given = Member(config, "chat_template");
  const std::string where = Printable(path) + ": chat_template";
  if (given.is_null()) return {};
  if (given.is_string()) return reader->Add("", given.get<std::string>(), where);
  if (!given.is_array()) return BadInput(where + ": expected a string or a list of {name, template}");
  for (const Json& each : given) {
    const Json &name = Member(each, "name"), &text = Member(each, "template");
    if (!name.is_string() || !text.is_string()) return BadInput(where + ": expected a string or a list of {name, template}");
    TALLY_RETURN_IF_ERROR(
        reader->Add(name.get<std::string>(), text.get<std::string>(), where + " '" + Printable(name.get<std::string>()) + "'"));
  }
  return {};
}

// "stop_strings" of generation_config.json: a string or a list of them.
Result<std::vector<std::string>> StopStrings(const SideFiles& files) {
  std::vector<std::string> stop;
  const std::string name = "generation_config.json";
  if (!files.Has(name)) return stop;
  TALLY_ASSIGN_OR_RETURN(const Json config, ParseJsonFile(files, name));
  const Json& given = Member(config, "stop_strings");
  for (const Json& each : given.is_array() ? given : Json::array({given})) {
    if (each.is_string()) stop.push_back(each.get<std::string>());
  }
  return stop;
}

Result<std::vector<ChatTemplateSource>> FromSideFiles(const SideFiles& files) {
  Json config;
  const std::string configured = "tokenizer_config.json", more = "additional_chat_templates";
  if (files.Has(configured)) {
    TALLY_ASSIGN_OR_RETURN(config, ParseJsonFile(files, configured));
  }
  Reader reader(SpecialTokens(config));
  if (const std::string file = "chat_template.jinja"; files.Has(file)) TALLY_RETURN_IF_ERROR(reader.AddFile("", files, file));
  for (const std::string& name : files.NamesIn(more)) {
    if (!name.ends_with(kExtension)) continue;
    TALLY_RETURN_IF_ERROR(reader.AddFile(name.substr(0, name.size() - kExtension.size()), files, more + "/" + name));
  }
  if (reader.empty()) TALLY_RETURN_IF_ERROR(AddConfigured(config, files.PathOf(configured), &reader));
  if (reader.empty()) return reader.Take();
  reader.SetAdditionalTokens(AdditionalTokens(config));
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> stop, StopStrings(files));
  reader.SetStop(stop);
  return reader.Take();
}

}  // namespace

Result<std::vector<ChatTemplateSource>> ReadChatTemplates(const Inventory& inventory, const Tokenizer* tokenizer) {
  if (inventory.format == FileFormat::kGguf) return FromGguf(inventory, tokenizer);
  return FromSideFiles(SideFiles(inventory));
}

}  // namespace tally
