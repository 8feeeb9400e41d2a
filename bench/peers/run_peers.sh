#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Times `tally bench` and llama.cpp in turn on the same GGUF file and prints medians and their ratios.
# usage: bench/peers/run_peers.sh [--beside-spin] [--depth N] FILE.gguf [PROMPT=512] [GENERATE=64] [ROUNDS=3] [THREADS=all cores]
#
# --beside-spin: both once more in each round, beside one busy loop that is bound to no core. --depth: so many tokens are in the
# KV cache before anything is timed.
# llama.cpp comes through npm's node-llama-cpp (version pinned in package.json; its prebuilt CPU library picks its own
# instruction set). Its wrapper costs some microseconds a call: files below about 1 GB make it look slower than it is.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

usage="usage: bench/peers/run_peers.sh [--beside-spin] [--depth N] FILE.gguf [PROMPT] [GENERATE] [ROUNDS] [THREADS]"
beside=() depth=0
while [[ ${1:-} == --* ]]; do
  case $1 in
    --beside-spin) beside=(spin) ;;
    --depth)
      [ $# -ge 2 ] || die "$usage"
      depth=$2
      shift
      ;;
    *) die "run_peers.sh: no option $1; $usage" ;;
  esac
  shift
done
[ $# -ge 1 ] || die "$usage"
file=$(cd "$caller_dir" && realpath -e -- "$1") || die "run_peers.sh: $1: no such file"
prompt=${2:-512} generate=${3:-64} rounds=${4:-3} threads=${5:-$(nproc)}
tally=build/release/engine/tally
[ -x $tally ] || die "run_peers.sh: $tally is not built: run scripts/test.sh first"
command -v npm >/dev/null || die "run_peers.sh: npm is not installed"
peer=node_modules/node-llama-cpp/package.json
if ! (cd bench/peers && node -e "process.exit(require('./$peer').version === require('./package.json').dependencies['node-llama-cpp'] ? 0 : 1)" 2>/dev/null); then
  # Without install scripts: they would try to build; the prebuilt library is a package of its own.
  (cd bench/peers && npm install --ignore-scripts --no-audit --no-fund --no-package-lock) >&2
fi

# A pinned core type (some environments set one) would choose OpenBLAS's kernels for another processor.
unset OPENBLAS_CORETYPE

# Each prints "ENGINE BESIDE {json}".
run_tally() {
  local json
  json=$($tally bench "$file" -p "$prompt" -n "$generate" -d "$depth" --repetitions 3 --threads "$threads" --json | tr -d '\n')
  printf 'tally %s %s\n' "$1" "$json"
}
run_llama_cpp() {
  local json
  json=$(node bench/peers/llama_cpp.mjs "$file" "$prompt" "$generate" 3 "$threads" "$depth")
  printf 'llama.cpp %s %s\n' "$1" "$json"
}

spinner=
stop_spinning() {
  [ -n "$spinner" ] || return 0
  kill "$spinner"
  wait "$spinner" 2>/dev/null || true
  spinner=
}

turn() {  # ENGINE...: alone, then beside what is asked for
  local engine with
  for with in alone "${beside[@]}"; do
    for engine in "$@"; do
      if [ "$with" = spin ]; then
        (while :; do :; done) >/dev/null &
        spinner=$!
      fi
      "run_$engine" "$with"
      stop_spinning
    done
  done
}

say "$(basename "$file"), prompt $prompt, generate $generate, depth $depth, $threads threads, $rounds rounds in turn, medians of 3 in each" >&2
{
  # Here, since this side of the pipe is a shell of its own.
  trap stop_spinning EXIT
  trap 'exit 130' INT TERM
  for ((round = 0; round < rounds; ++round)); do
    if ((round % 2 == 0)); then turn tally llama_cpp; else turn llama_cpp tally; fi
  done
} | tee -a /dev/stderr | node bench/peers/medians.mjs
