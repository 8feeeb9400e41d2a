#!/usr/bin/env bash
# Formats every tracked C++ file in place; with --check changes nothing and fails where something would change.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Versions of clang-format disagree about details; the tree is formatted by this one.
version=14
tool=$(command -v clang-format-$version || command -v clang-format) || die "format.sh: clang-format-$version is not installed"
"$tool" --version | grep -q "version $version\." || die "format.sh: $tool is not version $version"

mapfile -t files < <(git ls-files '*.h' '*.cc')
if [ "${1:-}" = --check ]; then
  "$tool" --dry-run -Werror --ferror-limit=3 "${files[@]}"
  say "${#files[@]} files are formatted"
else
  "$tool" -i "${files[@]}"
fi
