// SPDX-License-Identifier: Apache-2.0
// What writing and reading a ledger file share; internal to the studies.
#pragma once

#include <array>
#include <string_view>

namespace tally {

inline constexpr int kLedgerVersion = 2;  // raised if a field changes its meaning or is removed, not if one is added
inline constexpr std::array<std::string_view, 6> kWeightKinds = {"embedding", "position", "head", "tied embedding and head",
                                                                 "block",     "buffer"};  // by WeightInfo::Kind

}  // namespace tally
