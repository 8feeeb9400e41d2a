// SPDX-License-Identifier: Apache-2.0
// What tally audit prints in full: tables and bars, or a JSON document.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/base/export.h"
#include "engine/render/value.h"
#include "engine/reports/claims_report.h"
#include "engine/session/model.h"
#include "engine/studies/audit.h"

namespace tally {

// What is said of a model besides its accounts, in lines of at most `width` columns: a head that is a copy, what is not run, latent
// attention, widened matrices. Empty: nothing.
TALLY_API std::string AuditNotes(const AuditReport& report, const Model& model, size_t width);

// All tables: the accounts site by site, experts, pages, bars; rows that differ and the verdict last. `claims`: null where they were not
// asked for. Lines have at most `width` columns (0: any number).
TALLY_API std::string AuditTables(const AuditReport& report, const Model& model, const std::vector<PublishedClaims>* claims,
                                  size_t width, bool colour);

// Parts of these, each empty where there is nothing to say.
TALLY_API std::string DifferencesText(const AuditReport& report, size_t most,
                                      size_t width);  // so many rows that differ, with the formula
TALLY_API std::string ClaimsVerdict(const std::vector<PublishedClaims>& claims,
                                    size_t width);                          // under which convention each figure holds
TALLY_API std::string ComparedText(uint64_t compared, uint64_t differing);  // "12,758 rows compared, all agree"
TALLY_API std::string StepsText(const AuditReport& report);                 // "5 steps, 4 decode"

// Every row of every step. `name`: as it was asked for.
TALLY_API Value AuditDocument(const std::string& name, const AuditReport& report, const Model& model,
                              const std::vector<PublishedClaims>* claims);

// The accounts, added up over sites, layers and steps; what a decode step touched; pages, experts and published figures, where there
// are; rows that differ, as many as are worth reading; the verdict in the last line. About 24 lines of at most `width` columns, 80 where
// that is 0. `description` of the model and `notes` (AuditNotes) are printed as they are. `claims`: null where they were not asked for.
TALLY_API std::string AuditScreen(const AuditReport& report, const Recipe& recipe, const std::string& description,
                                  const std::string& notes, const std::vector<PublishedClaims>* claims, size_t width);

}  // namespace tally
