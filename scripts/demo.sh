#!/usr/bin/env bash
# From a fresh machine to generated tokens: installs what is missing, builds, runs the bundled model. Options are handed to `tally run`.
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

run() {
  printf '+ build/release/engine/tally run %s\n' "$*"
  build/release/engine/tally run "$@"
}

build_release tally
say
say "The bundled model: a gpt-oss in small, trained on Shakespeare (models/demo/README.md). First its verse, then what it cost."
stage "run" run demo -n 200 "$@"
stage_summary
