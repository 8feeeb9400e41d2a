#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything and runs all tests. Options are handed to ctest (for example -R kernels).
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

tests() {
  ctest --preset release --no-tests=error -L "$@"
  skipped release
}

build_all
if [ $# -gt 0 ]; then
  stage "tests" ctest --preset release --no-tests=error "$@"
  skipped release
else
  stage "tests: fast" tests '^fast$'
  stage "tests: goldens" tests '^goldens$'
  stage "tests: slow" tests '^slow$'
fi
stage_summary
