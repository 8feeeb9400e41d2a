# shellcheck shell=bash
# Sourced: build_release [TARGET...] installs what is missing and builds the release preset.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

configure() {  # PRESET; CMake's own findings only where it fails. TALLY_WERROR=ON: warnings are errors
  local log=build/$1-configure.log
  mkdir -p build
  # Said each time: the build folder's cache remembers what an earlier caller, such as .ci/run, wanted.
  cmake --preset "$1" -DTALLY_WERROR="${TALLY_WERROR:-OFF}" >"$log" 2>&1 || {
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

build_release() {
  stage "install what is missing" scripts/install_deps.sh
  stage "configure (release)" configure release
  stage "build (release)" cmake --build --preset release ${1:+--target "$@"}
}
