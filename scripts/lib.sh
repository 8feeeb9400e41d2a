# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts beside it. Leaves the shell in the repository's root.
set -euo pipefail
caller_dir=$PWD
unset CDPATH  # it would send the next line elsewhere
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*"; }
die() {
  printf '%s\n' "$*" >&2
  exit 2
}

# sources PATTERN...: the C++ files that git does not ignore, one a line.
sources() {
  git ls-files --cached --others --exclude-standard -- "$@" | grep . || die "git ls-files names no files here: is this a clone of the repository, and its owner you?"
}

# The clang-format and clang-tidy that the tree goes by: versions disagree about details. Prints nothing where there is none.
clang_tools_version=14
find_clang_tool() {  # clang-format or clang-tidy
  local tool
  for tool in "$1-$clang_tools_version" "$1"; do
    if command -v "$tool" >/dev/null && "$tool" --version | grep "version $clang_tools_version\." >/dev/null; then
      command -v "$tool"
      return
    fi
  done
}

stage_times=()
# stage NAME COMMAND...: runs the command, says how long it took, ends the script where it fails.
stage() {
  local name=$1 start=$SECONDS rc=0
  shift
  printf '\n== %s\n' "$name"
  # Not "$@" || rc=$?, which would switch errexit off inside.
  set +e
  (
    set -e
    "$@"
  )
  rc=$?
  set -e
  stage_times+=("$(printf '%6d s  %s' $((SECONDS - start)) "$name")")
  if [ $rc -ne 0 ]; then
    printf '\n== %s: FAILED (exit code %d) after %d s\n' "$name" $rc $((SECONDS - start)) >&2
    exit $rc
  fi
}

# stage_in_time NAME COMMAND...: a stage that is left out, and named, where more than $time_limit seconds have passed.
stage_in_time() {
  if [ $SECONDS -le "$time_limit" ]; then
    stage "$@"
  else
    stage_times+=("$(printf '%8s  %s' skipped "$1")")
    printf '\n== %s: skipped, as %d s have passed\n' "$1" $SECONDS
  fi
}

# All stages so far and their times.
stage_summary() {
  printf '\n'
  printf '%s\n' "${stage_times[@]}"
  printf '%6d s  in all\n' "$SECONDS"
}

# Whether there is a clang++ that can link libFuzzer.
can_fuzz() {
  command -v clang++ >/dev/null || return 1
  printf '#include <cstddef>\nextern "C" int LLVMFuzzerTestOneInput(const unsigned char*, size_t) { return 0; }\n' |
    clang++ -x c++ -fsanitize=fuzzer -o /dev/null - 2>/dev/null
}
