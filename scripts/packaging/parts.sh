#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What of others is inside an archive's command, by the metadata of the packages that it came from.
#   parts.sh licences ROOT SOURCES FOLDER                    their copyright files, one for each, into FOLDER
#   parts.sh sbom ROOT SOURCES NAME VERSION COMMIT           an SPDX 2.3 document on standard output
# ROOT is the root that it was built in, SOURCES has what lay beside it (scripts/package.sh). $SOURCE_DATE_EPOCH is the document's time.
set -euo pipefail
what=$1 root=$2 sources=$3

# NAME PACKAGE LICENCE RELATION: PACKAGE is a package of ROOT, or of SOURCES. Licences are those of THIRD_PARTY.md, for what is used here.
# What is loaded if a system has it is optional; of the C library, nothing is inside.
parts() {
  cat <<'PARTS'
libstdc++ libstdc++-12-dev GPL-3.0-or-later WITH GCC-exception-3.1|STATIC_LINK
libgomp libgcc-12-dev GPL-3.0-or-later WITH GCC-exception-3.1|STATIC_LINK
PCRE2 libpcre2-dev BSD-3-Clause|STATIC_LINK
utf8proc libutf8proc-dev MIT AND Unicode-DFS-2015|STATIC_LINK
Highway highway Apache-2.0|STATIC_LINK
nlohmann-json nlohmann-json3-dev MIT|CONTAINS
CLI11 libcli11-dev BSD-3-Clause|CONTAINS
marked node-marked MIT|CONTAINS
DOMPurify node-dompurify Apache-2.0|CONTAINS
KaTeX libjs-katex MIT AND OFL-1.1|CONTAINS
glibc libc6-dev LGPL-2.1-or-later|DYNAMIC_LINK
libcurl libcurl4-openssl-dev curl|OPTIONAL_DEPENDENCY_OF
libedit libedit-dev BSD-3-Clause|OPTIONAL_DEPENDENCY_OF
PARTS
}

# The package's name in ROOT: a cross compiler's parts have names of their own.
installed() {  # PACKAGE
  local name
  for name in "$1" "$1-arm64-cross"; do
    if [ -e "$root/usr/share/doc/$name" ] || [ -L "$root/usr/share/doc/$name" ]; then
      printf '%s\n' "$name"
      return
    fi
  done
  printf 'parts.sh: no package %s\n' "$1" >&2
  return 1
}

# field PACKAGE FIELD: of the package's own metadata.
field() {
  local package=$1 name=$2 deb
  case $package in
    highway)
      case $name in
        Version) sed -n '1s/.*(\([^)]*\)).*/\1/p' "$sources/highway/debian/changelog" ;;
        Maintainer) sed -n '/^ -- /{s/^ -- \(.*>\).*/\1/p;q}' "$sources/highway/debian/changelog" ;;
        Homepage) sed -n 's/^Source: *//p' "$sources/highway/debian/copyright" | head -n 1 ;;
        Source) printf 'highway\n' ;;
      esac
      ;;
    *)
      if deb=$(compgen -G "$sources/${package}_*.deb"); then
        dpkg-deb -f "$deb" "$name"
      else
        dpkg-query --admindir="$root/var/lib/dpkg" -W -f "\${$name}\n" "$(installed "$package")"
      fi
      ;;
  esac
}

copyright_file() {  # PACKAGE
  case $1 in
    highway) printf '%s\n' "$sources/highway/debian/copyright" ;;
    *)
      if [ -e "$root/src/others/usr/share/doc/$1/copyright" ]; then
        printf '%s\n' "$root/src/others/usr/share/doc/$1/copyright"
      else
        printf '%s\n' "$root/usr/share/doc/$(installed "$1")/copyright"
      fi
      ;;
  esac
}

licences() {  # FOLDER
  local name package relation file
  mkdir -p "$1"
  while IFS='|' read -r name relation; do
    read -r name package _ <<<"$name"
    case $relation in STATIC_LINK | CONTAINS) ;; *) continue ;; esac
    file=$(copyright_file "$package")
    # A link to another package's, from / of the root.
    if [ ! -e "$file" ]; then file=$root$(readlink "$(dirname "$file")" | sed "s|^\([^/]\)|/usr/share/doc/\1|")/copyright; fi
    install -m 644 "$file" "$1/$name"
  done < <(parts)
}

sbom() {  # NAME VERSION COMMIT
  local name package licence relation id
  cat <<DOCUMENT
SPDXVersion: SPDX-2.3
DataLicense: CC0-1.0
SPDXID: SPDXRef-DOCUMENT
DocumentName: $1
DocumentNamespace: https://spdx.org/spdxdocs/$1-$3
Creator: Tool: scripts/packaging/parts.sh
Created: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

PackageName: tally
SPDXID: SPDXRef-tally
PackageVersion: $2
PackageSupplier: Organization: The Tally authors
PackageDownloadLocation: NOASSERTION
PackageSourceInfo: commit $3
FilesAnalyzed: false
PackageLicenseConcluded: Apache-2.0
PackageLicenseDeclared: Apache-2.0
PackageCopyrightText: Copyright The Tally authors
PrimaryPackagePurpose: APPLICATION
Relationship: SPDXRef-DOCUMENT DESCRIBES SPDXRef-tally
DOCUMENT
  while IFS='|' read -r name relation; do
    read -r name package licence <<<"$name"
    id=SPDXRef-$(tr -c 'a-zA-Z0-9.\n-' '-' <<<"$name")
    printf '\nPackageName: %s\nSPDXID: %s\nPackageVersion: %s\n' "$name" "$id" "$(field "$package" Version)"
    printf 'PackageSupplier: Organization: %s\n' "$(field "$package" Maintainer | sed 's/ <\(.*\)>/ (\1)/')"
    printf 'PackageDownloadLocation: NOASSERTION\nPackageSourceInfo: package %s, source package %s\n' "$package" \
      "$(field "$package" Source | sed 's/ .*//' | grep . || printf '%s' "$package")"
    printf 'PackageHomePage: %s\n' "$(field "$package" Homepage | grep . || printf NOASSERTION)"
    printf 'FilesAnalyzed: false\nPackageLicenseConcluded: %s\nPackageLicenseDeclared: NOASSERTION\nPackageCopyrightText: NOASSERTION\n' "$licence"
    case $relation in
      *_OF) printf 'Relationship: %s %s SPDXRef-tally\n' "$id" "$relation" ;;
      *) printf 'Relationship: SPDXRef-tally %s %s\n' "$relation" "$id" ;;
    esac
  done < <(parts)
}

case $what in
  licences) licences "$4" ;;
  sbom) sbom "$4" "$5" "$6" ;;
esac
