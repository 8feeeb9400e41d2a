// SPDX-License-Identifier: Apache-2.0
// tally tokenize: text to token ids and back.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/chat_screen.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/json.h"
#include "engine/app/options.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/base/utf8_check.h"

namespace tally::app {
namespace {

struct TokenizeFlags {
  std::optional<std::string> first, second;  // arguments: MODEL TEXT, of which either may be left out
  std::optional<std::string> model, text, file, ranks, pattern, decode, tokens_file;
  bool special = false, plain = false, ids = false, json = false;
};

// What the vocabulary came from.
const std::string& Source(const TokenizeFlags& flags) { return flags.ranks ? *flags.ranks : *flags.model; }

// Whether a lone argument is a model rather than a text: it is named like one, or is a directory; or, with a text on standard input, it
// looks like a path.
bool NamesModel(const std::string& argument) {
  std::error_code ignored;
  return argument == "demo" || argument.ends_with(".gguf") || argument.ends_with(".json") ||
         std::filesystem::is_directory(argument, ignored) ||
         (argument.find('/') != std::string::npos && argument.find(' ') == std::string::npos && InputIsGiven());
}

// The arguments MODEL TEXT, TEXT alone, or MODEL alone with the text from elsewhere; -m MODEL leaves only TEXT.
Status SortArguments(TokenizeFlags& flags) {
  const bool elsewhere = flags.file || flags.decode || flags.tokens_file, named = flags.ranks || flags.model;
  if (flags.ranks && flags.model) return BadInput("--ranks takes the place of MODEL: give one of them");
  if (named && flags.second) {
    return BadInput(flags.ranks ? "--ranks takes the place of MODEL: give one of them" : "MODEL was given twice");
  }
  if (!named && (flags.second || (flags.first && (elsewhere || NamesModel(*flags.first))))) {
    flags.model = std::exchange(flags.first, std::exchange(flags.second, {}));
  }
  flags.text = flags.first;
  if (!flags.ranks && !flags.model) flags.model = "demo";
  if (!flags.text && !elsewhere) {
    TALLY_ASSIGN_OR_RETURN(flags.text, GivenInput());
  }
  return {};
}

Status Decode(const Tokenizer& tokenizer, const TokenizeFlags& flags) {
  std::string given;
  if (flags.decode) {
    given = *flags.decode;
  } else {
    TALLY_ASSIGN_OR_RETURN(given, ReadText(*flags.tokens_file));
  }
  const std::string what = flags.decode ? "--decode" : *flags.tokens_file;
  TALLY_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ParseTokens(given, what));
  for (const int32_t id : ids) {
    if (id >= tokenizer.vocab_size()) {
      return BadInput(what + ": token " + std::to_string(id) + " is beyond the vocabulary of " +
                      std::to_string(tokenizer.vocab_size()));
    }
  }
  const std::string text = tokenizer.Decode(ids);
  if (flags.json) {
    PrintJson({{"model", Source(flags)}, {"tokens", ids}, {"text", text}});
  } else {
    Print((IsTerminal(Stream::kOutput) ? Readable(text) : text) + (flags.decode ? "\n" : ""));
  }
  return {};
}

Status Encode(const Tokenizer& tokenizer, const TokenizeFlags& flags) {
  std::string text;
  if (flags.text) {
    text = *flags.text;
    TALLY_RETURN_IF_ERROR(CheckUtf8(text, "TEXT"));
  } else {
    TALLY_ASSIGN_OR_RETURN(text, ReadText(*flags.file));
  }
  const EncodeOptions options{.add_special = !flags.plain, .parse_special = flags.special};
  TALLY_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.Encode(text, options));
  if (flags.json) {
    PrintJson({{"model", Source(flags)},
               {"tokenizer", tokenizer.Description()},
               {"count", ids.size()},
               {"tokens", ids},
               {"pieces", Json::ListOf(ids, [&](int32_t id) { return tokenizer.TokenBytes(id); })}});
    return {};
  }
  std::string line;
  for (const int32_t id : ids) {
    if (flags.ids) {
      line += (line.empty() ? "" : ",") + std::to_string(id);
    } else {
      Print(std::to_string(id) + "\t" +
            (tokenizer.IsControl(id) ? "(control)" : "\"" + Printable(tokenizer.TokenBytes(id)) + "\"") + "\n");
    }
  }
  if (flags.ids) Print(line + "\n");
  return {};
}

Status RunTokenize(TokenizeFlags flags) {
  if (flags.pattern && !flags.ranks) return BadInput("--pattern is for --ranks FILE: a model has its own");
  TALLY_RETURN_IF_ERROR(SortArguments(flags));
  const bool decode = flags.decode || flags.tokens_file;
  if (int(flags.text.has_value()) + int(flags.file.has_value()) + int(flags.decode.has_value()) +
          int(flags.tokens_file.has_value()) !=
      1) {
    return BadInput("give one of TEXT, -f FILE, --decode 1,2,3 and --tokens-file FILE");
  }
  TALLY_ASSIGN_OR_RETURN(const std::string path, flags.ranks ? *flags.ranks : ModelPath(*flags.model));
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                         flags.ranks ? LoadRanks(path, flags.pattern.value_or("")) : LoadTokenizer(path));
  for (const std::string& note : tokenizer->Notes()) Note("note: " + Printable(path) + ": " + Printable(note) + "\n");
  return decode ? Decode(*tokenizer, flags) : Encode(*tokenizer, flags);
}

}  // namespace

Action AddTokenize(Command& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  Command c = app.Add("tokenize", "Text to token ids, and back");
  c.Option("MODEL", flags->first,
           "GGUF file, Hugging Face directory, tokenizer.json, or demo: the bundled model, which is used if a text stands alone")
      .Type(kModelType);
  c.Option("TEXT", flags->second, "the text; without it standard input, if that is no terminal");
  c.Option("-m,--model", flags->model, "MODEL; what is left is the text").Type(kModelType);
  FileOption(c.Option("-f,--file", flags->file, "file with the text (-: standard input)"));
  FileOption(
      c.Option("--ranks", flags->ranks, "instead of MODEL: a file of ranks as tiktoken publishes them (cl100k_base.tiktoken)"));
  Choices(c.Option("--pattern", flags->pattern, "how --ranks cuts text, and its special tokens (else: as the file is named)"),
          {"r50k", "p50k", "cl100k", "o200k", "o200k_harmony"});
  c.Option("--decode", flags->decode, "token ids to turn into text: 1,2,3 or [1, 2, 3]").OneEach();
  FileOption(
      c.Option("--tokens-file", flags->tokens_file,
               "file with token ids to turn into text, written the same way (-: standard input); nothing is added to the text"));
  c.Flag("--special", flags->special, "special tokens spelled out in the text become tokens (else they stay text)");
  c.Flag("--no-bos", flags->plain, "do not add the tokens that the model's tokenizer puts around a text");
  c.Flag("--ids", flags->ids, "the ids alone, in one line with commas");
  c.Flag("--json", flags->json, "one JSON document on standard output");
  AddExamples(c, {"tally tokenize \"To be, or not to be\" --ids", "tally tokenize demo --decode 1,2,3"});
  return [flags] { return Report(RunTokenize(*flags)); };
}

}  // namespace tally::app
