// SPDX-License-Identifier: Apache-2.0
#include "engine/text/text_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/format.h"
#include "engine/text/utf8.h"
#include "loaders/inventory/message.h"

namespace tally {

struct TextTokenizer::Scratch {
  Scratch(size_t bytes, const Parts& parts, size_t most_ids)
      : matcher(bytes), normal_growth(bytes, parts.normalizer.size()), growth(bytes, parts.pre.size()) {
    model.most_ids = most_ids;
  }
  Matcher matcher;
  Growth normal_growth, growth;
  ModelScratch model;
  std::vector<int32_t> ids;
};

namespace {

// Walks `text` from one added token to the next: between(stretch, its offset), then token(id).
template <class Between, class Token>
Status ForEachAdded(const AddedTokens& tokens, std::string_view text, std::span<const ByteRange> special, const Between& between,
                    const Token& token) {
  size_t done = 0;
  for (const AddedTokens::Match& match : tokens.Find(text, special)) {
    if (match.begin > done) TALLY_RETURN_IF_ERROR(between(text.substr(done, match.begin - done), done));
    token(match.id);
    done = match.end;
  }
  return done < text.size() ? between(text.substr(done), done) : Status();
}

// The parts of `ranges` within [begin, end), from `begin` on.
std::vector<ByteRange> Within(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  std::vector<ByteRange> within;
  for (const ByteRange& range : ranges) {
    const size_t first = std::max(range.begin, begin), last = std::min(range.end, end);
    if (first < last) within.push_back({first - begin, last - begin});
  }
  return within;
}

}  // namespace

Status TextTokenizer::EncodeNormalized(std::string_view text, std::span<const ByteRange> special, bool at_start,
                                       Scratch& scratch) const {
  const PreTokenizer::Sink sink = [&](std::string_view piece) -> Status {
    TALLY_RETURN_IF_ERROR(p_.model->Encode(piece, scratch.model, &scratch.ids));
    return CheckRoom(scratch.model, scratch.ids.size());
  };
  return ForEachAdded(
      p_.normalized_tokens, text, special,
      [&](std::string_view stretch, size_t offset) {
        return p_.pre.Run(stretch, at_start && offset == 0, scratch.matcher, scratch.growth, sink);
      },
      [&](int32_t id) { scratch.ids.push_back(id); });
}

Status TextTokenizer::EncodeRaw(std::string_view text, std::span<const ByteRange> special, bool at_start,
                                Scratch& scratch) const {
  if (p_.normalizer.size() == 0) return EncodeNormalized(text, special, at_start, scratch);
  const Result<std::string> normalized = p_.normalizer.Apply(text, scratch.matcher, scratch.normal_growth);
  if (!normalized.ok()) return {normalized.status().code(), "normalizer: " + normalized.status().message()};
  // Normalization moves bytes, and bytes outside `special` must not become special. So a stretch has special tokens only if all of it is in
  // a range.
  const ByteRange all{0, normalized->size()};
  const bool whole = special.size() == 1 && special[0].begin == 0 && special[0].end == text.size();
  return EncodeNormalized(*normalized, std::span(&all, whole ? 1 : 0), at_start, scratch);
}

Status TextTokenizer::EncodeText(std::string_view text, std::span<const ByteRange> special, Scratch& scratch) const {
  return ForEachAdded(
      p_.raw_tokens, text, special,
      [&](std::string_view stretch, size_t offset) {
        return EncodeRaw(stretch, Within(special, offset, offset + stretch.size()), offset == 0, scratch);
      },
      [&](int32_t id) { scratch.ids.push_back(id); });
}

Result<std::vector<int32_t>> TextTokenizer::Encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  text = WellFormed(text, &repaired);
  Scratch scratch(text.size(), p_, options.most_ids);
  scratch.ids.reserve(std::min(text.size() / 4, options.most_ids) + 8);
  if (options.add_special) scratch.ids = p_.prefix;
  const ByteRange all{0, text.size()};
  const Status status = EncodeText(text, std::span(&all, options.parse_special ? 1 : 0), scratch);
  if (!status.ok()) return OneLine(status);
  if (options.add_special) scratch.ids.insert(scratch.ids.end(), p_.suffix.begin(), p_.suffix.end());
  TALLY_RETURN_IF_ERROR(CheckRoom(scratch.model, scratch.ids.size()));
  return std::move(scratch.ids);
}

Result<std::vector<int32_t>> TextTokenizer::EncodeSegments(std::span<const TextSegment> segments, size_t most_ids) const {
  std::string text, repaired;
  std::vector<ByteRange> special;
  for (const TextSegment& segment : segments) {
    const size_t begin = text.size();
    text += WellFormed(segment.text, &repaired);
    if (!segment.parse_special || text.size() == begin) continue;
    if (!special.empty() && special.back().end == begin) {
      special.back().end = text.size();
    } else {
      special.push_back({begin, text.size()});
    }
  }
  Scratch scratch(text.size(), p_, most_ids);
  const Status status = EncodeText(text, special, scratch);
  if (!status.ok()) return OneLine(status);
  TALLY_RETURN_IF_ERROR(CheckRoom(scratch.model, scratch.ids.size()));
  return std::move(scratch.ids);
}

std::string TextTokenizer::ControlText(int32_t id) const {
  const auto found = p_.control_text.find(id);
  return found == p_.control_text.end() ? "" : found->second;
}

std::string TextTokenizer::Decode(std::span<const int32_t> ids) const {
  StreamingDecoder decoder(*this);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

std::string TextTokenizer::FirstTokenBytes(int32_t id) const {
  const auto own = p_.first_bytes.find(id);
  return own == p_.first_bytes.end() ? Tokenizer::FirstTokenBytes(id) : own->second;
}

void TextTokenizer::AddEos(std::span<const int64_t> ids) {
  std::vector<bool> there(p_.bytes.size());
  for (const int32_t id : p_.eos) there[static_cast<size_t>(id)] = true;
  for (const int64_t id : ids) {
    if (!InRange(id) || there[static_cast<size_t>(id)]) continue;
    there[static_cast<size_t>(id)] = true;
    p_.eos.push_back(static_cast<int32_t>(id));
  }
}

bool EndsGeneration(std::string_view token, bool harmony) {
  if (harmony && token == "<|end|>") return false;
  for (const std::string_view known : {"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>",
                                       "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "<|end_of_text|>",
                                       "<end_of_utterance>", "<turn|>", "<|tool_response>", "<eos>", "[EOT]", "<|role_end|>"}) {
    if (token == known) return true;
  }
  return false;
}

Status OneLine(const Status& status) {
  constexpr size_t kLongest = 1000;
  return {status.code(), Printable(status.message(), kLongest)};
}

Result<std::unique_ptr<Tokenizer>> TokenizerFromGguf(const Metadata& metadata) {
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, TextTokenizerFromGguf(metadata));
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> TokenizerFromJson(const std::string& path) {
  const size_t folder = path.rfind('/') + 1;  // npos + 1: 0
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                         TextTokenizerFromJson(SideFiles(path.substr(0, folder)), path.substr(folder)));
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> TokenizerFor(const Inventory& inventory) {
  const Metadata& metadata = inventory.metadata;
  if (inventory.format == FileFormat::kGguf) {
    TALLY_ASSIGN_OR_RETURN(const auto found, metadata.GetString("tokenizer.ggml.model"));
    const std::string model = found.value_or("no_vocab");
    if (model == "no_vocab" || model == "none") return std::unique_ptr<Tokenizer>();
    return TokenizerFromGguf(metadata);
  }
  if (inventory.tokenizer_json.empty()) {
    if (inventory.packed != nullptr) return std::unique_ptr<Tokenizer>();
    std::error_code error;
    const bool directory = std::filesystem::is_directory(inventory.path, error);
    TALLY_RETURN_IF_ERROR(UnreadTokenizer(directory ? inventory.path : internal::DirectoryOf(inventory.path)));
    return std::unique_ptr<Tokenizer>();
  }
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<TextTokenizer> tokenizer, TextTokenizerFromJson(SideFiles(inventory), "tokenizer.json"));
  // One id or several; generation_config.json knows the ends of turns that tokenizer_config.json does not.
  for (const char* key : {"generation_config.eos_token_id", "eos_token_id"}) {
    const MetaValue* value = metadata.Find(key);
    if (value != nullptr && std::holds_alternative<std::vector<int64_t>>(*value)) {
      TALLY_ASSIGN_OR_RETURN(const auto ids, metadata.GetInts(key));
      if (ids) tokenizer->AddEos(*ids);
    } else {
      TALLY_ASSIGN_OR_RETURN(const auto id, metadata.GetInt(key));
      if (id) tokenizer->AddEos(std::span(&*id, 1));
    }
  }
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace tally
