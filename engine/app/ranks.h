// SPDX-License-Identifier: Apache-2.0
// The command where a launcher (mpirun, srun) has started it several times: each process, a rank, has a part of the model. Rank 0 runs
// the command. The others load and step what it tells them, and print only the error that ends the group.
#pragma once

#include <string>

#include "engine/api/tally.h"
#include "engine/base/communicator.h"
#include "engine/base/status.h"

namespace tally::app {

// Options of the commands that load a model. keep_binding: the launcher's binding of ranks to cores stays.
struct RankOptions {
  bool keep_binding = false;
  std::string split = "auto";  // kSplitNames
};
RankOptions& RankOptionsOf();

// Starts the group, if there are several ranks. kBadInput: the command does not run on several; errors of the start.
Status StartRanks(const std::string& command);
// Null: this is the only process.
Communicator* Ranks();
bool IsFollower();  // a rank, and not the first
// Of rank 0, before it loads a model: the others load it too, and follow its engines.
Status TellRanks(const std::string& model, const EngineOptions& engine, const LoadOptions& options);
// Of the others: does what rank 0 tells, until that ends.
Status FollowRanks();
// Ends the group, with this rank's exit code. Returns the code.
int EndRanks(int code);

}  // namespace tally::app
