// SPDX-License-Identifier: Apache-2.0
// The witness from outside: a library for LD_PRELOAD that stands between a program and MPI (MPI 3.1, chapter 14, "Tool Support") and
// counts the bytes that the program asks MPI to move, by the arguments of its calls. At MPI_Finalize it writes "rank sent received\n" to
// $TALLY_WITNESS.RANK. Calls that move data and are not counted here end the program: nothing passes by it.
//
// Counted as the ledger counts: an all-gather sends own bytes x (ranks - 1) and receives all bytes - own; a gather to a root sends own,
// or receives all - own; a broadcast sends bytes x (ranks - 1) from its root, and is received by the others.
#include <dlfcn.h>
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

uint64_t sent = 0, received = 0;

uint64_t Bytes(int count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  return static_cast<uint64_t>(count) * static_cast<uint64_t>(size);
}

struct Group {
  explicit Group(MPI_Comm comm) {
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &ranks);
  }
  uint64_t others() const { return static_cast<uint64_t>(ranks - 1); }
  uint64_t All(const int* counts, MPI_Datatype type) const {
    uint64_t all = 0;
    for (int r = 0; r < ranks; ++r) all += Bytes(counts[r], type);
    return all;
  }
  int rank = 0, ranks = 1;
};

[[noreturn]] void Refuse(const char* call) {
  std::fprintf(stderr, "witness: %s is not counted\n", call);
  std::abort();
}

}  // namespace

extern "C" {

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  sent += Bytes(count, type);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  received += Bytes(count, type);
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Iallgatherv(const void* own, int count, MPI_Datatype type, void* all, const int* counts, const int* places,
                    MPI_Datatype all_type, MPI_Comm comm, MPI_Request* request) {
  const Group group(comm);
  const uint64_t mine = Bytes(counts[group.rank], all_type);
  sent += mine * group.others();
  received += group.All(counts, all_type) - mine;
  return PMPI_Iallgatherv(own, count, type, all, counts, places, all_type, comm, request);
}

int MPI_Igatherv(const void* own, int count, MPI_Datatype type, void* all, const int* counts, const int* places,
                 MPI_Datatype all_type, int root, MPI_Comm comm, MPI_Request* request) {
  const Group group(comm);
  if (group.rank == root) {
    received += group.All(counts, all_type) - Bytes(counts[root], all_type);
  } else {
    sent += Bytes(count, type);
  }
  return PMPI_Igatherv(own, count, type, all, counts, places, all_type, root, comm, request);
}

int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  const Group group(comm);
  (group.rank == root ? sent : received) += Bytes(count, type) * (group.rank == root ? group.others() : 1);
  return PMPI_Ibcast(data, count, type, root, comm, request);
}

int MPI_Finalize() {
  if (const char* const file = std::getenv("TALLY_WITNESS")) {  // NOLINT(concurrency-mt-unsafe)
    const Group group(MPI_COMM_WORLD);
    if (FILE* const out = std::fopen((std::string(file) + "." + std::to_string(group.rank)).c_str(), "w")) {
      std::fprintf(out, "%d %llu %llu\n", group.rank, static_cast<unsigned long long>(sent),
                   static_cast<unsigned long long>(received));
      std::fclose(out);
    }
  }
  return PMPI_Finalize();
}

// Other ways to move data. Their arguments do not matter.
#define TALLY_REFUSED(name)                                                    \
  __attribute__((visibility("default"))) void name##_refused() __asm__(#name); \
  void name##_refused() { Refuse(#name); }
TALLY_REFUSED(MPI_Send)
TALLY_REFUSED(MPI_Ssend)
TALLY_REFUSED(MPI_Bsend)
TALLY_REFUSED(MPI_Rsend)
TALLY_REFUSED(MPI_Issend)
TALLY_REFUSED(MPI_Ibsend)
TALLY_REFUSED(MPI_Irsend)
TALLY_REFUSED(MPI_Recv)
TALLY_REFUSED(MPI_Mrecv)
TALLY_REFUSED(MPI_Imrecv)
TALLY_REFUSED(MPI_Sendrecv)
TALLY_REFUSED(MPI_Sendrecv_replace)
TALLY_REFUSED(MPI_Send_init)
TALLY_REFUSED(MPI_Recv_init)
TALLY_REFUSED(MPI_Bcast)
TALLY_REFUSED(MPI_Gather)
TALLY_REFUSED(MPI_Gatherv)
TALLY_REFUSED(MPI_Igather)
TALLY_REFUSED(MPI_Scatter)
TALLY_REFUSED(MPI_Scatterv)
TALLY_REFUSED(MPI_Allgather)
TALLY_REFUSED(MPI_Allgatherv)
TALLY_REFUSED(MPI_Iallgather)
TALLY_REFUSED(MPI_Alltoall)
TALLY_REFUSED(MPI_Alltoallv)
TALLY_REFUSED(MPI_Ialltoallv)
TALLY_REFUSED(MPI_Alltoallw)
TALLY_REFUSED(MPI_Reduce)
TALLY_REFUSED(MPI_Allreduce)
TALLY_REFUSED(MPI_Iallreduce)
TALLY_REFUSED(MPI_Put)
TALLY_REFUSED(MPI_Get)
TALLY_REFUSED(MPI_Win_create)
TALLY_REFUSED(MPI_Win_allocate)
TALLY_REFUSED(MPI_Win_allocate_shared)

}  // extern "C"
