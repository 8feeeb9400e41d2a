// SPDX-License-Identifier: Apache-2.0
// The rows that describe how models write calls and thinking. The tables are in tool_formats.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/grammar/call_notation.h"

namespace tally {

struct Tags {
  std::string_view begin = {}, end = {};
};

struct ThinkingMarks {
  std::string_view sign = {};  // in a template that uses them
  Tags tags = {};
};

// How one call is written. JSON is understood in every section: a body that begins with '{' is JSON.
enum class CallBody : uint8_t {
  kJson,    // {"name": NAME, "arguments": {...}}
  kNamed,   // NAME, args_mark, {...}: other text up to the next mark is kept as the arguments
  kTagged,  // NAME and each argument between tags: CallTags
  kBraced,  // call:NAME{key:value, ...}: JSON with bare keys, strings between two `quote`
  kPython,  // NAME(key=value, ...)
};

// A call is name_begin NAME name_end, then arguments, then end. An argument is key_begin KEY key_end, anything, value_begin VALUE
// value_end. What stands between key_end and value_begin may say string="true", or "false" for JSON.
struct CallTags {
  std::string_view name_begin = {}, name_end = {};
  std::string_view key_begin = {}, key_end = {};
  std::string_view value_begin = {}, value_end = {};
  std::string_view end = {};    // empty: the end of the section
  bool value_on_lines = false;  // a line feed after value_begin and one before value_end belong to the tags
  bool typed = false;           // between key and value stands string="true" or "false"
  bool cdata = false;           // a value may be <![CDATA[...]]>, in which value_end may stand
  // Arguments that nest: element KEY> VALUE element /KEY>, where VALUE is text, or elements again: the members of an object, or items of a
  // list that are all called "item". Then key and value tags are empty.
  std::string_view element = {};
};

// Marks that open and close a section: a stretch in which there are calls and nothing else.
struct CallSection {
  Tags marks = {};  // no end: a section ends at the first text that is no call
  CallBody body = CallBody::kJson;
};

struct CallFormat {
  std::string_view name = {};
  std::array<std::string_view, 2> signs = {};  // all of these are in a template that uses the format
  std::array<Tags, 6> groups = {};  // around all sections, if there is such a mark: first as it is, then as models misspell it
  std::array<CallSection, 2> sections = {};  // unused ones have no begin
  std::string_view between = " \t\r\n[],";   // characters that may stand between calls: JSON and Python lists of calls are calls
  std::string_view unmarked = {};            // begins the body of a call whose section's begin is missing, as models leave it out
  std::array<std::string_view, 4> others = {};  // further marks, which belong to neither content nor calls
  Tags header = {};  // where an answer begins and next to a mark: with a word between the two a mark, too

  std::string_view args_mark = {}, id_mark = {};  // kNamed: NAME id_mark ID args_mark {...}; the id may be missing
  std::string_view name_mark = {};                // kNamed: ID name_mark NAME args_mark {...}
  std::string_view content_word = {};             // in a section, where a call may stand: what follows is content
  std::string_view type_word = {};                // kNamed: TYPE args_mark NAME, then the arguments on a line of their own
  CallId id = CallId::kNone;                      // kNamed: that a call has; with a number NAME is functions.NAME:NUMBER
  bool fenced = false;                            // kNamed: the arguments stand between lines ```json and ```
  const CallTags* tags = nullptr;                 // kTagged
  std::string_view quote = {};                    // kBraced

  bool name_is_key = false;  // JSON calls are {NAME: {...}}
  bool json_list = false;    // JSON calls are a list
  bool calls_in_thinking = false;
  bool bare = false;  // no marks are around an answer that is nothing but JSON calls or one Python list of calls: bare_calls.h
};

}  // namespace tally
