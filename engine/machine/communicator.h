// SPDX-License-Identifier: Apache-2.0
// Starts the communication of processes that run one model. Launchers (mpirun, srun) start the processes; the bytes go through a plug-in,
// libtally_mpi, which is loaded when there are several processes. docs/mpi.md says how it is used.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/communicator.h"
#include "engine/base/status.h"

namespace tally {

// What the environment says of a launcher.
struct Launch {
  std::string launcher;  // "Open MPI", "Slurm", "MPICH"; "": none
  int rank = 0;          // of this process
  int ranks = 1;
};
Launch DetectLaunch();

struct CommunicatorOptions {
  // Ranks of one host divide its cores: those that the launcher's daemon may use, or under Slurm those that this rank may use. true: the
  // launcher's binding stays.
  bool keep_binding = false;
};

// To be called once, before threads are started. Destroyed at the end of the program: the destructor waits for all ranks to reach it, but
// not after a failure. Null: this is the only process. If a launcher started it, it still gets its cores.
//   TALLY_MPI_PLUGIN       the plug-in's file
//   TALLY_MPI_TIMEOUT      seconds that a rank waits for another in a step, and at start; 30
//   TALLY_MPI_DELAY_US, TALLY_MPI_BANDWIDTH   a slower network, for studies (plugin_communicator.h says which)
// All but the first are rank 0's. kBadInput: several ranks and no plug-in; ranks that do not come; a variable's value.
Result<std::unique_ptr<Communicator>> StartCommunicator(const CommunicatorOptions& options = {});

// Each rank's bytes, which may differ in number, on all ranks or on rank 0 alone; the others then have none.
Result<std::vector<std::string>> GatherBytes(Communicator& ranks, std::string_view own, bool to_first = false);
// The same status on every rank: ok, or that of the lowest rank that has a failure, with its place. Waits for the ranks however long they
// take.
Status Together(Communicator& ranks, const Status& own);
// The same status on every rank: kBadInput if a fact (name, value: "tally", "0.2.0") is not the same on all.
Status AgreeOn(Communicator& ranks, std::span<const std::pair<std::string_view, std::string>> facts);
// Ends a rank that has the same failure as all others. Rank 0 reports it and calls Abort; the other ranks wait here for that.
[[noreturn]] void AwaitAbort(Communicator& ranks, int exit_code);

// An all-gather takes about latency_s + bytes received / bytes_per_s. Measured by all-gathers of 4 KB a rank, and of 1 MB or more in
// all; the first quartile's line through both. Rank 0's figures, the same on all ranks.
struct LinkSpeed {
  double latency_s = 0, bytes_per_s = 0;
};
Result<LinkSpeed> MeasureLink(Communicator& ranks);

}  // namespace tally
