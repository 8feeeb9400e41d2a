// SPDX-License-Identifier: Apache-2.0
// Comparisons of a model that reads weights from disk with the same that has all in memory.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "engine/studies/audit.h"
#include "tests/support/open_engine.h"
#include "tests/support/run_all.h"

namespace tally {

inline EngineOptions WithBudget(uint64_t bytes) {
  EngineOptions options = OneThread();
  options.threads = 2;
  options.weights_budget = bytes;
  return options;
}

inline Cost WithoutDisk(const Cost& cost) {
  Cost disk, rest;
  disk.AddBytes(ByteKind::kWeightsDisk, 1);
  size_t of_disk = 0;
  disk.ForEachEntry([&](size_t entry, uint64_t) { of_disk = entry; });
  cost.ForEachEntry([&](size_t entry, uint64_t n) { rest.AddEntry(entry, entry == of_disk ? 0 : n); });
  return rest;
}

// Useful and executed work by phase and site, but for what comes from disk.
using SiteFigures = std::map<std::tuple<Phase, int32_t, Component>, std::pair<std::string, std::string>>;
inline std::string TextOf(const Cost& cost) {
  std::string text;
  cost.ForEachEntry([&](size_t entry, uint64_t n) { text += std::to_string(entry) + ": " + std::to_string(n) + " "; });
  return text;
}
inline SiteFigures FiguresOf(const Ledger& ledger) {
  SiteFigures figures;
  for (int p = 0; p < kPhases; ++p) {
    for (const auto& [site, account] : ledger.sites(static_cast<Phase>(p))) {
      const std::string useful = TextOf(WithoutDisk(account.useful));
      figures[{static_cast<Phase>(p), site.layer, site.component}] = {useful, TextOf(WithoutDisk(account.executed))};
    }
  }
  return figures;
}

inline uint64_t DiskBytes(const Ledger& ledger) {
  uint64_t bytes = 0;
  for (int p = 0; p < kPhases; ++p) bytes += ledger.total(static_cast<Phase>(p)).useful.Bytes(ByteKind::kWeightsDisk);
  return bytes;
}

inline void ExpectAudit(Engine& engine) {
  AuditOptions options;
  options.prompt = {3, 22, 60, 5, 3};
  options.decode_tokens = 2;
  const auto report = Audit(engine, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->differing, 0u);
}

}  // namespace tally
