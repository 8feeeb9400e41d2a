#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh machine to generated tokens: installs what is missing, builds, runs the bundled model. Options
# are handed to `tally run` (files are where you are); where there are none, 200 tokens are generated.
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

run() {
  local tally=$PWD/build/native/engine/tally
  printf '+ build/native/engine/tally run %s\n' "$*"
  cd "$caller_dir"
  "$tally" run "$@"
}

build_command
say
say "The bundled model: a gpt-oss in small, trained on Shakespeare (models/demo/README.md). First its verse, then what it cost."
if [ $# -eq 0 ]; then set -- -n 200; fi
case " $* " in
  *" - "*) ;;             # -p -, -f -
  *) exec </dev/null ;;  # else standard input is the prompt
esac
stage "run" run "$@"
stage_summary
