#!/usr/bin/env bash
# Installs what Tally is built with, on Debian 12 and 13 and on Ubuntu, through apt. Does nothing where nothing is missing.
# With --ci also what .ci/run checks with and no build needs: the clang-format and clang-tidy of scripts/format.sh and
# scripts/tidy.sh, lld, which links sanitized tests faster, and clang++ with libFuzzer, with which a consumer of the installed library
# is built and scripts/fuzz.sh works.
#
# Highway must be 1.2 or newer. Debian 12 has 1.0: there the trixie suite of the machine's own package source is added,
# pinned so that nothing but libhwy is ever taken from it. Where the distribution has no newer one (Ubuntu 24.04 and older),
# CMake fetches its release instead (cmake/dependencies.cmake), for which git is installed.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=(g++ cmake ninja-build ccache pkg-config libopenblas-dev libpcre2-dev libutf8proc-dev nlohmann-json3-dev
  libcli11-dev libgtest-dev libbenchmark-dev libvalijson-dev)
hwy_minimum=1.2
hwy_packages="libhwy-dev libhwy1t64"

# TALLY_APT_ROOT: where etc/ is looked for, so that the part that writes can be tried without touching the machine.
root=${TALLY_APT_ROOT:-}
sources_out=$root/etc/apt/sources.list.d/tally-trixie.sources
list_out=$root/etc/apt/sources.list.d/tally-trixie.list
pins_out=$root/etc/apt/preferences.d/tally-trixie

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
hwy_version() { dpkg-query -W -f '${db:Status-Status} ${Version}' libhwy-dev 2>/dev/null | sed -n 's/^installed //p'; }
new_enough() { [ -n "$1" ] && [ "$1" != "(none)" ] && dpkg --compare-versions "$1" ge "$hwy_minimum"; }
hwy_candidate() { LC_ALL=C apt-cache policy libhwy-dev 2>/dev/null | sed -n 's/^  Candidate: //p'; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "install_deps.sh: not root and no sudo; as root, please run: apt-get install ${missing[*]}"
  fi
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# The machine's own stanza (deb822) for the suite $1 and component main, rewritten for the suite $2. Nothing where there is none.
derive_deb822() {
  local file
  for file in "$root"/etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] && [ "$file" != "$sources_out" ] || continue
    # Stanzas are separated by blank lines; a field may go on in indented lines (a Signed-By with the key in it).
    awk -v from="$1" -v to="$2" '
      function has(list, word,  n, i, parts) {
        n = split(list, parts, /[ \t]+/)
        for (i = 1; i <= n; ++i) if (parts[i] == word) return 1
        return 0
      }
      function finish() {
        if (!done && has(types, "deb") && has(suites, from) && has(components, "main") && enabled != "no") {
          printf "Types: deb\n%sSuites: %s\nComponents: main\n", uris, to
          printf "%s", rest
          done = 1
        }
        types = suites = components = enabled = uris = rest = field = ""
      }
      /^#/ { next }
      /^[ \t]*$/ { finish(); next }
      /^[ \t]/ {
        if (field == "uris") uris = uris $0 "\n"
        else if (field == "suites") suites = suites " " $0
        else if (field == "rest") rest = rest $0 "\n"
        next
      }
      {
        name = tolower($0); sub(/:.*/, "", name)
        value = $0; sub(/^[^:]*:[ \t]*/, "", value)
        field = name
        if (name == "types") types = value
        else if (name == "uris") uris = $0 "\n"
        else if (name == "suites") suites = value
        else if (name == "components") components = value
        else if (name == "enabled") enabled = tolower(value)
        else if (name == "signed-by" || name == "architectures" || name == "trusted") { rest = rest $0 "\n"; field = "rest" }
      }
      END { finish() }' "$file"
  done | awk '/^Types:/ && ++n > 1 { exit } { print }'  # the first that fits is enough
}

# The same from the one-line format: "deb [options] URI suite component...".
derive_one_line() {
  local file
  for file in "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] && [ "$file" != "$list_out" ] || continue
    sed -nE "s/^[[:space:]]*deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+)[[:space:]]+$1[[:space:]]+(.*[[:space:]])?main([[:space:]].*)?\$/deb \1\2 $2 main/p" "$file"
  done | head -n 1
}

write_if_changed() {  # FILE, text on standard input
  local text
  text=$(cat)
  if [ -f "$1" ] && [ "$(cat "$1")" = "$text" ]; then return; fi
  printf '%s\n' "$text" | as_root tee "$1" >/dev/null
}

add_trixie() {
  local text
  text=$(derive_deb822 bookworm trixie)
  if [ -n "$text" ]; then
    as_root rm -f "$list_out"
    printf '%s\n' "$text" | write_if_changed "$sources_out"
  else
    text=$(derive_one_line bookworm trixie)
    [ -n "$text" ] || die "install_deps.sh: no source of the suite bookworm, component main, in /etc/apt: cannot derive one for Highway $hwy_minimum"
    as_root rm -f "$sources_out"
    printf '%s\n' "$text" | write_if_changed "$list_out"
  fi
  write_if_changed "$pins_out" <<PINS
Package: *
Pin: release n=trixie
Pin-Priority: 1

Package: $hwy_packages
Pin: release n=trixie
Pin-Priority: 600
PINS
}

main() {
  local p id codename need_hwy=1 llvm=0 tools=()
  missing=()
  if [ "${1:-}" = --ci ]; then
    for p in clang-format clang-tidy; do
      if [ -z "$(find_clang_tool $p)" ]; then tools+=("$p-$clang_tools_version"); fi
    done
    packages+=(${tools[@]+"${tools[@]}"})
    can_fuzz || llvm=1
    command -v ld.lld >/dev/null || llvm=1
  fi
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "install_deps.sh: no apt here; needed: ${packages[*]} libhwy-dev (>= $hwy_minimum). Going on without installing anything." >&2
    return 0
  fi
  for p in "${packages[@]}"; do installed "$p" || missing+=("$p"); done
  new_enough "$(hwy_version)" && need_hwy=0
  # Fetched before, by CMake: nothing to install for it.
  if [ $need_hwy = 1 ] && [ -d build/release/_deps/highway-src ]; then need_hwy=0; fi
  if [ ${#missing[@]} -eq 0 ] && [ $need_hwy = 0 ] && [ $llvm = 0 ]; then
    say "install_deps.sh: nothing to install"
    return 0
  fi

  say "install_deps.sh: to install: ${missing[*]} $([ $need_hwy = 0 ] || echo "Highway >= $hwy_minimum") $([ $llvm = 0 ] || echo "clang, lld")"
  as_root apt-get update -q
  if [ $llvm = 1 ]; then  # what the distribution has of them: without, nothing is fuzzed, and links take longer
    for p in clang libclang-rt-dev lld; do
      [ -z "$(apt-cache search --names-only "^$p\$")" ] || missing+=("$p")
    done
  fi
  for p in ${tools[@]+"${tools[@]}"}; do
    if [ -z "$(apt-cache search --names-only "^$p\$")" ]; then
      die "install_deps.sh: no package $p here; one of that version on the PATH will do (pipx has it)"
    fi
  done
  if [ $need_hwy = 1 ]; then
    id=$(. "$root/etc/os-release" && echo "${ID:-}")
    codename=$(. "$root/etc/os-release" && echo "${VERSION_CODENAME:-}")
    if ! new_enough "$(hwy_candidate)" && [ "$id" = debian ] && [ "$codename" = bookworm ]; then
      say "install_deps.sh: Debian 12 has no Highway $hwy_minimum; adding trixie, pinned to $hwy_packages"
      add_trixie
      as_root apt-get update -q
    fi
    if new_enough "$(hwy_candidate)"; then
      missing+=(libhwy-dev)
    else
      say "install_deps.sh: no package of Highway $hwy_minimum here; CMake will fetch its release"
      for p in git ca-certificates; do installed "$p" || missing+=("$p"); done
    fi
  fi
  if [ ${#missing[@]} -gt 0 ]; then apt_install "${missing[@]}"; fi
}

if [ "${1:-}" = --add-trixie-only ]; then add_trixie; else main "$@"; fi
