// SPDX-License-Identifier: Apache-2.0
// Options of llama.cpp, ollama and vLLM. Where they mean the same as one of ours they are taken; where they mean nothing here they are
// ignored with a word; others are refused with what to write instead. One table has them all.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/app/command.h"
#include "engine/base/status.h"
#include "engine/render/table.h"

namespace tally::app {

struct ForeignOption {
  enum class Kind { kTaken, kIgnored, kRefused };
  std::vector<std::string_view> names = {};  // with '-' where others may have '_'
  Kind kind = Kind::kTaken;
  std::string_view text = {};  // kTaken: our option; kIgnored: why it means nothing; kRefused: what to write instead
  bool value = false;          // it takes one; of kTaken ours does
  std::vector<std::string_view> may_be = {};  // kIgnored: a value that may follow, or not
  std::vector<std::string_view> of = {};      // the commands in which this holds; none: all that have no such option
  std::string_view remark = {};               // kTaken: what the table says behind our option
};
std::span<const ForeignOption> ForeignOptions();
Table ForeignOptionsTable();                   // as docs/commands.md has it
std::string ForeignOptionsText(size_t width);  // what `tally help options` prints

// `arguments` of the subcommand `command` of `app` with our names in place of others, and without those that mean nothing here, of which
// `note` is told: "-ngl is ignored: ...". Names with '_' are those with '-'. Values of options are not looked at. Done before parsing,
// which would take -hf for -h. kBadInput: an option is refused, stands for one that the command does not have, or is given twice under
// whatever names.
Result<std::vector<std::string>> TranslateOptions(const Command& app, const Command& command,
                                                  std::span<const std::string> arguments,
                                                  const std::function<void(const std::string& line)>& note);

}  // namespace tally::app
