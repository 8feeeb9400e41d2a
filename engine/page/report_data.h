// SPDX-License-Identifier: Apache-2.0
// What a report of a run shows: plain figures and names, made by the studies (report.h) and drawn by page.h.
//
// Counts are exact. "Useful" is what the mathematics needs, "executed" what the kernels did. Bytes are those of useful work. Nanoseconds
// are time in the ops: what lies between them (charging, recording, sampling) is excluded. Lists that are parallel to `components`,
// `ops`, `classes` or `byte_kinds` have as many entries, in that order. Whatever is unknown is empty, 0 where a field says so, and has
// a line in `absent`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

// Ways to count parameters. kTouchedDecode: read by a decode step, summed over the decode steps (divide by ReportData::decode_steps for
// the mean); kTouchedRun: read by any step.
enum class ReportConvention : uint8_t { kTotal, kActiveAll, kActiveHead, kActiveNone, kTouchedDecode, kTouchedRun };
inline constexpr size_t kReportConventions = 6;
inline constexpr std::array<std::string_view, kReportConventions> kReportConventionNames = {
    "total", "active(all)", "active(head)", "active(none)", "touched per decode step", "touched in the run"};
inline constexpr std::array<std::string_view, kReportConventions> kReportConventionMeanings = {
    "every element of a learned tensor",
    "what one token uses; embedding, learned positions and head counted",
    "what one token uses; the head counted, embedding and learned positions not",
    "what one token uses; embedding, learned positions and head not counted",
    "what a decode step reads, mean of the steps",
    "what any step read"};
using ReportParameters = std::array<uint64_t, kReportConventions>;  // by ReportConvention

// Learned tensors of one component, all layers together.
struct ReportComponent {
  std::string name;  // "attn.q"
  std::string part;  // "embedding", "attention projections", "feed-forward", "experts", "router", "norms", "head"
  uint64_t tensors = 0;
  ReportParameters parameters = {};  // they add up to ReportData::parameters
  uint64_t stored_bytes = 0, packed_bytes = 0;
  bool operator==(const ReportComponent&) const = default;
};

struct ReportWork {
  uint64_t flops = 0, special = 0;  // useful
  uint64_t executed_flops = 0, executed_special = 0;
  std::vector<uint64_t> bytes = {};  // parallel to byte_kinds
  uint64_t ns = 0;
  bool operator==(const ReportWork&) const = default;
};

// One step of the engine.
struct ReportStep {
  uint64_t number = 0;  // from 0
  std::string phase;    // "prefill", "decode", "mixed"
  uint64_t rows = 0, logit_rows = 0;
  uint64_t context = 0;  // positions of the longest sequence after the step
  uint64_t parameters_touched = 0;
  ReportWork all = {};
  std::vector<ReportWork> by_component = {};           // parallel to components
  std::vector<uint64_t> flops_by_class = {};           // parallel to classes; useful
  std::vector<uint64_t> executed_flops_by_class = {};  // the same, executed
  std::vector<uint64_t> ns_by_op = {};                 // parallel to ops
  uint64_t taken_back = 0;                             // of the rows: drafts that were not accepted
  uint64_t span_ns = 0;  // with experts read from disk: from its first op to its last, waiting included
  bool operator==(const ReportStep&) const = default;
};

// Steps of one phase together.
struct ReportPhase {
  std::string name;  // "prefill", "decode", "mixed"
  uint64_t steps = 0, rows = 0;
  ReportWork all = {};
  bool operator==(const ReportPhase&) const = default;
};

// One sparse layer.
struct ReportExperts {
  int32_t layer = 0;
  uint64_t experts = 0, top_k = 0;
  std::vector<uint64_t> tokens = {};  // routed to each expert in the run
  struct Union {
    uint64_t step = 0, rows = 0;
    uint64_t used = 0;    // experts that the step's rows used
    double expected = 0;  // with uniform routing: E (1 - (1 - k/E)^rows)
    bool operator==(const Union&) const = default;
  };
  std::vector<Union> unions = {};  // of each step
  uint64_t run_union = 0;          // experts used in the run
  double run_expected = 0;         // the same formula for all rows of the run
  uint64_t expert_bytes = 0;       // stored bytes of one expert, all its tensors
  // Of a model that reads experts from disk: those that may be in memory, 0 if all always are; an expert's bytes on disk; what the steps
  // found in memory, and what they read.
  uint64_t slots = 0, record_bytes = 0;
  struct Read {
    uint64_t step = 0, hits = 0, misses = 0;
    uint64_t first_uses = 0;  // of the misses: never read before
    bool operator==(const Read&) const = default;
  };
  std::vector<Read> reads = {};
  bool operator==(const ReportExperts&) const = default;
};

// What the machine can do at most, as measured.
struct ReportRoofs {
  bool known = false;
  int threads = 0;
  double read = 0;  // bytes per second
  struct Peak {
    std::string type;       // "f32", "bf16", "int8"
    double per_second = 0;  // operations
    bool operator==(const Peak&) const = default;
  };
  std::vector<Peak> peaks = {};  // of the types that the machine has
  std::string how;               // "measured on this machine, kept since its start"
  bool operator==(const ReportRoofs&) const = default;
};

// value = numerator / seconds / denominator; seconds: the time in the ops of the phase.
struct ReportMetric {
  std::string name;          // "S-MBU"
  std::string phase;         // "decode"
  std::string source;        // "MoE-CAP, arXiv 2412.07067"
  std::string meaning;       // one sentence
  std::string formula;       // in words: "(weights read once a step + KV read and written) / time / read bandwidth"
  std::string with_numbers;  // "1,234 bytes / 0.5 s / 45.2 GB/s"
  bool bytes = false;        // of the numerator: bytes, else FLOPs
  double numerator = 0, seconds = 0;
  double denominator = 0;            // per second
  std::string denominator_name;      // the roof: "read bandwidth", "peak of the mix: 93 % int8, 7 % f32"
  std::optional<double> value = {};  // nullopt: the roof or the time is unknown
  bool operator==(const ReportMetric&) const = default;
};

// A class of ops in one phase: a point of the roofline and a bar of time by op.
struct ReportOpClass {
  std::string phase, op;  // "decode", "matmul"
  uint64_t runs = 0;
  ReportWork work = {};
  uint64_t bytes = 0;     // weights packed, KV, activations
  double intensity = 0;   // useful FLOPs / bytes; 0: no FLOPs or no bytes
  double per_second = 0;  // useful FLOPs / second; 0: no time
  double peak = 0;        // operations per second of its mix of types at the roofs; 0: unknown
  std::string peak_name;  // "int8", "f32", "int8 97 %, f32 3 %"
  bool operator==(const ReportOpClass&) const = default;
};

// A row of the table to sort and filter: one op of one component in one layer and phase.
struct ReportRow {
  std::string phase;
  int32_t layer = -1;  // -1: outside the layers
  std::string component, op, implementation;
  std::string types;  // of activations and weights: "int8 x MXFP4"
  uint64_t runs = 0;
  ReportWork work = {};
  bool operator==(const ReportRow&) const = default;
};

// A closed form.
struct ReportForm {
  std::string group;    // "parameters", "FLOPs of a decode token", ...
  std::string name;     // "attn_q"
  std::string formula;  // "H D E"
  uint64_t value = 0;
  uint64_t times = 1;  // layers that have it
  bool operator==(const ReportForm&) const = default;
};
struct ReportSymbol {
  std::string name, meaning;
  uint64_t value = 0;
  bool operator==(const ReportSymbol&) const = default;
};

// The comparison of closed form, checkpoint and ledger.
struct ReportAudit {
  uint64_t compared = 0, differing = 0;  // rows
  bool pages = false;                    // the pages that were touched were compared too (AuditOptions::mmu)
  struct Row {
    std::string step, account, where, formula;
    std::string closed, checkpoint, ledger;  // figures; empty: that account has none
    bool operator==(const Row&) const = default;
  };
  std::vector<Row> rows = {};  // those that differ, the first few
  bool operator==(const ReportAudit&) const = default;
};

// What `bench` measured.
struct ReportSpeed {
  std::string work;  // "prefill", "decode"
  int threads = 0;
  std::string kv;
  int64_t depth = 0, batch = 1, tokens = 0;
  double tokens_per_second = 0, least = 0, most = 0;  // median and range of the rounds
  double of_roof = 0;                                 // 0: unknown
  std::string roof;                                   // "read bandwidth", "arithmetic peak"
  bool operator==(const ReportSpeed&) const = default;
};

struct ReportFact {
  std::string name, value;  // "KV cache", "f16"
  bool operator==(const ReportFact&) const = default;
};

struct ReportData {
  std::string title;                   // the model as it was named
  std::string description;             // "gpt-oss, 24 layers, MXFP4 + BF16, 12.8 GiB"
  std::string source;                  // "tally run", or the path of a ledger file
  std::string version;                 // of Tally: "0.2.0"
  std::string date;                    // of the run, UTC: "2026-11-25 08:00"
  std::string machine;                 // processor: "AMD EPYC 9R14"
  std::string target;                  // instruction set of the kernels
  int threads = 0;                     // 0: unknown
  std::vector<ReportFact> facts = {};  // more about the run, to be shown as a list

  // The names that lists are parallel to; only those that occur.
  std::vector<ReportComponent> components = {};  // in the order of a forward pass
  std::vector<std::string> ops = {};             // "matmul"
  std::vector<std::string> classes = {};         // classes of work: "linear"
  std::vector<std::string> byte_kinds = {};      // all: "weights stored", "weights packed", "KV read", ...

  bool has_parameters = false;
  ReportParameters parameters = {};
  bool tied = false;     // embedding and head are one matrix
  uint64_t not_run = 0;  // parameters that are stored and not run, in no other figure
  std::string not_run_names = {};

  std::vector<ReportPhase> phases = {};
  std::vector<ReportStep> steps = {};
  uint64_t decode_steps = 0;
  std::vector<ReportExperts> experts = {};  // empty: no sparse layer
  ReportRoofs roofs = {};
  std::vector<ReportMetric> metrics = {};
  std::vector<ReportOpClass> op_classes = {};
  std::vector<ReportRow> rows = {};
  std::vector<ReportForm> forms = {};
  std::vector<ReportSymbol> symbols = {};
  std::optional<ReportAudit> audit = {};
  std::vector<ReportSpeed> speed = {};
  std::vector<std::string> absent = {};  // sentences: what the source does not hold
  bool operator==(const ReportData&) const = default;
};

}  // namespace tally
