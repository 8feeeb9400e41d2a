#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo_build.sh BUILD CMAKE: what scripts/demo.sh configures wants neither GoogleTest nor Google Benchmark, and what it builds is all
# that `cmake --install` takes. Configures a folder of its own; nothing is compiled.
set -euo pipefail
build=$1 cmake=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'demo_build.sh: %s\n' "$*" >&2
  exit 1
}

options=(-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DCMAKE_DISABLE_FIND_PACKAGE_benchmark=ON)
# Highway's release is not fetched a second time.
if [ -d "$build/_deps/highway-src" ]; then options+=("-DFETCHCONTENT_SOURCE_DIR_HIGHWAY=$build/_deps/highway-src"); fi
"$cmake" --preset native -S "$here/../.." -B "$work/build" "${options[@]}" >"$work/log" 2>&1 || fail "configure: $(tail -n 20 "$work/log")"

ninja -C "$work/build" -t commands install_tree >"$work/commands"
grep -q . "$work/commands" || fail "install_tree builds nothing"
if grep -iE 'gtest|benchmark' "$work/commands"; then fail "these are for tests and benchmarks"; fi
# Every file that is installed from the build folder is there now, or some command makes it.
grep -oE "\"$work/build/[^\"]+\"" "$work/build/cmake_install.cmake" "$work"/build/*/cmake_install.cmake | sed -E 's/.*"(.*)"/\1/' | sort -u >"$work/taken"
for name in libtally.a libtally.so engine/tally tally.h tallyConfig.cmake tally.fish man1; do
  grep -qE "/$name(\.[0-9.]+)?$" "$work/taken" || fail "$name is not installed"
done
while read -r file; do
  [ -e "$file" ] || grep -qF "${file##*/}" "$work/commands" || fail "$file is installed, and nothing in install_tree makes it"
done < <(grep -vE '/cmake_install\.cmake$|/[$]' "$work/taken")
printf 'configured without GoogleTest and Google Benchmark; %d files of the build are installed\n' "$(wc -l <"$work/taken")"
