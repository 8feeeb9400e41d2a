#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Full size: what the books show of gpt-oss-20b, from execution; the audits of models of other families (deepseek-v2-lite's with the
# pages, too); and the speed of all, and of llama-3.2-1b as Q8_0 and BF16, beside the machine's roofs. Fails
# where a count is another one, where memory is more than planned, or a ratio is below its bar.
# usage: bench/full_size.sh [DIR=build/full_size] [VOCABULARY.gguf]
#
# Files that DIR lacks are made with `tally synth`, 56 GB in all (with a vocabulary they can go to bench/peers/run_peers.sh, too). 
# qwen3-30b-a3b needs 17 GiB of memory and its roof 1 more. The
# bars are for processors with AVX-512 VNNI; neighbours on a shared machine move every figure (docs/measuring.md).
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

root=$PWD vocabulary=()
dir=$(cd "$caller_dir" && realpath -m -- "${1:-$root/build/full_size}")
if [ $# -ge 2 ]; then
  vocabulary=(--vocab-from "$(cd "$caller_dir" && realpath -m -- "$2")")
fi
tally=build/release/engine/tally
[ -x $tally ] || die "full_size.sh: $tally is not built: run scripts/test.sh first"
command -v python3 >/dev/null || die "full_size.sh: python3 is not installed"
mkdir -p "$dir"

model() {  # NAME FILE OPTION...
  [ -f "$dir/$2" ] || $tally synth "$1" "$dir/$2" "${@:3}" "${vocabulary[@]}" >&2
}

check() {  # TEXT EXPRESSION: of the JSON document j on standard input
  python3 -c '
import json, sys
j = json.load(sys.stdin)
ok = eval(sys.argv[2])
print("ok    " if ok else "FAILED", eval("f" + repr(sys.argv[1])))
sys.exit(not ok)' "$1" "$2" || failed=1
}

speed() {  # FILE DECODE_BAR PREFILL_BAR
  local json
  json=$($tally bench "$dir/$1" -p 512 -n 32 --json)
  check "$1: decode {j['decode'][0]['ratio_of_bandwidth']:.3f} of the read bandwidth (at least $2)" \
    "j['decode'][0]['ratio_of_bandwidth'] >= $2" <<<"$json"
  check "$1: prefill 512 {j['prefill'][0]['ratio_of_peak']:.3f} of the peak (at least $3)" "j['prefill'][0]['ratio_of_peak'] >= $3" <<<"$json"
  check "$1: peak memory {j['memory_bytes']['peak_resident'] / j['memory_bytes']['planned']:.3f} of what was planned (at most 1.15)" \
    "j['memory_bytes']['peak_resident'] <= 1.15 * j['memory_bytes']['planned']" <<<"$json"
}

failed=0
model gpt-oss-20b gpt-oss-20b.gguf
model llama-3.2-1b llama-3.2-1b-q8_0.gguf --type Q8_0
model llama-3.2-1b llama-3.2-1b-bf16.gguf --type BF16

books=$($tally run "$dir/gpt-oss-20b.gguf" --prompt-tokens 1,2,3,4,5,6,7,8 -n 8 --temp 0 --ignore-eos --json)
check "gpt-oss-20b: {j['parameters']['total']:,} parameters" "j['parameters']['total'] == 20914757184" <<<"$books"
check "gpt-oss-20b: {j['parameters']['active']['head']:,} active, head counted" "j['parameters']['active']['head'] == 3608307264" <<<"$books"
check "gpt-oss-20b: {j['parameters']['touched']:,} touched by a decode step" "j['parameters']['touched'] == 3608310144" <<<"$books"
check "gpt-oss-20b: {j['memory_bytes']['peak_resident'] / 2**30:.1f} GiB resident" "j['memory_bytes']['peak_resident'] < 24 * 2**30" <<<"$books"

speed llama-3.2-1b-q8_0.gguf 0.85 0.55
speed llama-3.2-1b-bf16.gguf 0.85 0.70
speed gpt-oss-20b.gguf 0.85 0.50

for name in deepseek-v2-lite:Q4_0 qwen3-30b-a3b:Q4_0 olmoe-1b-7b:Q8_0 gemma-3-4b:Q8_0; do
  file=${name%:*}.gguf pages=()
  model "${name%:*}" "$file" --type "${name#*:}"
  if [ "$file" = deepseek-v2-lite.gguf ]; then pages=(--mmu); fi
  $tally audit "$dir/$file" --tokens 1,2,3,4,5,6,7,8 -n 2 --ctx 64 "${pages[@]}" >/dev/null || failed=1
  speed "$file" 0.80 0.30
done
exit $failed
