// SPDX-License-Identifier: Apache-2.0
// The public interface: load a checkpoint (model.h), tokenize (tokenizer.h), step (engine.h) sequences (sequences.h), watch the ops that
// run (probe.h), generate (generate.h), answer many requests at once (request.h, scheduler.h), talk (conversation.h, chat_format.h),
// read the ledger (ledger.h), the figures of a run (summary.h), logits (logits.h, npy.h), counting (count.h), what fits a machine (fit.h),
// auditing (audit.h), looking into files (inspect.h), perplexity (perplexity.h), quantising (quantize.h), packed files (packed_model.h),
// measuring speed (speed.h, draft_speed.h, grammar_speed.h), reports of runs (report.h, page.h), documents, tables and screens of what
// was found (count_report.h, fit_report.h, audit_report.h, bill_report.h, ledger_report.h, training_report.h, value.h, table.h), random
// checkpoints (synth.h), models by their names on the Hugging Face hub (hub.h).
//
// Errors are values (Status, Result: status.h). The library does not throw, print or exit; only std::bad_alloc of small allocations passes
// through. Failing to allocate weights, KV cache, activations or logits is an error. Bad files, options and requests are kBadInput with one
// line that says what was expected; kNoRoom: memory, threads, disk or places are missing now, and less, or the same
// later, may work. kNotFinite: a computation gave NaN or infinity; the line names the layer and the op. kInterrupted: a callback asked to
// stop. kUnreadable: weights that are read from disk while the model runs cannot be; the step fails, and the engine goes on. kInternal: a
// defect of the library.
//
// Ownership: values and smart pointers belong to the caller. References, spans and views belong to the object that returned them; each
// function says how long they are valid. Null callbacks are not called. Callbacks run on the calling thread, between ops, and must not call
// the engine that called them. After an exception in a callback, the engine may only be destroyed.
//
// Threads: a Model and its Tokenizer do not change after loading, so any number of threads may use them at once. An Engine and its
// Conversations belong to one caller at a time. Different engines may run at the same time, on one model or several; results are the same
// bits as alone. An engine runs its ops on EngineOptions::threads threads: the caller of the function, and helpers that all engines of the
// process share. Helpers are started when an engine or a model first asks for that many, and last as long as the process. They serve one
// step at a time: engines of several threads that are stepped at the same time take turns by step, in the order in which they came; engines
// of one thread use no helpers and wait for nobody. After fork() the child must not use objects of its parent.
#pragma once

#include "engine/chat/chat_format.h"
#include "engine/grammar/grammar.h"
#include "engine/hub/hub.h"
#include "engine/page/page.h"
#include "engine/render/json.h"
#include "engine/reports/audit_report.h"
#include "engine/reports/bill_report.h"
#include "engine/reports/count_report.h"
#include "engine/reports/fit_report.h"
#include "engine/reports/ledger_report.h"
#include "engine/reports/training_report.h"
#include "engine/session/answer_calls.h"
#include "engine/session/conversation.h"
#include "engine/session/engine.h"
#include "engine/session/generate.h"
#include "engine/session/held_calls.h"
#include "engine/session/model.h"
#include "engine/session/probe.h"
#include "engine/session/request.h"
#include "engine/session/scheduler.h"
#include "engine/session/sequences.h"
#include "engine/studies/audit.h"
#include "engine/studies/claims.h"
#include "engine/studies/count.h"
#include "engine/studies/count_figures.h"
#include "engine/studies/draft_speed.h"
#include "engine/studies/fit.h"
#include "engine/studies/fit_models.h"
#include "engine/studies/grammar_speed.h"
#include "engine/studies/inspect.h"
#include "engine/studies/kept_bench.h"
#include "engine/studies/logits.h"
#include "engine/studies/packed_model.h"
#include "engine/studies/perplexity.h"
#include "engine/studies/quantize.h"
#include "engine/studies/report.h"
#include "engine/studies/run_hits.h"
#include "engine/studies/run_info.h"
#include "engine/studies/speed.h"
#include "engine/studies/streaming_forecast.h"
#include "engine/studies/summary.h"
#include "engine/studies/synth.h"
#include "loaders/npy.h"
