// SPDX-License-Identifier: Apache-2.0
// The transport by MPI (MPI Forum 2015, "MPI: A Message-Passing Interface Standard", version 3.1). All bytes go by MPI_Isend and MPI_Irecv
// between the ranks that give and take them. So MPI's profiling interface counts exactly what was asked for, and a wait knows its rank,
// which a collective does not tell. On two ranks of one machine that is as fast as MPI_Allgatherv (docs/mpi.md).
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "engine/machine/communicator_plugin.h"

namespace {

// Bytes of one message. MPI counts in ints. Over TCP, Open MPI asks the receiver before it sends more than btl_tcp_eager_limit, and the
// answer waits behind what the receiver sends itself: if both sides send, as in an all-gather, that halves the bandwidth (docs/mpi.md). So
// messages to other hosts are no longer than the limit, which is raised; a variable or option of the user's stays.
#ifdef TALLY_MPI_PIECE  // of tests
constexpr uint64_t kNear = TALLY_MPI_PIECE, kFar = TALLY_MPI_PIECE;
#else
constexpr uint64_t kNear = uint64_t{1} << 30, kFar = 258048;
#endif
constexpr const char* kEagerBytes = "262144";  // kFar and Open MPI's header
constexpr const char* kEagerVariables[] = {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit",
                                           "OMPI_MCA_btl_tcp_max_send_size"};
constexpr int kTag = 1;

// MPI is one to a process, and so is this.
struct State {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<MPI_Request> requests;  // of transfers that were begun and not seen to end
  std::vector<bool> near;             // whether a rank shares this one's host
  std::vector<int> peers;             // of each request: the rank, or -1 - rank for a sending
  std::vector<int> ended;             // scratch of test()
  std::string error, library;
};
State state;

int Check(int code, const char* call) {
  if (code == MPI_SUCCESS) return 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  state.error = std::string(call) + ": " + text;
  return 1;
}

int Fail(const char* text) {
  state.error = text;
  return 1;
}

// Which ranks share this rank's memory, and the lowest of them. No messages of ours.
int FindNode(int ranks, int* node) {
  MPI_Comm local = MPI_COMM_NULL;
  if (Check(MPI_Comm_split_type(state.comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local), "MPI_Comm_split_type")) return 1;
  MPI_Group here = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
  std::vector<int> every(static_cast<size_t>(ranks)), place(every.size(), MPI_UNDEFINED);
  std::iota(every.begin(), every.end(), 0);
  const bool failed =
      Check(MPI_Comm_group(local, &here), "MPI_Comm_group") != 0 ||
      Check(MPI_Comm_group(state.comm, &all), "MPI_Comm_group") != 0 ||
      Check(MPI_Group_translate_ranks(all, ranks, every.data(), here, place.data()), "MPI_Group_translate_ranks") != 0;
  for (const int p : place) state.near.push_back(p != MPI_UNDEFINED);
  *node = static_cast<int>(std::find(state.near.begin(), state.near.end(), true) - state.near.begin());
  if (here != MPI_GROUP_NULL) MPI_Group_free(&here);
  if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
  MPI_Comm_free(&local);
  return failed ? 1 : 0;
}

int Start(int* rank, int* ranks, int* node) {
  for (const char* name : kEagerVariables) ::setenv(name, kEagerBytes, 0);  // NOLINT(concurrency-mt-unsafe): the caller waits
  int provided = 0;
  if (Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread")) return 1;
  if (provided < MPI_THREAD_SERIALIZED) return Fail("this MPI library takes calls from its first thread only");
  if (Check(MPI_Comm_dup(MPI_COMM_WORLD, &state.comm), "MPI_Comm_dup")) return 1;
  MPI_Comm_set_errhandler(state.comm, MPI_ERRORS_RETURN);
  if (Check(MPI_Comm_rank(state.comm, rank), "MPI_Comm_rank") || Check(MPI_Comm_size(state.comm, ranks), "MPI_Comm_size"))
    return 1;
  return FindNode(*ranks, node);
}

template <class Begin>
int InPieces(int rank, int peer, uint64_t bytes, Begin begin) {
  const uint64_t longest = state.near[static_cast<size_t>(rank)] ? kNear : kFar;
  uint64_t at = 0;
  do {  // an empty transfer is a message, too
    const uint64_t piece = std::min(bytes - at, longest);
    state.requests.push_back(MPI_REQUEST_NULL);
    state.peers.push_back(peer);
    if (begin(at, static_cast<int>(piece), &state.requests.back())) return 1;
    at += piece;
  } while (at < bytes);
  return 0;
}

int Send(int rank, const void* data, uint64_t bytes) {
  return InPieces(rank, -1 - rank, bytes, [&](uint64_t at, int count, MPI_Request* request) {
    return Check(MPI_Isend(static_cast<const char*>(data) + at, count, MPI_BYTE, rank, kTag, state.comm, request), "MPI_Isend");
  });
}

int Receive(int rank, void* data, uint64_t bytes) {
  return InPieces(rank, rank, bytes, [&](uint64_t at, int count, MPI_Request* request) {
    return Check(MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, rank, kTag, state.comm, request), "MPI_Irecv");
  });
}

int Test(int* done) {
  const int n = static_cast<int>(state.requests.size());
  *done = 1;
  if (n == 0) return 0;
  if (Check(MPI_Testall(n, state.requests.data(), done, MPI_STATUSES_IGNORE), "MPI_Testall")) return 1;
  if (*done != 0) {
    state.requests.clear();
    state.peers.clear();
  }
  return 0;
}

int Silent() {
  const int n = static_cast<int>(state.requests.size());
  state.ended.resize(state.requests.size());
  int ended = 0;
  if (n == 0 || MPI_Testsome(n, state.requests.data(), &ended, state.ended.data(), MPI_STATUSES_IGNORE) != MPI_SUCCESS) return -1;
  int sending = -1;
  for (int i = 0; i < n; ++i) {
    const int peer = state.peers[static_cast<size_t>(i)];
    if (state.requests[static_cast<size_t>(i)] == MPI_REQUEST_NULL) continue;
    if (peer >= 0) return peer;
    if (sending < 0) sending = -1 - peer;
  }
  return sending;
}

int Finish() {
  if (Check(MPI_Comm_free(&state.comm), "MPI_Comm_free")) return 1;
  return Check(MPI_Finalize(), "MPI_Finalize");
}

void Abort(int exit_code) { MPI_Abort(MPI_COMM_WORLD, exit_code); }

const char* Error() { return state.error.c_str(); }

const char* Library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  state.library.assign(text, static_cast<size_t>(std::max(length, 0)));
  return state.library.c_str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const TallyTransport* TallyTransportV1() {
  static const TallyTransport transport = {
      TALLY_TRANSPORT_VERSION, Start, Send, Receive, Test, Silent, Finish, Abort, Error, Library};
  return &transport;
}
