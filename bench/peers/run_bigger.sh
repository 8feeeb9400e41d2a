#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model that is bigger than memory: `tally bench --weights-budget` and llama.cpp with a mapped file in turn, both under the same limit of
# memory; prints medians and their ratios, and for each process what it took of the limit.
# usage: bench/peers/run_bigger.sh [--budget BYTES|auto] [--tally MODEL] [--only tally|peer] FILE.gguf LIMIT [PROMPT=512] [GENERATE=32]
#        [ROUNDS=3] [THREADS=all cores]
#
# LIMIT: 8G, 512M. --budget: of weights (auto: what Tally takes of the limit). --tally: what Tally runs instead of FILE.gguf, a packed file
# of the same shapes. --only: one of the two, where the disk has no room for both files at once.
#
# The limit is a control group's (version 1 or 2, which takes root); its largest use, the page cache included, is read back, and the script
# ends if that is more. Where no group can be made, a file in /dev/shm takes all other memory, for which swap must be off. The file's pages
# leave the page cache before each process: those that another group has read would not count.
# Both run tokens that do not depend on what came out, and do all once before they are timed. llama.cpp runs with its --no-repack
# (no_repack.c): by default it copies what it repacks, and the limit ends it.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

usage="usage: bench/peers/run_bigger.sh [--budget BYTES|auto] [--tally MODEL] [--only tally|peer] FILE.gguf LIMIT [PROMPT] [GENERATE] [ROUNDS] [THREADS]"
budget=auto model='' only=''
while [[ ${1:-} == --* ]]; do
  [ $# -ge 2 ] || die "$usage"
  case $1 in
    --budget) budget=$2 ;;
    --tally) model=$(cd "$caller_dir" && realpath -e -- "$2") || die "run_bigger.sh: $2: no such file" ;;
    --only)
      only=$2
      [[ $only == tally || $only == peer ]] || die "run_bigger.sh: --only tally or peer"
      ;;
    *) die "run_bigger.sh: no option $1; $usage" ;;
  esac
  shift 2
done
[ $# -ge 2 ] || die "$usage"
file=$(cd "$caller_dir" && realpath -e -- "$1") || die "run_bigger.sh: $1: no such file"
limit=$(numfmt --from=iec -- "${2%B}" 2>/dev/null) || die "run_bigger.sh: $2 is not a size such as 8G"
prompt=${3:-512} generate=${4:-32} rounds=${5:-3} threads=${6:-$(nproc)}
: "${model:=$file}"
tally=$PWD/build/release/engine/tally
if [ "$only" != peer ]; then
  [ -x "$tally" ] || die "run_bigger.sh: $tally is not built: run scripts/test.sh first"
  [[ $("$tally" run --help) == *--weights-budget* ]] || die "run_bigger.sh: this tally has no --weights-budget"
fi
if [ "$only" != tally ]; then
  command -v npm >/dev/null || die "run_bigger.sh: npm is not installed"
  peer=node_modules/node-llama-cpp/package.json
  if ! (cd bench/peers && node -e "process.exit(require('./$peer').version === require('./package.json').dependencies['node-llama-cpp'] ? 0 : 1)" 2>/dev/null); then
    (cd bench/peers && npm install --ignore-scripts --no-audit --no-fund --no-package-lock) >&2
  fi
fi
unset OPENBLAS_CORETYPE
no_repack=''
if [ "$only" != tally ]; then
  no_repack=$(mktemp --suffix=.so)
  trap 'rm -f "$no_repack"' EXIT
  "${CC:-cc}" -O1 -shared -fPIC -o "$no_repack" bench/peers/no_repack.c -ldl
fi

# ---- the limit

group='' held=/dev/shm/tally-bigger.$$
one=/sys/fs/cgroup/memory/tally-bigger.$$ two=/sys/fs/cgroup/tally-bigger.$$
trap release EXIT
release() {
  rm -f "$held" "$no_repack"
  [ -z "$group" ] || rmdir "$group" 2>/dev/null || true
}
if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ] && mkdir $one 2>/dev/null; then
  kind=1 group=$one
elif grep -qw memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null && mkdir $two 2>/dev/null && [ -e $two/memory.max ]; then
  kind=2 group=$two
else
  rmdir $two 2>/dev/null || true
  kind=0
  [ "$(awk '/^SwapTotal/ {print $2}' /proc/meminfo)" -eq 0 ] || die "run_bigger.sh: no control group can be made here, and with swap nothing else limits memory"
fi

# Prints what the process took. Of a group the kernel keeps the largest use, the page cache included.
used() {
  case $kind in
    1) say "limit $limit, largest use $(cat $one/memory.max_usage_in_bytes)" ;;
    2) say "limit $limit, largest use $(cat $two/memory.peak 2>/dev/null || echo unknown)" ;;
    0) say "limit $limit by a file of $(stat -c %s "$held") bytes in /dev/shm; $(awk '/^MemAvailable/ {printf "%.0f", $2 * 1024}' /proc/meminfo) bytes are left" ;;
  esac
}
# False if the process took more than the limit.
kept() {
  local most=0
  case $kind in
    1) most=$(cat $one/memory.max_usage_in_bytes) ;;
    2) most=$(cat $two/memory.peak 2>/dev/null || echo 0) ;;
  esac
  [ "$most" -le "$limit" ]
}
# limited COMMAND...: under the limit, in a group of its own or beside what takes the rest.
limited() {
  local rc=0
  dd if="$file" iflag=nocache count=0 status=none
  [ "$model" = "$file" ] || dd if="$model" iflag=nocache count=0 status=none
  case $kind in
    0)
      local available
      available=$(awk '/^MemAvailable/ {printf "%.0f", $2 * 1024}' /proc/meminfo)
      head -c $((available > limit ? available - limit : 0)) /dev/zero >"$held"
      "$@" || rc=$?
      used >&2
      rm -f "$held"
      return $rc
      ;;
    1)
      mkdir -p $one
      echo "$limit" >$one/memory.limit_in_bytes
      echo "$limit" >$one/memory.memsw.limit_in_bytes 2>/dev/null || true  # no swapping
      ;;
    2)
      mkdir -p $two
      echo "$limit" >$two/memory.max
      echo 0 >$two/memory.swap.max 2>/dev/null || true
      ;;
  esac
  (
    echo $BASHPID >"$group/cgroup.procs"
    exec "$@"
  ) || rc=$?
  used >&2
  kept || die "run_bigger.sh: the limit did not hold"
  rmdir "$group"  # what it read leaves with it
  return $rc
}

# ---- the two; each prints "ENGINE alone {json}"

run_tally() {
  local json
  json=$(limited "$tally" bench "$model" --weights-budget "$budget" -p "$prompt" -n "$generate" -r 1 --threads "$threads" --json)
  printf 'tally alone %s\n' "$(node -e '
    const bench = JSON.parse(require("fs").readFileSync(0));
    const rate = ([point]) => ({tokens_per_second: point.tokens_per_second});
    console.log(JSON.stringify({prefill: rate(bench.prefill), decode: rate(bench.decode)}))' <<<"$json")"
}
run_peer() {
  local json
  json=$(limited env LD_PRELOAD="$no_repack" node bench/peers/llama_cpp.mjs "$file" "$prompt" "$generate" 1 "$threads" 0 mmap)
  printf 'llama.cpp alone %s\n' "$json"
}

say "$(basename "$file") of $(stat -c %s "$file") bytes, limit $limit ($([ $kind = 0 ] && echo "/dev/shm" || echo "control group, version $kind")), budget $budget, prompt $prompt, generate $generate, $threads threads, $rounds rounds in turn" >&2
{
  trap release EXIT
  trap 'exit 130' INT TERM
  for ((round = 0; round < rounds; ++round)); do
    if ((round % 2 == 0)); then order=(tally peer); else order=(peer tally); fi
    for engine in "${order[@]}"; do
      if [ -z "$only" ] || [ "$engine" = "$only" ]; then "run_$engine"; fi
    done
  done
} | tee -a /dev/stderr | node bench/peers/medians.mjs
