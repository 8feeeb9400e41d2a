// What every op charges as useful, beside what can be counted without its formulas: the operations that its scalar reference does
// (support/counting_scalar.h), told apart by class, and the bytes of its operands, weights and cache.
#pragma once

#include <functional>
#include <string>

namespace tally {

// Runs over a sweep of shapes, types, windows, depths and top-k. `differs` is told each figure that is not what was counted; where
// it returns false the sweep ends. Gives the number of figures compared.
// With `keys`, ops whose keys (CostKey) are equal must have equal costs too, useful and executed.
int CheckCosts(const std::function<bool(const std::string&)>& differs, bool keys = true);

}  // namespace tally
