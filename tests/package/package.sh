#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package.sh BUILD CMAKE: installs the build folder BUILD into a fresh place and uses it from outside, as another project would.
set -euo pipefail
build=$1 cmake=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text="ROMEO:"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'package.sh: %s\n' "$*" >&2
  exit 1
}

# Moved after it was installed: nothing in it may know where it was put, or where it was built.
"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log" || fail "cmake --install: $(tail -n 5 "$work/install.log")"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
pc=$(find "$prefix" -name tally.pc)
[ -n "$pc" ] || fail "no tally.pc was installed"
lib=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH=${pc%/*}${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
model=$prefix/share/tally/demo.gguf
for file in bin/tally include/tally/tally.h share/tally/demo.gguf share/doc/tally/LICENSE share/doc/tally/accounting.md; do [ -e "$prefix/$file" ] || fail "no $file was installed"; done
for file in man/man1/tally.1 man/man1/tally-run.1 bash-completion/completions/tally zsh/site-functions/_tally fish/vendor_completions.d/tally.fish; do
  [ -s "$prefix/share/$file" ] || fail "no share/$file was installed"
done
# shellcheck disable=SC2016  # the inner shell's
[ "$(bash -c 'source "$1"; COMP_WORDS=(tally ru) COMP_CWORD=1; _tally; echo "${COMPREPLY[@]}"' - "$prefix/share/bash-completion/completions/tally")" = run ] ||
  fail "bash does not complete with what was installed"
for file in libtally.so libtally.a cmake/tally/tallyConfig.cmake; do [ -e "$lib/$file" ] || fail "no $file was installed"; done
[ ! -e "$build/engine/libtally_mpi.so" ] || [ -e "$lib/libtally_mpi.so" ] || fail "no libtally_mpi.so was installed"
if grep -rlF -e "$work/first" -e "$build" "$prefix/include" "$lib/cmake" "$pc"; then fail "these know where they were made"; fi

# What the installed command says is what every consumer must say.
expected=$("$prefix/bin/tally" run -p "$text" -n 8 --temp 0 --ctx 64 2>"$work/run.log") || fail "tally run: $(cat "$work/run.log")"
grep -q '[a-z]' <<<"$expected" || fail "tally run gave '$expected'"

check() {  # NAME CONSUMER MODEL: what it says. Only the shared library knows where the bundled model lies
  local name=$1 out
  out=$("$2" "$3" "$text" 2>"$work/err") || fail "$name: exit code $?, $(cat "$work/err")"
  [ ! -s "$work/err" ] || fail "$name: the library printed: $(cat "$work/err")"
  [[ $out == "$expected"$'\n'* ]] || fail "$name: '$out' does not begin with '$expected'"
  grep -qE '^[1-9][0-9]* FLOPs in 7 decode steps$' <<<"$out" || fail "$name: no books: $out"
  printf '%s: the text, and the books\n' "$name"
}

header_alone() {  # COMPILER NAME: a public header alone, twice over, with every warning, and what it drags in
  local name=$2 source=$work/$2.cc
  printf '#include <tally/%s>\n#include <tally/%s>\nint main() {}\n' "$name" "$name" >"$source"
  "$1" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -MD -MF "$source.d" -I "$prefix/include" "$source" ||
    fail "$name does not compile alone with $1"
  if grep -E '(^|/)(hwy/|omp\.h|nlohmann/)' "$source.d"; then fail "$name brings these in"; fi
}
export -f header_alone fail
export work prefix

headers() {  # COMPILER: all of them, on every core
  # shellcheck disable=SC2016  # the arguments are the inner shell's
  find "$prefix/include/tally" -name '*.h' -printf '%f\0' | xargs -0 -n 1 -P "$(nproc)" bash -c 'set -eu; header_alone "$1" "$2"' - "$1" || exit 1
  printf '%s: public headers compile alone\n' "$1"
}

# docs/library.md's program, as it stands there.
sed -n '/^    #include <tally\/tally.h>/,/^    }$/p' "$here/../../docs/library.md" | sed 's/^    //' >"$work/readme.cc"
sed -n '/^    int main/,/^    }$/p' "$here/../../docs/library.md" | sed 's/^    //' >>"$work/readme.cc"
mkdir "$work/models"
cp "$model" "$work/models/model.gguf"

readme() {  # COMPILER: it compiles, and does what it says; so does every public struct with one member named
  # shellcheck disable=SC2046  # pkg-config's words
  "$1" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Werror "$work/readme.cc" -o "$work/readme" $(pkg-config --cflags --libs tally) -Wl,-rpath,"$lib" ||
    fail "docs/library.md's program does not compile with $1"
  (cd "$work/models" && "$work/readme") >"$work/log" 2>&1 || fail "docs/library.md's program: $(cat "$work/log")"
  grep -q 'touched per decode step' "$work/log" || fail "docs/library.md's program has no books: $(cat "$work/log")"
  local rc=0
  (cd "$here/../goldens/llama/llama-a-f32-gqa-untied" && "$work/readme") >"$work/log" 2>&1 || rc=$?
  if [ $rc != 1 ] || ! grep -q 'no tokenizer' "$work/log"; then fail "docs/library.md's program without a tokenizer: exit code $rc, $(cat "$work/log")"; fi
  "$1" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -I "$prefix/include" "$here/consumer/designated.cc" ||
    fail "designated initialisers have warnings with $1"
  printf '%s: docs/library.md'"'"'s program, and designated initialisers\n' "$1"
}

used=0
for compiler in g++ clang++; do
  if ! command -v "$compiler" >/dev/null; then
    printf 'skipped: the consumer with %s, which is not here\n' "$compiler"
    continue
  fi
  used=$((used + 1))
  [ $used -gt 1 ] || headers "$compiler"  # the consumer includes them all with each
  readme "$compiler"
  for static in OFF ON; do
    folder=$work/$compiler-$static
    {
      "$cmake" -G Ninja -S "$here/consumer" -B "$folder" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" -DCONSUMER_STATIC=$static \
        -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" && "$cmake" --build "$folder"
    } >"$work/log" 2>&1 || fail "$compiler, CMake, static $static: $(tail -n 30 "$work/log")"
    check "$compiler, CMake, static $static" "$folder/consumer" "$([ $static = ON ] && echo "$model" || echo demo)"
    answers=$("$folder/many" "$model" "$text" "$text" "O Romeo," 2>&1) || fail "$compiler, many at once: $answers"
    [[ $answers == "$expected"$'\n['*' FLOPs]'$'\n'"$expected"$'\n['* ]] || fail "$compiler, many at once: '$answers'"
    if [ $static = ON ] && ldd "$folder/consumer" | grep libtally; then fail "the static consumer needs libtally.so"; fi
  done
  # shellcheck disable=SC2046  # pkg-config's words
  "$compiler" -std=c++20 "$here/consumer/main.cc" -o "$work/shared" $(pkg-config --cflags --libs tally) -Wl,-rpath,"$lib"
  check "$compiler, pkg-config" "$work/shared" demo
  # shellcheck disable=SC2046
  "$compiler" -std=c++20 "$here/consumer/main.cc" -o "$work/static" $(pkg-config --static --cflags --libs tally | sed 's/-ltally/-l:libtally.a/')
  check "$compiler, pkg-config --static" "$work/static" "$model"
done
[ $used -gt 0 ] || fail "neither g++ nor clang++ is here"

# "demo" is the installed model and not the one where it was built: spoilt, it is the one that is refused.
printf 'no model' >"$model"
refused() {  # PROGRAM ARGUMENT...
  local rc=0
  "$@" >"$work/log" 2>&1 || rc=$?
  if [ $rc != 2 ] || ! grep -qF "${work##*/}/prefix/share/tally/demo.gguf" "$work/log"; then
    fail "$*, with a spoilt share/tally/demo.gguf: exit code $rc, $(cat "$work/log")"
  fi
}
refused "$prefix/bin/tally" run demo -n 1 </dev/null
refused "$work/shared" demo "$text"
