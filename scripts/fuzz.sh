#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzz targets (tests/fuzz) for SECONDS each, 60 unless given, or only those named:
#   scripts/fuzz.sh [SECONDS [TARGET...]]
# Says how many inputs each ran and what they covered; fails where one found something, which is then in build/fuzz/finds.
# What was learnt stays in build/fuzz/corpus, for the next time.
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "fuzz.sh: SECONDS must be a number above 0, not '$seconds'"
shift || true
can_fuzz || die "fuzz.sh: no clang++ with libFuzzer here (scripts/install_deps.sh --ci installs it)"

# The sanitizers' build, so that .ci/run compiles once for both.
preset=asan-ubsan-clang
stage "configure ($preset)" configure "$preset"
stage "build (fuzz targets)" cmake --build --preset "$preset" --target fuzz
bin=build/$preset/tests/fuzz
finds=build/fuzz/finds
if [ $# -gt 0 ]; then targets=("$@"); else mapfile -t targets < <("$bin/fuzz_seeds"); fi

# The largest seed has 60 KiB; more room is only slower. A single allocation of 64 MiB would be beyond anything they justify, and so
# would ten seconds, by a clock that goes on where the machine stops for a moment.
options=(-max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=64 -print_final_stats=1)
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

run() {  # TARGET
  local target=$1 corpus=build/fuzz/corpus/$1 dictionary=()
  [ ! -f "tests/fuzz/$target.dict" ] || dictionary=(-dict="tests/fuzz/$target.dict")
  "$bin/fuzz_$target" "${options[@]}" "${dictionary[@]}" \
    -artifact_prefix="$finds/$target-" "$corpus" >"build/fuzz/$target.log" 2>&1
}

report() {  # TARGET
  local target=$1 log=build/fuzz/$1.log runs coverage cov features
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -n 1) || true  # none where it ended at a seed
  read -r _ cov _ features <<<"${coverage:-cov: ? ft: ?}"
  printf '%-16s %12s %10s %10s %10s\n' "$target" "${runs:-?}" "$cov" "$features" "$(find "$finds" -name "$target-*" -newer "$finds/begun" | wc -l)"
}

mkdir -p "$finds"
touch "$finds/begun"  # what is older was found by another run
for target in "${targets[@]}"; do
  "$bin/fuzz_seeds" "$target" "build/fuzz/corpus/$target" || die "fuzz.sh: there is no target '$target'"
done
printf '\n%-16s %12s %10s %10s %10s\n' target executions cov features finds
failed=0
# One for each core at a time: a target runs on one thread.
for ((i = 0; i < ${#targets[@]}; i += $(nproc))); do
  pids=() batch=("${targets[@]:i:$(nproc)}")
  for target in "${batch[@]}"; do
    run "$target" &
    pids+=($!)
  done
  for n in "${!batch[@]}"; do
    rc=0
    wait "${pids[n]}" || rc=$?
    report "${batch[n]}"
    if [ $rc -ne 0 ]; then
      failed=1
      tail -n 30 "build/fuzz/${batch[n]}.log" >&2
    fi
  done
done
exit $failed
