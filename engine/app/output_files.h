// SPDX-License-Identifier: Apache-2.0
// Files that commands write: what may be replaced, and what may not.
//
// Without --force nothing that is there is replaced, but for sessions (Conversation::Save) and reports (report_files.h), each by its like
// only. An empty file counts as missing, and pipes and devices are never refused. With --force, what a command reads is still kept.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/app/command.h"
#include "engine/base/status.h"

namespace tally::app {

void AddForce(Command& command, bool& force);  // --force

// kBadInput: a file with something in it is there, and `force` is not given.
Status CheckMayReplace(const std::string& path, bool force);
// The same of all files of a folder with this extension (".npy"). A folder that is not there has none.
Status CheckMayReplaceIn(const std::string& folder, const std::string& extension, bool force);

// Of a file that `option` names, before a model is loaded. kBadInput: what CheckMayReplace refuses; `path` is a folder, is in a folder that
// is not there, is where standard output or standard error goes, is a file of `model` (a file or directory), or is one of `others`, which
// the command reads or writes itself.
Status CheckOutputFile(const std::string& option, const std::string& path, const std::string& model,
                       const std::vector<std::optional<std::string>>& others, bool force);

Status CannotWrite(const std::string& path, int error_number);

// Whether both are names of one file, which need not be there yet.
bool SameFile(const std::string& a, const std::string& b);

}  // namespace tally::app
