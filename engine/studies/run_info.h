// SPDX-License-Identifier: Apache-2.0
// What the records of a run's ops do not say: the model, its tensors and closed forms, the machine and its roofs. The first line of a
// ledger file has it ("run"), so that a report can be made of the file alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "counters/cost/site.h"
#include "engine/base/export.h"
#include "engine/page/report_data.h"
#include "engine/session/engine.h"
#include "engine/studies/fit.h"
#include "engine/studies/speed.h"

namespace tally {

struct RunInfo {
  bool known = false;            // false: of a ledger file that does not say; all the rest is empty
  std::string command = {};      // "run"
  std::string model = {};        // as named by the user
  std::string description = {};  // Model::Description
  std::string version = {};      // of Tally
  std::string date = {};         // UTC, "2026-11-25 08:00"
  std::string machine = {};      // processor
  std::string target = {};       // instruction set of the kernels
  int32_t threads = 0;
  std::string kv = {};           // type of the KV cache
  uint64_t context = 0;          // positions that a sequence may have
  uint64_t attention_width = 0;  // H D, the elements of a layer's queries, added up over the layers that attend
  uint64_t n_experts = 0, top_k = 0;
  uint64_t not_run = 0;  // parameters that are stored and not run
  std::string not_run_names = {};
  std::vector<WeightInfo> weights = {};  // the ledger's table; touches of records are indices into it
  std::vector<ReportForm> forms = {};
  std::vector<ReportSymbol> symbols = {};
  ReportRoofs roofs = {};
  std::vector<std::string> absent = {};  // why something above is missing
};

// Arithmetic of FLOPs, by FitUnit, as a report names it.
inline constexpr std::array<std::string_view, kFitUnits> kReportUnits = {"f32", "bf16", "int8", "int8 with weights of 4 bits"};

// Of an engine that is about to run, now. `roofs` are left unknown.
TALLY_API RunInfo DescribeRun(Engine& engine, const std::string& command, const std::string& model, const std::string& version);

// The symbols of a model's closed forms and their values. `context`: that of S; 0: without it.
TALLY_API std::vector<ReportSymbol> SymbolsOf(const Recipe& recipe, uint64_t context);

// A machine's rates as a report names them; `how` says where they are from.
TALLY_API ReportRoofs RoofsOf(const FitMachine& machine, const std::string& how);
// Those that were measured beside a bench; types without a peak there are missing.
TALLY_API ReportRoofs RoofsOf(const MeasuredRoofs& roofs);

}  // namespace tally
