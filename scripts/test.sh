#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything and runs all tests. Options are handed to ctest (for example -R kernels).
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

build_all
stage "tests" ctest --preset release --no-tests=error "$@"
skipped release
stage_summary
