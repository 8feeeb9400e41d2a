#!/usr/bin/env bash
# From a fresh machine to generated tokens: installs what is missing, builds, runs. Options are handed to `tally run`.
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

# The bundled model: a gpt-oss of three layers with random weights and no tokenizer, so that it reads and writes token ids.
model=tests/goldens/gptoss/gptoss-a-top4of8-realyarn
run() {
  printf '+ build/release/engine/tally %s\n' "$*"
  build/release/engine/tally "$@"
}

build_release tally
say
say "No trained model is bundled yet. This one has the shape of gpt-oss (4 of 8 experts, YaRN, sliding window), random"
say "weights and no tokenizer: the output is token ids, the same on every machine of one instruction set."
stage "run" run run "$model" --prompt-tokens 75,85,51 -n 16 --temp 0 --ignore-eos "$@"
stage_summary
