// SPDX-License-Identifier: Apache-2.0
// How a model writes calls of functions, as a grammar needs it: Grammar::FromCalls.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <string_view>

namespace tally {

// The white space between the parts of a document: none anywhere, or one space after each comma and colon, as Python's json writes.
enum class JsonSpace : uint8_t { kNone, kOne };

enum class ArgumentNotation : uint8_t {
  kJson,    // an object
  kTagged,  // each argument between its tags; strings are bare text, other values JSON
  kBraced,  // {key:value,...}: JSON whose keys have no quotes, and whose strings stand between two `quote` without escapes
  kPython,  // key=value, ...: values of JSON, but True, False and None
};

enum class CallId : uint8_t { kNone, kNumber, kNineLetters };  // letters and digits

// What an answer has where it calls: `text`, or `text`, a name and after_name.
struct CallSign {
  std::string text = {};
  bool at_beginning = false;  // of the answer, white space aside; elsewhere it is text
  bool with_name = false;
};

// Calls are `begin`, then one or more calls with `between` between them, then `end`. A call is call_begin, the name, after_name, the
// arguments, call_end. Its id, where it has one, stands behind id_begin and the name. Marks that are tokens of their own are spelled as in
// the vocabulary.
struct CallNotation {
  std::string begin = {}, end = {};
  std::string call_begin = {}, id_begin = {}, after_name = {}, call_end = {};
  CallId id = CallId::kNone;
  std::string between = {};
  CallSign sign = {};
  bool once = false;            // an answer has one call
  bool name_in_string = false;  // of JSON: what must be escaped there is
  // Stretches of any text that may come before all calls, each between these. Empty: none.
  std::string thinking_begin = {}, thinking_end = {};

  ArgumentNotation arguments = ArgumentNotation::kJson;
  JsonSpace space = JsonSpace::kOne;  // in JSON; kBraced has none
  // kTagged: an argument is key_begin KEY key_end, text_begin TEXT or json_begin VALUE, value_end.
  std::string key_begin = {}, key_end = {}, text_begin = {}, json_begin = {}, value_end = {};
  std::string quote = {};      // kBraced
  std::string text_stop = {};  // no text without escapes has it: it would end there
};

struct CallTool {
  std::string name = {};
  std::string schema = {};  // of its arguments, an object; empty: any
  // kTagged: arguments whose bare text is a string whatever it spells. Text of the others that spells a value is taken for that value.
  std::set<std::string> texts = {};
};

struct CallGrammarOptions {
  uint32_t most = std::numeric_limits<uint32_t>::max();  // calls
  // A text of the notation in bytes of the Vocabulary, where a token of its own may be spelled otherwise. None: the text.
  std::function<std::string(std::string_view)> spell = {};
};

}  // namespace tally
