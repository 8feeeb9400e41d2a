#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats every C++ file that git does not ignore in place; with --check changes nothing and fails where something would change.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tool=$(find_clang_tool clang-format)
[ -n "$tool" ] || die "format.sh: clang-format $clang_tools_version is not installed (scripts/install_deps.sh --ci installs it)"

list=$(sources '*.h' '*.cc')
mapfile -t files <<<"$list"
if [ "${1:-}" = --check ]; then
  "$tool" --dry-run -Werror --ferror-limit=3 "${files[@]}"
  say "${#files[@]} files are formatted"
else
  "$tool" -i "${files[@]}"
fi
