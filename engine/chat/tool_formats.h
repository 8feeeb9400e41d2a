// SPDX-License-Identifier: Apache-2.0
// What models other than gpt-oss write as an answer: thinking between two marks, tool calls between others, the rest is content.
// Which marks, and how a call is written between them, is found in the text of the chat template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/chat_format.h"
#include "engine/chat/output.h"

namespace tally {

struct CallFormat;     // call_format.h
struct ThinkingMarks;  // call_format.h

// Rows of the tables in tool_formats.cc.
struct AnswerSyntax {
  const CallFormat* calls = nullptr;
  const ThinkingMarks* thinking = nullptr;
};

// By the marks that the template uses. A template without any mark of calls gives a syntax without calls; thinking is then still
// looked for, between <think> and </think>: fine-tuned models think under the template of the model that they came from.
AnswerSyntax DetectAnswerSyntax(std::string_view template_text);

// What may stand before the content of an answer that follows `prompt`.
AnswerStart StartOfAnswer(const AnswerSyntax& syntax, std::string_view prompt);

// How calls are written in each section, as the templates do. `json`: as JSON of name and arguments, which every section takes, where a
// section's own notation is another. None: calls are not known.
std::vector<CallNotation> CallNotationsOf(const AnswerSyntax& syntax, bool json);

// Whose calls: "Qwen/Hermes", "Mistral"; "none".
std::string_view AnswerSyntaxName(const AnswerSyntax& syntax);
bool KnowsCalls(const AnswerSyntax& syntax);  // false for "none"

// A parser of the answer that follows `prompt`, which was made with `tools` (ChatRequest). A prompt that ends with the mark that begins
// thinking or calls, white space aside, has begun it.
//
// Content and thinking come out at once, but for white space and what may be the beginning of a mark. A call comes out as soon as
// its name is read; until then it is held back.
//   - Marks are marks as control tokens and as text, however the text is cut. A control token that is in no mark of the format is
//     kMark and ends a call that is open.
//   - White space at the beginning of an answer is content unless a mark follows. Between a mark and the first content it is
//     kMark up to its last line feed, all of it if it has none: the indent of a first line is content. Other white space on either side
//     of a mark is kMark, but for what stands before content that goes on behind a mark. All other white space is content or thinking.
//   - Marks of thinking count only where an answer begins and next to another mark; elsewhere they are content. Thinking ends at its
//     end mark: calls before that are prose. Where the output ends without it, the first complete call ends the thinking. So thinking
//     from a call on is held back. (Apertus calls while it thinks: there a call mark counts in thinking too.)
//   - A mark of calls after which no call follows, or none whose name can be read, is content, and so is what follows.
//   - Marks in strings and in tagged values do not end a call. A fence around JSON calls (```json) belongs to the marks.
//   - Llama's answers that are calls alone need no marks (bare_calls.h).
//   - The arguments of a call are JSON where the body is well-formed: as the model wrote it, or rewritten from the format's own
//     notation. Else, and where the call does not end, they are the rest of the body as it stands. Bare text becomes what the tool's
//     schema declares (tool_types.h).
//   - A call's id is what the format gives it, or empty.
//   - Without `calls` there are no marks of calls: they are content, as control tokens too.
std::unique_ptr<OutputParser> NewAnswerParser(const AnswerSyntax& syntax, std::string_view prompt,
                                              const std::vector<std::string>& tools, bool calls = true);

}  // namespace tally
