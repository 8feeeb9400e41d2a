// SPDX-License-Identifier: Apache-2.0
// The interface of a plug-in that moves bytes between processes for machine/communicator.cc. It is in C, so that program and plug-in may
// come from different compilers. The plug-in moves bytes; who waits how long, and what for, is the communicator's.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TALLY_TRANSPORT_VERSION 1
#define TALLY_TRANSPORT_SYMBOL "TallyTransportV1"

// Calls come from one thread at a time. Those that return int give 0, or an error that error() describes. After an error only abort()
// is called, or nothing.
typedef struct TallyTransport {
  uint32_t version;  // TALLY_TRANSPORT_VERSION

  // Joins the group; returns when all ranks have done so. `node`: the lowest rank on this rank's host.
  int (*start)(int* rank, int* ranks, int* node);
  // Begins a transfer to or from another rank. Between two ranks, the n-th receipt gets the n-th sending, of as many bytes. The data must
  // stay in place, unchanged, until test() says that all is done.
  int (*send)(int rank, const void* data, uint64_t bytes);
  int (*receive)(int rank, void* data, uint64_t bytes);
  // Makes progress on transfers. *done: all that were begun have ended.
  int (*test)(int* done);
  // A rank that a transfer waits for, receipts first; -1: none.
  int (*silent)(void);
  // Leaves the group; returns when all ranks do so.
  int (*finish)(void);
  // Ends every process of the group with this exit code.
  void (*abort)(int exit_code);
  const char* (*error)(void);    // of the last call that failed
  const char* (*library)(void);  // "Open MPI v4.1.4, ..."
} TallyTransport;

typedef const TallyTransport* (*TallyTransportFunction)(void);

#ifdef __cplusplus
}
#endif
