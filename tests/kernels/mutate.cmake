# SPDX-License-Identifier: Apache-2.0
# cmake -DFROM=source.cc -DTO=mutants.cc -P mutate.cmake: the source with a mutant at every charge (mutate.h).
file(READ ${FROM} text)
string(REGEX REPLACE "([A-Za-z_]+)\\.(AddFlops|AddSpecial|AddBytes)\\(" "TALLY_MUTATED(\\1).\\2(" text "${text}")
file(WRITE ${TO} "#include \"tests/kernels/mutate.h\"\n#line 1 \"${FROM}\"\n${text}")
