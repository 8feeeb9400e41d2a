// SPDX-License-Identifier: Apache-2.0
// The command where a launcher (mpirun, srun) has started it several times: each process, a rank, has a part of the model. Rank 0 reads,
// prints and decides; the others follow, and are silent.
#pragma once

#include <string>

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
// From now on a failure is all ranks' (LoadModel and later). A rank that fails before tells the others where it ends.
void RanksAgree();
// What a rank that has followed to the end returns through the command; Report is silent about it.
Status Followed();
// What this rank is to report of a failure: it has the code, and an empty message where another rank says it.
Status BeforeReport(const Status& status);
// Ends the group, with this rank's exit code. Returns the code.
int EndRanks(int code);

}  // namespace tally::app
