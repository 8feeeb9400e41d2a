#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Load by hey (the Debian package) on a server of its own: for each number of clients requests a second, errors, and latencies at the 50th,
# 95th and 99th of a hundred, of GET /health and of POST /v1/completions, whole and streamed. Fails where a request was not answered 200.
# usage: bench/serve/hey.sh [TALLY=build/release/engine/tally] [MODEL=demo] [REQUESTS=2000] [CLIENTS="1 8 64"]
set -euo pipefail
tally=${1:-build/release/engine/tally} model=${2:-demo} requests=${3:-2000} clients=${4:-1 8 64}
command -v hey >/dev/null || { echo "hey.sh: there is no hey here: apt-get install hey" >&2; exit 2; }

out=$(mktemp -d)
"$tally" serve "$model" --port 0 --parallel 8 --log none >"$out/said" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -rf "$out"' EXIT
for ((i = 0; i < 600; ++i)); do
  base=$(sed -nE 's,.*(http://[0-9.]+:[0-9]+)/v1.*,\1,p' "$out/said") && [ -n "$base" ] && break
  kill -0 $server 2>/dev/null || { cat "$out/said" >&2; exit 1; }
  sleep .1
done
[ -n "${base:-}" ] || { echo "hey.sh: the server does not answer" >&2; exit 1; }

failed=0
measure() {  # WHAT CLIENTS HEY_OPTION...
  local what=$1 n=$2 text errors
  text=$(hey -n "$requests" -c "$n" -t 120 "${@:3}")
  # Status lines read "[200] 2000 responses"; what had no answer stands under "Error distribution".
  errors=$(awk '/^  \[[0-9]+\]/ { if ($1 != "[200]") bad += $2; else good += $2 } END { print '"$((requests / n * n))"' - good }' <<<"$text")
  awk -v what="$what" -v n="$n" -v errors="$errors" '
    /Requests\/sec/ { rate = $2 }
    / in [0-9.]+ secs/ { sub("%", "", $1); at[int($1)] = 1000 * $3 }
    END { printf "%-28s %7d %12.0f %7d %9.2f %9.2f %9.2f\n", what, n, rate, errors, at[50], at[95], at[99] }' <<<"$text"
  [ "$errors" -eq 0 ] || { failed=1; sed -n '/distribution/,$p' <<<"$text" >&2; }
}

printf '%-28s %7s %12s %7s %9s %9s %9s\n' "$model" clients requests/s errors "p50 ms" "p95 ms" "p99 ms"
body='{"prompt": "ROMEO:", "max_tokens": 16, "temperature": 0, "ignore_eos": true'
for n in $clients; do
  measure "GET /health" "$n" "$base/health"
  measure "completions, 16 tokens" "$n" -m POST -T application/json -d "$body}" "$base/v1/completions"
  measure "the same, streamed" "$n" -m POST -T application/json -d "$body, \"stream\": true}" "$base/v1/completions"
done
exit $failed
