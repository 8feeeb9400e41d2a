// SPDX-License-Identifier: Apache-2.0
// The fuzz targets: one for each format that Tally reads or writes. clang links each with libFuzzer (scripts/fuzz.sh); the
// ordinary build replays their seeds, mutated, as a test.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tally::fuzz {

struct Target {
  std::string_view name;
  void (*run)(std::string_view input);  // aborts where something is wrong
  std::vector<std::string> (*seeds)();  // inputs to begin with: sound files, mostly
};

extern const Target kGguf;           // ReadGguf, then ReadModelSpec
extern const Target kGgufSplit;      // the same of a file in two parts
extern const Target kSafetensors;    // a model.safetensors beside an empty config.json
extern const Target kHuggingFace;    // config.json, generation_config.json, index and two shards, then ReadModelSpec
extern const Target kPacked;         // the header of a packed file, then the same, its texts and its layout
extern const Target kCountedConfig;  // a config.json of a model that is counted, then its count
extern const Target kTokenizerGguf;  // the tokenizer of a GGUF file, then encoding and decoding with it
extern const Target kTokenizerJson;  // tokenizer.json and tokenizer_config.json, then the same
extern const Target kRanks;          // tiktoken's files, then the same
extern const Target kText;           // text through sound tokenizers, and ids back
extern const Target kPattern;        // regular expressions, searched in parts and at once
extern const Target kNpy;            // arrays written, and read as NumPy's documentation says
extern const Target kJinja;          // chat templates, rendered with variables
extern const Target kTokenList;      // the lists of token ids of the command line
extern const Target kHarmonyOutput;  // pieces of an answer in harmony
extern const Target kHarmonyPrompt;  // a tool, variables and messages, rendered as harmony
extern const Target kAnswers;        // output of models in every format of calls and thinking
extern const Target kSession;        // session files
extern const Target kRequestBody;    // bodies of the server's endpoints
extern const Target kGrammar;        // JSON Schemas, regular expressions and GBNF, and texts in them
extern const Target kHttp;           // requests of HTTP/1.1

inline constexpr const Target* kTargets[] = {
    &kGguf,          &kGgufSplit, &kSafetensors, &kHuggingFace, &kCountedConfig, &kTokenizerGguf, &kTokenizerJson,
    &kRanks,         &kText,      &kPattern,     &kNpy,         &kJinja,         &kTokenList,     &kHarmonyOutput,
    &kHarmonyPrompt, &kAnswers,   &kPacked,      &kSession,     &kRequestBody,   &kHttp,          &kGrammar};

}  // namespace tally::fuzz
