#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# archive.sh ARCHIVE [EMULATOR...]: an archive of scripts/package.sh holds what it must, needs no more than the C library of the version in
# its name, and answers. Prints what it needs. The emulator runs a command of another machine's.
set -euo pipefail
archive=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'archive.sh: %s\n' "$*" >&2
  exit 1
}

name=$(basename "$archive" .tar.zst)
size=$(stat -c %s "$archive")
[ "$size" -lt 25000000 ] || fail "$name has $size bytes"
zstd -dcq "$archive" | tar -x -C "$work"
tree=$work/$name
[ "$(ls "$work")" = "$name" ] || fail "it unpacks more than $name"
for file in README bin/tally share/tally/demo.gguf share/man/man1/tally.1 share/man/man1/tally-run.1 share/bash-completion/completions/tally \
  share/zsh/site-functions/_tally share/fish/vendor_completions.d/tally.fish share/doc/tally/{LICENSE,NOTICE,THIRD_PARTY.md,CHANGELOG.md,tally.spdx} \
  share/doc/tally/licences/{libstdc++,libgomp,PCRE2,utf8proc,Highway,nlohmann-json,CLI11,marked,DOMPurify,KaTeX}; do
  [ -s "$tree/$file" ] || fail "it has no $file"
done
[ "$(find "$tree" -type f -perm /111 -printf '%P ')" = "bin/tally " ] || fail "other files than bin/tally may be executed"

needed=$(LC_ALL=C readelf -d "$tree/bin/tally" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | LC_ALL=C sort)
newest=$(LC_ALL=C readelf -V "$tree/bin/tally" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)
printf '%s: %d bytes, bin/tally %d; needs %s, %s\n' "$name" "$size" "$(stat -c %s "$tree/bin/tally")" "$(tr '\n' ' ' <<<"$needed")" "$newest"
if grep -vE '^(libc\.so\.6|libm\.so\.6|ld-linux-.*)$' <<<"$needed"; then fail "it needs these, too"; fi
if LC_ALL=C readelf -d "$tree/bin/tally" | grep -E 'RPATH|RUNPATH'; then fail "it looks for libraries elsewhere"; fi
[ "$(printf '%s\n' "$newest" "GLIBC_${name##*-glibc}" | sort -V | tail -n 1)" = "GLIBC_${name##*-glibc}" ] || fail "it needs $newest"

# Every part of the SPDX document has its fields, and its licence's name.
spdx=$tree/share/doc/tally/tally.spdx
[ "$(grep -c '^PackageName: ' "$spdx")" -eq "$(grep -cE '^PackageVersion: [0-9]' "$spdx")" ] || fail "a part has no version"
[ "$(grep -c '^PackageName: ' "$spdx")" -eq "$(grep -cE '^PackageLicenseConcluded: [A-Za-z]' "$spdx")" ] || fail "a part has no licence"

# From its own folder alone: elsewhere than it was made, and with nothing of the user's.
mkdir "$work/home"
tally() { (cd / && env -i HOME="$work/home" PATH=/usr/bin:/bin OMP_WAIT_POLICY=passive "${emulator[@]}" "$tree/bin/tally" "$@"); }
emulator=("$@")
tally --version
answer=$(tally run demo -q -p "The ledger" -n 24 --temp 0 --threads 2)
[ "$answer" = $' of the king\'s sons,\nAnd, by the king, the king, the king of York,\nAnd' ] || fail "another text: '$answer'"
answer=$(printf 'hello\n' | tally chat 2>/dev/null)
grep -q '[a-z]' <<<"$answer" || fail "chat: '$answer'"
printf '%s: hello -> %s\n' "$name" "$(head -c 200 <<<"$answer" | tr '\n' ' ')"
