// SPDX-License-Identifier: Apache-2.0
// What the tests of harmony share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/harmony.h"

namespace tally::test {

inline const std::string kShared = TALLY_SOURCE_DIR "/../shared/";

// A file of openai/harmony's test data, without white space at its end; empty where it is absent.
inline std::string HarmonyData(const std::string& name) {
  std::ifstream file(kShared + "harmony/" + name);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.substr(0, text.find_last_not_of(" \r\n") + 1);
}

inline const std::vector<std::string>& HarmonyTokens() {
  static const std::vector<std::string> tokens = {"<|start|>", "<|message|>", "<|channel|>",   "<|constrain|>",      "<|end|>",
                                                  "<|call|>",  "<|return|>",  "<|endoftext|>", "<|reserved_200014|>"};
  return tokens;
}

struct Piece {
  std::string text;
  bool control = false;
};

// Special tokens spelled in `text`, and the text between them.
inline std::vector<Piece> Pieces(std::string_view text) {
  std::vector<Piece> pieces;
  while (!text.empty()) {
    size_t begin = text.size(), length = 0;
    for (const std::string& token : HarmonyTokens()) {
      const size_t at = text.find(token);
      if (at < begin) begin = at, length = token.size();
    }
    if (begin > 0) pieces.push_back({std::string(text.substr(0, begin))});
    if (length > 0) pieces.push_back({std::string(text.substr(begin, length)), true});
    text.remove_prefix(begin + length);
  }
  return pieces;
}

inline std::string Joined(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

inline std::string Joined(const std::vector<OutputPart>& parts) {
  std::string text;
  for (const OutputPart& part : parts) text += part.text;
  return text;
}

inline std::vector<OutputPart> Parse(const std::vector<Piece>& pieces) {
  const std::unique_ptr<OutputParser> parser = NewHarmonyParser();
  std::vector<OutputPart> parts;
  for (const Piece& piece : pieces) parser->Push({piece.text, piece.control}, &parts);
  parser->Finish(&parts);
  return parts;
}

inline ChatAnswer AnswerOf(const std::vector<OutputPart>& parts) {
  ChatAnswer answer;
  answer.Add(parts);
  return answer;
}

// Kinds and texts with neighbours of a kind joined: "R[thinking]M[<|end|>]K[{}]C{name|{}}". Content is T.
inline std::string Shape(const std::vector<OutputPart>& parts) {
  std::string shape;
  char open = 0;
  for (const OutputPart& part : parts) {
    const char kind = "TRKM"[static_cast<size_t>(part.kind)];
    if (!part.text.empty() && kind != open) shape += (open != 0 ? "]" : "") + std::string{kind, '['};
    if (!part.text.empty()) open = kind;
    shape += part.text;
    if (!part.call) continue;
    shape += (open != 0 ? "]C{" : "C{") + part.call->name + "|" + part.call->arguments + "}";
    open = 0;
  }
  return shape + (open != 0 ? "]" : "");
}

}  // namespace tally::test
