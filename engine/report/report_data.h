// SPDX-License-Identifier: Apache-2.0
// What a report of a run shows. Plain values; whoever has the run fills them. What is not known stays empty, and its part of the page
// is left out. Strings are text as it is: the page escapes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tally::report {

// A way of counting parameters or what they are called by: "active(head)".
struct CountedParameters {
  std::string name;
  std::string meaning;            // in a few words
  std::vector<uint64_t> counted;  // of each of ReportData::parts
};

// A part of a model, its layers together: "attention", "experts", "head".
struct ModelPart {
  std::string name;
  uint64_t parameters = 0;
};

// What one step of a run cost. FLOPs are useful ones; bytes are packed weights, KV read and KV written.
struct StepCost {
  uint64_t position = 0;  // positions that its last row sees
  uint64_t rows = 1;      // tokens
  bool decode = true;
  double seconds = 0;
  std::vector<double> flops;  // of each of ReportData::components, all rows
  std::vector<double> bytes;  // the same
  double weight_bytes = 0, kv_bytes = 0;
};

struct Metric {
  std::string name;         // "S-MBU"
  double value = 0;         // a share
  std::string meaning;      // what it says
  std::string formula;      // "(union bytes + KV) / seconds / roof"
  std::string denominator;  // "41.2 GB/s, read by 2 threads, measured"
};

// One sparse layer over the run.
struct LayerExperts {
  int64_t layer = 0;
  std::vector<uint64_t> tokens;  // routed to each expert
  double mean_union = 0;         // experts that a step touched, mean
  double expected_union = 0;     // the same where routing is uniform
};

struct MachineRoofs {
  double bytes_per_second = 0;  // 0: not measured
  struct Peak {
    std::string name;  // "int8"
    double flops_per_second = 0;
  };
  std::vector<Peak> peaks;
  std::string how;  // "measured with 2 threads before the run"
};

// Ops of one kind: a point of the roofline.
struct OpClass {
  std::string name;  // "linear int8"
  bool decode = true;
  double flops = 0, bytes = 0, seconds = 0;
};

// Ops of one place and implementation: a row of the table.
struct OpRow {
  std::string component, op, phase, implementation;
  std::string layers;  // "0-23", "-"
  uint64_t calls = 0;
  uint64_t useful = 0, executed = 0, bytes = 0;
  double seconds = 0;
};

struct ClosedForm {
  std::string name, expression;
  uint64_t value = 0;
};

struct AuditVerdict {
  uint64_t compared = 0, differing = 0;
  struct Row {
    std::string what, site, closed_form, files, run;
  };
  std::vector<Row> rows;  // those that differ
};

struct Headline {
  std::string name, value;
  std::string note = {};  // what it is
};

struct ReportData {
  std::string model;                 // "gpt-oss-20b"
  std::string run;                   // its name where several are compared: the file that it came from
  std::vector<std::string> facts;    // a line each: what was run, where
  std::vector<Headline> headlines;   // the figures that are read first
  std::vector<std::string> symbols;  // "L = 24 layers", of the closed forms

  std::vector<ModelPart> parts;
  std::vector<CountedParameters> conventions;
  std::vector<std::string> components;  // of StepCost
  std::vector<StepCost> steps;
  std::vector<Metric> metrics;
  std::vector<LayerExperts> experts;
  MachineRoofs roofs;
  std::vector<OpClass> op_classes;
  std::vector<OpRow> ops;
  std::vector<ClosedForm> closed_forms;
  std::optional<AuditVerdict> audit;
};

}  // namespace tally::report
