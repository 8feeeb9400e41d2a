// The public interface: load a checkpoint (model.h), tokenize, step (engine.h), generate (generate.h), read the ledger (ledger.h); the
// figures of a run (summary.h), logits (logits.h, npy.h), counting (count.h), auditing (audit.h), a look into files (inspect.h),
// measuring (speed.h) and random checkpoints (synth.h).
//
// Errors are values (Status, Result: status.h); nothing here throws, prints or exits. What the standard library throws when
// memory is out passes through; what is large (weights, KV cache, activations, logits) is allocated otherwise, and is an error
// where it fails. Bad files, options and requests are kBadInput with one line that says what was expected; kInternal is a defect
// of ours; kInterrupted is the answer to a callback that asked to stop.
//
// Ownership: what is returned by value or smart pointer is the caller's; references, spans and views stay their owner's and say
// until when they hold. A null callback is one that is not called. Callbacks run on the calling thread, between ops, and must not
// call the engine they were called from; an exception of theirs leaves the engine fit only to be destroyed.
//
// Threads: a Model and its Tokenizer do not change after loading: any number of threads may use them at once. An Engine (its KV
// cache, scratch and ledger) belongs to one caller at a time; different engines may run at the same time, of one model or of
// several, and give the bits they give alone. After fork() the child may not use what its parent made. Each runs its ops on
// LoadOptions::threads threads, kept by the runtime for the calling thread and shared by all engines that it calls: callers that
// run side by side divide the cores between them.
#pragma once

#include "engine/session/engine.h"
#include "engine/session/generate.h"
#include "engine/session/model.h"
#include "engine/studies/audit.h"
#include "engine/studies/count.h"
#include "engine/studies/inspect.h"
#include "engine/studies/logits.h"
#include "engine/studies/speed.h"
#include "engine/studies/summary.h"
#include "engine/studies/synth.h"
#include "loaders/npy.h"
