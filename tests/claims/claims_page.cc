// SPDX-License-Identifier: Apache-2.0
// Prints docs/claims.md.
#include <cstdio>

#include "tests/claims/claims.h"

int main() { return std::fputs(tally::ClaimsPage().c_str(), stdout) < 0 ? 1 : 0; }
