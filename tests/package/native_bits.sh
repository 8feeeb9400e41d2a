#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# native_bits.sh TALLY NATIVE DEMO: a build for this processor alone computes the portable build's bits: the logits of the demo model, by
# weights of every type that it can be stored in. Skipped (77) where scripts/demo.sh has not built one.
set -euo pipefail
tally=$1 native=$2 demo=$3
if [ ! -x "$native" ]; then
  printf 'skipped: there is no %s: scripts/demo.sh builds it\n' "$native"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
logits() { # TALLY MODEL OUT
  "$1" logits "$2" --tokens 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20 -o "$3" >/dev/null
}
compared=0
for type in "" q8_0 q4_0 q6_k q4_k_m bf16; do
  model=$demo
  if [ -n "$type" ]; then
    model=$work/$type.gguf
    "$tally" quantize "$demo" "$model" --type "$type" >/dev/null 2>&1 || continue
  fi
  logits "$tally" "$model" "$work/portable.npy"
  logits "$native" "$model" "$work/native.npy"
  cmp "$work/portable.npy" "$work/native.npy"
  rm "$work"/*.npy
  compared=$((compared + 1))
done
[ "$compared" -ge 3 ] || { printf 'native_bits.sh: %d files compared\n' "$compared" >&2; exit 1; }
printf 'the same logits of %d files\n' "$compared"
