#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# release.sh TALLY: the files that a release is made of agree about its version and date, and are well formed; `tally --version` says what
# it must. Tools that read such files (ruby, Python's yaml, shellcheck) are asked where they are installed.
set -euo pipefail
tally=$1
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
fail() {
  printf 'release.sh: %s\n' "$*" >&2
  exit 1
}
same() { [ "$2" = "$3" ] || fail "$1: '$2', not '$3'"; }  # WHAT IS MUST_BE
first() { sed -n "$1" "$2" | head -n 1; }

version=$(first 's/^project(tally VERSION \([^ ]*\) .*/\1/p' CMakeLists.txt)
grep -qxE '(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}' <<<"$version" || fail "'$version' is no MAJOR.MINOR.PATCH"
heading=$(first '/^## Unreleased$/d; s/^## //p' CHANGELOG.md)
date=${heading#* - }
same CHANGELOG.md "$heading" "$version - $(date -d "$date" +%F)"
same CITATION.cff "$(first 's/^version: //p' CITATION.cff)" "$version"
same CITATION.cff "$(first 's/^date-released: //p' CITATION.cff)" "$date"
debian=scripts/packaging/debian
same debian/changelog "$(first 's/^tally (\(.*\)-[0-9]*) .*/\1/p' $debian/changelog)" "$version"
same debian/changelog "$(date -u -d "$(first 's/^ -- .*>  //p' $debian/changelog)" +%F)" "$date"

# tally --version: a version, then names and values.
said=$("$tally" --version)
same "tally --version" "$(head -n 1 <<<"$said")" "tally $version"
same "tally --version" "$(sed 1d <<<"$said" | cut -c1-10 | tr -d '\n')" "commit    compiler  kernels   with      without   "
sed -n 2p <<<"$said" | grep -qxE 'commit    ([0-9a-f]{12}(-dirty)?|unknown)' || fail "tally --version: $(sed -n 2p <<<"$said")"
sed -n 3,4p <<<"$said" | grep -vE '^[a-z]+ +[A-Za-z]' && fail "tally --version: $said"
parts=$(sed -nE 's/^with(out)? +//p' <<<"$said" | tr -s ', ' '\n' | sort | tr '\n' ' ')
same "tally --version" "$parts" "editing line markdown mpi pull "

# CITATION.cff: what version 1.2.0 of the format wants.
for key in cff-version message title authors; do grep -q "^$key:" CITATION.cff || fail "CITATION.cff has no $key"; done
if python3 -c 'import yaml' 2>/dev/null; then python3 -c 'import yaml; yaml.safe_load(open("CITATION.cff"))'; fi

# The formula.
formula=scripts/packaging/tally.rb
for line in 'class Tally < Formula' 'url "@URL@"' 'sha256 "@SHA256@"' 'license "Apache-2.0"' 'def install' 'test do'; do
  grep -q "^ *$line\$" $formula || fail "$formula has no line: $line"
done
same "$formula: blocks and their ends" "$(grep -cE '^ *(class|def) | do$' $formula)" "$(grep -cE '^ *end$' $formula)"
needs=$(sed -n 's/^  depends_on //p' $formula | tr -d ':"' | sed 's/ => build/ 0/; t; s/$/ 1/' | sort -s -k2,2 -k1,1)
same "$formula: what it needs, for the build first, by name" "$(sed -n 's/^  depends_on //p' $formula | tr -d ':"' | sed 's/ => build/ 0/; t; s/$/ 1/')" "$needs"
if command -v ruby >/dev/null; then ruby -c $formula >/dev/null; fi

# The Dockerfile: instructions, and habits that keep an image small and its user no root.
file=scripts/packaging/Dockerfile
grep -vE '^(#|$|(FROM|COPY|RUN|USER|WORKDIR|EXPOSE|ENTRYPOINT|CMD) )' $file && fail "$file: these are no instructions of ours"
grep -qxE 'FROM debian:[a-z]+-slim' $file || fail "$file is not from debian:slim"
grep -E '^RUN .*apt-get install' $file | grep -vE 'apt-get update && .*--no-install-recommends .*rm -rf /var/lib/apt/lists' && fail "$file: lists or recommends stay"
grep -E '^USER ' $file | grep -qv root || fail "$file: the user is root"
grep -E '^(ENTRYPOINT|CMD) ' $file | grep -vE ' \["' && fail "$file: a shell would stand between"

# Every binary package of debian/control has its files; every part of an archive has a licence of THIRD_PARTY.md.
sed -n 's/^Package: //p' $debian/control | while read -r package; do [ -s $debian/"$package".install ] || fail "$package has no files"; done
sed -nE '/^  cat <<.PARTS/,/^PARTS/s/[|](STATIC_LINK|CONTAINS)$//p' scripts/packaging/parts.sh | while read -r name _ licence; do
  row=$(sed -n '/^| library/,/^$/s/^| //p' THIRD_PARTY.md | grep -F "${name//-/ }") || fail "THIRD_PARTY.md does not name $name"
  grep -qF "${licence%% *}" <<<"$row" || fail "THIRD_PARTY.md has another licence of $name than $licence"
done
for script in scripts/package.sh scripts/packaging/parts.sh scripts/roots.sh scripts/packaging/wheels.sh; do bash -n $script; done
if command -v shellcheck >/dev/null; then shellcheck -S warning -x -P scripts scripts/package.sh scripts/packaging/parts.sh tests/package/*.sh; fi
printf 'version %s of %s: CHANGELOG.md, CITATION.cff, debian/changelog and the command agree; the formula and the Dockerfile are well formed\n' "$version" "$date"
