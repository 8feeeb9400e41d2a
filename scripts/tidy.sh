#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy over the libraries and the command (.clang-tidy says what it looks for), or over the files that are named: tests,
# say, which would double its time. Goes by compile commands of its own; nothing is built of them.
#
# Left out: the Highway kernels. Such a file includes itself once for every instruction set, which takes the analyser minutes and
# says everything six times. Of the team, the flavour on plain threads is read: clang has no omp.h unless libomp is installed.
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

tool=$(find_clang_tool clang-tidy)
[ -n "$tool" ] || die "tidy.sh: clang-tidy $clang_tools_version is not installed (scripts/install_deps.sh --ci installs it)"

if [ $# -gt 0 ]; then
  configure tidy -DTALLY_UNITY=OFF -DTALLY_BUILD_TESTS=ON
  files=("$@")
else
  configure tidy
  # Unity files where a node has them: a header that sixteen files include is read once.
  list=$(sed -n 's/^ *"file": "\(.*\)",\?$/\1/p' build/tidy/compile_commands.json | sort -u | xargs grep -L 'hwy/foreach_target\.h')
  mapfile -t files <<<"$list"
fi
# Quiet but for what is found: "N warnings generated" counts what the system's headers have.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" \
  "$tool" -p build/tidy --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option --extra-arg=-UTALLY_TEAM_OPENMP \
  2> >(grep -vE 'warnings? generated|^Suppressed|^Use -header-filter' >&2)
say "${#files[@]} files are tidy"
