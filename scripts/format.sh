#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats every C++ file that git does not ignore in place. With --check it changes nothing, and fails where something would change and
# where a line that is a comment, of C++ or of a script, has more than 140 characters: clang-format leaves comments alone.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tool=$(find_clang_tool clang-format)
[ -n "$tool" ] || die "format.sh: clang-format $clang_tools_version is not installed (scripts/install_deps.sh --ci installs it)"

export LC_ALL=C.UTF-8  # a line's length is in characters
# no_long_comments SIGN FILES: false where a line of the files (a list, one a line) that begins with SIGN is too long; names them.
no_long_comments() {
  local files
  mapfile -t files <<<"$2"
  ! grep -nHE '.{141}' "${files[@]}" | grep -E "^[^:]*:[0-9]*:[[:space:]]*$1" |
    sed -E 's/^([^:]*:[0-9]*):.*/\1: a comment of more than 140 characters/' | grep . >&2
}

list=$(sources '*.h' '*.cc')
mapfile -t files <<<"$list"
if [ "${1:-}" = --check ]; then
  rc=0
  "$tool" --dry-run -Werror --ferror-limit=3 "${files[@]}" || rc=1
  list=$(sources '*.h' '*.cc' '*.inc')
  no_long_comments // "$list" || rc=1
  list=$(sources '*.sh' .ci/run)
  no_long_comments '#' "$list" || rc=1
  [ $rc -eq 0 ] || exit 1
  say "${#files[@]} files are formatted"
else
  "$tool" -i "${files[@]}"
fi
