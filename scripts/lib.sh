# shellcheck shell=bash
# Sourced by the scripts beside it. Leaves the shell in the repository's root.
set -euo pipefail
caller_dir=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*"; }
die() {
  printf '%s\n' "$*" >&2
  exit 2
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

# All stages so far and their times.
stage_summary() {
  printf '\n'
  printf '%s\n' "${stage_times[@]}"
  printf '%6d s  in all\n' "$SECONDS"
}
