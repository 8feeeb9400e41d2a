# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced: build_command and build_all install what is missing, and build the preset native (the command, for this processor alone) or
# release (all of it, for any processor).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

configure() {  # PRESET OPTION...; CMake's own findings only where it fails. TALLY_WERROR=ON: warnings are errors
  local log=build/$1-configure.log
  mkdir -p build
  # Said each time: the build folder's cache remembers what an earlier caller, such as .ci/run, wanted.
  cmake --preset "$1" -DTALLY_WERROR="${TALLY_WERROR:-OFF}" "${@:2}" >"$log" 2>&1 || {
    cat "$log" >&2
    return 1
  }
  grep -A4 -E '^CMake (Deprecation )?Warning' "$log" || true
}

skipped() {  # PRESET; what its last run of ctest skipped, with the reasons that the tests gave
  local log=build/$1/Testing/Temporary/LastTest.log
  { grep -A1 -E '^/.*: Skipped$' "$log" | grep -vE ': Skipped$|^--$'; sed -n 's/^skipped: //p' "$log"; } | sort | uniq -c |
    sed -E 's/^ *([0-9]+) /skipped \1: /' || true
}

# The command alone. Kernels are compiled once, not for each instruction set.
build_command() {
  stage "install what is missing" scripts/install_deps.sh
  stage "configure (native)" configure native
  say "$(grep -h '^-- Kernels for' build/native-configure.log | sed 's/^-- //'): this processor's alone. For any: cmake --preset release, cmake --build --preset release"
  stage "build (native)" cmake --build --preset native --target tally
}

# All of it, tests and benchmarks too.
build_all() {
  stage "install what is missing" scripts/install_deps.sh --tests
  stage "configure (release)" configure release -DTALLY_BUILD_TESTS=ON -DTALLY_BUILD_BENCH=ON
  stage "build (release)" cmake --build --preset release
}
