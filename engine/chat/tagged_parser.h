// SPDX-License-Identifier: Apache-2.0
// The parser behind NewAnswerParser (tool_formats.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/call_format.h"
#include "engine/chat/call_scanner.h"
#include "engine/chat/marks.h"
#include "engine/chat/output.h"
#include "engine/chat/tool_types.h"

namespace tally {

class TaggedParser final : public OutputParser {
 public:
  // What the prompt has begun.
  enum class Begun : uint8_t { kNothing, kThinking, kSection };
  // `format` must outlive the parser.
  TaggedParser(const CallFormat& format, const Tags& thinking, Begun begun, ToolTypes types, bool calls);
  void Push(OutputPiece piece, std::vector<OutputPart>* parts) override;
  void Finish(std::vector<OutputPart>* parts) override;

 private:
  enum class State : uint8_t {
    kText,     // content or thinking
    kSection,  // where calls are, but not in one
    kCall,
    kDoubt,  // thinking, but for a call that may end it
  };
  void AddMarks();
  // Each handles the next stretch of the text; false: it takes more text to go on.
  bool Step();
  bool StepText();
  Fit TakeHeader(size_t space);
  bool StepSection();
  bool StepCall();
  bool StepDoubt();
  void EndDoubt(bool is_call);
  // What is held back can only be what it is now.
  void Settle();

  const CallSection* SectionOf(std::string_view mark) const;
  bool Leaves(std::string_view mark) const;
  void LeaveSection();
  void ShowEarly(std::string_view body);
  void EndCall(size_t size, std::optional<ToolCall> call, bool complete);

  std::string_view Rest() const { return std::string_view(text_).substr(at_); }
  OutputPart::Kind TextKind() const { return thinks_ ? OutputPart::Kind::kReasoning : OutputPart::Kind::kContent; }
  void Append(OutputPart::Kind kind, std::string_view text);
  void Take(OutputPart::Kind kind, size_t size);  // Append the next `size` bytes and go behind them
  size_t LeadingSpace() const;                    // of Rest()
  size_t SeparatingSpace(size_t space);
  void BeginFresh();

  const CallFormat& format_;
  const Tags thinking_;
  const ToolTypes types_;
  const bool calls_;
  MarkSet thinking_marks_;  // those that count next to another mark
  MarkSet content_marks_;   // those that count in content
  MarkSet thought_marks_;   // those that count in thinking
  MarkSet section_marks_;   // those that count in a section
  MarkSet thinking_end_;
  std::vector<std::string_view> all_marks_;

  std::string text_;  // from at_: what is not in a part yet, but for the shown_ bytes of a call
  size_t at_ = 0;
  State state_ = State::kText;
  bool thinks_ = false;
  bool fresh_ = true;        // kText: nothing but white space since the beginning or the last mark
  bool marked_ = false;      // a mark has come
  bool line_began_ = false;  // fresh_: a line feed has come since that mark
  // Content has come. More of it behind a mark or a call keeps the white space that it begins with: else words would grow together.
  bool has_content_ = false;

  const CallSection* section_ = nullptr;
  bool called_ = false;  // a call came in this section
  size_t lead_ = 0;      // bytes of Rest(): marks and white space that are kMark if a call follows
  std::optional<CallScanner> scanner_;
  std::optional<ToolCall> early_;  // the call of the body so far, once its name is read
  size_t shown_ = 0;               // bytes of the body that are in parts
  bool complete_call_ = false;     // one came that ended as it should

  // kDoubt: reads the text behind `space_` bytes of Rest() as if thinking had ended. It has had `tried_` bytes, and `passed_` of those are
  // certain to it.
  std::unique_ptr<TaggedParser> trial_;
  size_t space_ = 0, tried_ = 0, passed_ = 0;
  size_t searched_ = 0;  // before this byte of text_ no end mark of thinking begins

  std::vector<OutputPart>* parts_ = nullptr;  // of the Push or Finish that runs
};

}  // namespace tally
