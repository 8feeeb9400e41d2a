#!/usr/bin/env bash
# Times `tally bench` and llama.cpp in turn on the same GGUF file and prints medians.
# usage: bench/peers/run_peers.sh FILE.gguf [PROMPT=512] [GENERATE=64] [ROUNDS=3] [THREADS=all cores]
#
# llama.cpp comes through npm's node-llama-cpp (version pinned in package.json; its prebuilt CPU library picks its own
# instruction set). Its wrapper costs some microseconds a call: files below about 1 GB make it look slower than it is.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

[ $# -ge 1 ] || die "usage: bench/peers/run_peers.sh FILE.gguf [PROMPT] [GENERATE] [ROUNDS] [THREADS]"
file=$(cd "$caller_dir" && realpath -e -- "$1") || die "run_peers.sh: $1: no such file"
prompt=${2:-512} generate=${3:-64} rounds=${4:-3} threads=${5:-$(nproc)}
tally=build/release/engine/tally
[ -x $tally ] || die "run_peers.sh: $tally is not built: run scripts/demo.sh first"
command -v npm >/dev/null || die "run_peers.sh: npm is not installed"
peer=node_modules/node-llama-cpp/package.json
if ! (cd bench/peers && node -e "process.exit(require('./$peer').version === require('./package.json').dependencies['node-llama-cpp'] ? 0 : 1)" 2>/dev/null); then
  # Without install scripts: they would try to build; the prebuilt library is a package of its own.
  (cd bench/peers && npm install --ignore-scripts --no-audit --no-fund --no-package-lock) >&2
fi

# A pinned core type (some environments set one) would choose OpenBLAS's kernels for another processor.
unset OPENBLAS_CORETYPE

run_tally() { printf 'tally %s\n' "$($tally bench "$file" -p "$prompt" -n "$generate" --repetitions 3 --threads "$threads" --json | tr -d '\n')"; }
run_llama_cpp() { printf 'llama.cpp %s\n' "$(node bench/peers/llama_cpp.mjs "$file" "$prompt" "$generate" 3 "$threads")"; }

say "$(basename "$file"), prompt $prompt, generate $generate, $threads threads, $rounds rounds in turn, medians of 3 in each" >&2
for ((round = 0; round < rounds; ++round)); do
  if ((round % 2 == 0)); then
    run_tally
    run_llama_cpp
  else
    run_llama_cpp
    run_tally
  fi
done | tee -a /dev/stderr | node bench/peers/medians.mjs
