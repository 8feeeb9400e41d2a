// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/harmony.h"
#include "engine/chat/harmony_header.h"
#include "engine/chat/json_text.h"
#include "engine/chat/marks.h"

namespace tally {
namespace {

using Kind = OutputPart::Kind;
using Opener = HarmonySection::Opener;
using Follows = HarmonySection::Follows;

constexpr std::string_view kCallToken = "<|call|>";
constexpr std::array<std::string_view, 4> kEndTokens = {"<|end|>", "<|return|>", kCallToken, "<|endoftext|>"};

bool IsJsonObject(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  return begin != text.npos && text[begin] == '{' && IsJson(text);
}

// "get_weather" of "functions.get_weather"; other names as they are.
std::string FunctionName(std::string_view recipient) {
  const size_t space = kHarmonyFunctions.size();
  if (recipient.size() > space && recipient.starts_with(kHarmonyFunctions)) recipient.remove_prefix(space);
  return std::string(recipient);
}

class HarmonyParser final : public OutputParser {
 public:
  explicit HarmonyParser(bool calls) : calls_(calls) {}
  void Push(OutputPiece piece, std::vector<OutputPart>* parts) override {
    parts_ = parts;
    if (piece.control) {
      Token(piece.text);
    } else if (in_body_) {
      BodyText(piece.text);
    } else {
      HeaderText(piece.text);
    }
  }

  void Finish(std::vector<OutputPart>* parts) override {
    parts_ = parts;
    EndMessage(false);
    BeginHeader(Opener::kStop);
  }

 private:
  enum class Body : uint8_t {
    kText,  // thinking or content
    kCall,
    kPerhapsCall,  // decided at its end; held back until then
  };

  void Emit(Kind kind, std::string_view text) {
    if (!text.empty()) parts_->push_back({.kind = kind, .text = std::string(text)});
  }

  void Token(std::string_view token) {
    if (std::find(kEndTokens.begin(), kEndTokens.end(), token) != kEndTokens.end()) {
      EndMessage(token == kCallToken);
      Emit(Kind::kMark, token);
      BeginHeader(Opener::kStop);
    } else if (token == "<|start|>") {
      EndMessage(false);
      Emit(Kind::kMark, token);
      BeginHeader(Opener::kStart);
    } else if (token == "<|channel|>") {
      if (!InHeader()) {
        EndMessage(false);
        BeginHeader(Opener::kStop);
      }
      NextSection(Opener::kChannel, token);
    } else if (token == "<|message|>" && InHeader()) {
      NextSection(Opener::kPrompt, token);
      BeginBody(/*loose=*/false);
    } else if (token == "<|constrain|>" && InHeader()) {
      NextSection(Opener::kConstrain, token);
    } else if (in_body_) {
      MarkInBody(token);
    } else {
      NextSection(opener_, token);
    }
  }

  // Or in a body that began without <|message|>, which may turn out to have been a part of the header.
  bool InHeader() const { return !in_body_ || loose_; }

  // Forgets the message before.
  void BeginHeader(Opener opener) {
    in_body_ = false;
    header_ = {};
    opener_ = opener;
  }

  void HeaderText(std::string_view text) {
    section_ += text;
    const size_t bytes = HarmonyHeaderBytes({opener_, section_, Follows::kMore}, &header_);
    if (bytes < section_.size()) BeginLooseBody(bytes);
  }

  // What follows is known: the section's text becomes a mark, up to where a body begins.
  void CloseSection(Follows follows) {
    const size_t bytes = HarmonyHeaderBytes({opener_, section_, follows}, &header_);
    if (bytes < section_.size()) return BeginLooseBody(bytes);
    Emit(Kind::kMark, section_);
    section_.clear();
  }

  // `token` goes on with the header, or goes back to it from a body that began without <|message|>.
  void NextSection(Opener opener, std::string_view token) {
    if (!in_body_) CloseSection(Follows::kToken);
    if (in_body_) EndBody(/*is_call=*/false);
    in_body_ = false;
    Emit(Kind::kMark, token);
    opener_ = opener;
  }

  void BeginBody(bool loose) {
    in_body_ = true;
    loose_ = loose;
    body_text_.clear();
    const bool for_calls = header_.channel.empty() || header_.channel == "commentary";
    body_ = header_.recipient.empty() || !calls_ ? Body::kText : for_calls && !loose ? Body::kCall : Body::kPerhapsCall;
  }

  void BeginLooseBody(size_t header_bytes) {
    const std::string section = std::exchange(section_, {});
    Emit(Kind::kMark, std::string_view(section).substr(0, header_bytes));
    BeginBody(/*loose=*/true);
    BodyText(std::string_view(section).substr(header_bytes));
  }

  Kind TextKind() const { return header_.channel == "analysis" ? Kind::kReasoning : Kind::kContent; }

  void BodyText(std::string_view text) {
    if (body_ == Body::kText) return Emit(TextKind(), text);
    body_text_ += text;
    if (body_ == Body::kCall) return Emit(Kind::kCall, text);
    if (held_.empty() || held_.back().kind == Kind::kMark) held_.push_back({.kind = Kind::kCall});
    held_.back().text += text;
  }

  void MarkInBody(std::string_view token) {
    if (body_ != Body::kPerhapsCall) return Emit(Kind::kMark, token);
    held_.push_back({.kind = Kind::kMark, .text = std::string(token)});
  }

  void EndBody(bool is_call) {
    for (OutputPart& part : held_) {
      if (part.kind == Kind::kCall && !is_call) part.kind = TextKind();
      parts_->push_back(std::move(part));
    }
    held_.clear();
    if (is_call) EmitCall();
  }

  void EmitCall() {
    ToolCall call = {.name = FunctionName(header_.recipient), .arguments = std::exchange(body_text_, {})};
    parts_->push_back({.kind = Kind::kCall, .call = std::move(call)});
  }

  // `called`: by <|call|>.
  void EndMessage(bool called) {
    if (!in_body_) CloseSection(Follows::kEnd);
    if (in_body_) {
      EndBody(body_ == Body::kCall || (body_ == Body::kPerhapsCall && (called || IsJsonObject(body_text_))));
    } else if (called && calls_ && !header_.recipient.empty()) {
      EmitCall();
    }
  }

  const bool calls_;
  std::vector<OutputPart>* parts_ = nullptr;  // of the call in progress

  HarmonyHeader header_;  // of the message in progress
  Opener opener_ = Opener::kPrompt;
  std::string section_;  // of the header, as far as it came

  bool in_body_ = false;
  bool loose_ = false;  // it began without <|message|>
  Body body_ = Body::kText;
  std::string body_text_;         // of what is a call, or may be
  std::vector<OutputPart> held_;  // of what may be a call
};

}  // namespace

std::unique_ptr<OutputParser> NewHarmonyParser(bool calls, bool continues) {
  auto parser = std::make_unique<HarmonyParser>(calls);
  if (continues) {
    std::vector<OutputPart> header;
    for (const OutputPiece piece :
         {OutputPiece{"<|channel|>", true}, OutputPiece{"final", false}, OutputPiece{"<|message|>", true}}) {
      parser->Push(piece, &header);
    }
  }
  return parser;
}

}  // namespace tally
