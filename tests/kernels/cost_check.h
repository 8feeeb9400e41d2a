// SPDX-License-Identifier: Apache-2.0
// What every op charges as useful, beside what can be counted without its formulas: the operations that its scalar reference does
// (support/counting_scalar.h), told apart by class, and the bytes of its operands, weights and cache.
#pragma once

#include <functional>
#include <string>

namespace tally {

// Runs over a sweep of shapes, types, windows, depths and top-k. `differs` is told each figure that is not what was counted; where
// it returns false the sweep ends. Gives the number of figures compared.
// With `linear`, costs must also be linear in the amounts, useful and executed.
int CheckCosts(const std::function<bool(const std::string&)>& differs, bool linear = true);

}  // namespace tally
