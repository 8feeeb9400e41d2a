// SPDX-License-Identifier: Apache-2.0
// What models write: any output is taken whole, and what comes of it does not depend on how it is cut.
#include <algorithm>

#include "engine/chat/tool_formats.h"
#include "tests/chat/answer_samples.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"

namespace tally::fuzz {
namespace {

constexpr char kControl = '\x01';  // on both sides of a control token

struct Parsed {
  ChatAnswer answer;
  std::string joined;
};

Parsed Parse(const AnswerSample& sample, const std::vector<OutputPiece>& pieces) {
  const auto parser = NewAnswerParser(DetectAnswerSyntax(sample.signs), sample.prompt, sample.tools);
  std::vector<OutputPart> parts;
  for (const OutputPiece& piece : pieces) parser->Push(piece, &parts);
  parser->Finish(&parts);
  Parsed parsed;
  parsed.answer.Add(parts);
  for (const OutputPart& part : parts) parsed.joined += part.text;
  return parsed;
}

bool SameCall(const ToolCall& a, const ToolCall& b) { return a.id == b.id && a.name == b.name && a.arguments == b.arguments; }

// The number of a format, and output of it.
void RunAnswers(std::string_view input) {
  if (input.empty()) return;
  const AnswerSample& sample = AnswerSamples()[static_cast<uint8_t>(input[0]) % AnswerSamples().size()];
  input.remove_prefix(1);
  std::string text;
  std::vector<OutputPiece> whole, bytes;
  for (bool control = false;; control = !control) {
    const std::string_view piece = input.substr(0, input.find(kControl));
    text += piece;
    whole.push_back({piece, control});
    for (size_t i = 0; i < piece.size() && !control; ++i) bytes.push_back({piece.substr(i, 1)});
    if (control) bytes.push_back({piece, true});
    if (piece.size() == input.size()) break;
    input.remove_prefix(piece.size() + 1);
  }
  const Parsed a = Parse(sample, whole), b = Parse(sample, bytes);
  Require(a.joined == text && b.joined == text, "the parts of an answer are not the output");
  Require(a.answer.content == b.answer.content, "content depends on the cuts");
  Require(a.answer.reasoning == b.answer.reasoning, "thinking depends on the cuts");
  Require(std::ranges::equal(a.answer.calls, b.answer.calls, SameCall), "calls depend on the cuts");
  for (const ToolCall& call : a.answer.calls) Require(!call.name.empty(), "a call without a name");
}

std::vector<std::string> AnswerSeeds() {
  std::vector<std::string> seeds;
  for (const AnswerSample& sample : AnswerSamples()) {
    seeds.push_back(std::string(1, static_cast<char>(seeds.size())) + std::string(sample.output));
  }
  return seeds;
}

}  // namespace

const Target kAnswers = {"answers", RunAnswers, AnswerSeeds};

}  // namespace tally::fuzz
