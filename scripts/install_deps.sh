#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the command and the library are built with, on Debian 12 and 13 and on Ubuntu, through apt: also marked, DOMPurify and
# KaTeX, which the chat page embeds and the first of which brings nodejs along; libcurl's header, for `tally pull`, and libedit's, for line
# editing in `tally chat`. Does nothing if nothing is missing. With --tests also what tests and benchmarks use: GoogleTest, Google
# Benchmark, OpenBLAS, which `--impl blas` loads, and for the Python module Python's headers, pybind11, NumPy and pytest.
# With --ci also what .ci/run checks with and no build needs: the clang-format and clang-tidy of scripts/format.sh and
# scripts/tidy.sh, lld, which links sanitized tests faster, and clang++ with libFuzzer, with which a consumer of the installed library
# is built and scripts/fuzz.sh works; Python's jinja2, with which tests/chat compares templates; mypy and nbclient, with which the Python
# module's types and notebook are tested; and Chromium (25 packages, 124 MB), in which tests/browser opens reports. That test wants node
# and npm besides, which are not installed: Debian's npm alone is some hundreds of packages.
# With --arm64, beside any of these: the cross compiler and the emulator of scripts/arm64.sh.
# With --mpi, beside any of these, or where TALLY_MPI=ON is set: Open MPI, with which libtally_mpi.so is built, one model over several
# processes (docs/mpi.md).
#
# Highway must be 1.2 or newer. Debian 12 has 1.0: there the trixie suite of the machine's own package source is added,
# pinned so that nothing but libhwy is ever taken from it. Where the distribution has no newer one (Ubuntu 24.04 and older),
# CMake fetches its release instead (cmake/dependencies.cmake).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=(g++ cmake ninja-build ccache pkg-config libpcre2-dev libutf8proc-dev nlohmann-json3-dev libcli11-dev libedit-dev)
page_packages=(node-marked node-dompurify libjs-katex)  # markdown and formulas in the chat page; Tally builds without
mpi_packages=(libopenmpi-dev openmpi-bin)
arm64_packages=(g++-aarch64-linux-gnu qemu-user)
test_packages=(libgtest-dev libbenchmark-dev libopenblas0-pthread)
python_packages=(python3-dev pybind11-dev python3-numpy python3-pytest)  # the Python module and its tests
python_ci_packages=(mypy python3-nbclient python3-ipykernel)             # its types and its notebook
hwy_minimum=1.2
hwy_packages="libhwy-dev libhwy1t64"

sources_out=/etc/apt/sources.list.d/tally-trixie.sources
list_out=/etc/apt/sources.list.d/tally-trixie.list
pins_out=/etc/apt/preferences.d/tally-trixie

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
hwy_version() { dpkg-query -W -f '${db:Status-Status} ${Version}' libhwy-dev 2>/dev/null | sed -n 's/^installed //p'; }
new_enough() { [ -n "$1" ] && [ "$1" != "(none)" ] && dpkg --compare-versions "$1" ge "$hwy_minimum"; }
hwy_candidate() { LC_ALL=C apt-cache policy libhwy-dev 2>/dev/null | sed -n 's/^  Candidate: //p'; }

has_browser() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }
in_apt() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep '^  Candidate: [^(]' >/dev/null; }

may_be_root() { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Waits for another apt: a new machine's own is often busy with its updates.
apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }

# "URI SUITE" of every enabled source of Debian 12 itself, by what its Release file says of its origin: a vendor's may
# be called bookworm, too.
debian_sources() {
  # shellcheck disable=SC2016  # apt's variables
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 'Codename: bookworm' 'Component: main'
}

# The first stanza (deb822) that is one of those in $ours, rewritten for trixie. Nothing where there is none.
derive_deb822() {
  local file text
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] && [ "$file" != "$sources_out" ] || continue
    # Stanzas are separated by blank lines; a field may go on in indented lines (a Signed-By with the key in it).
    text=$(ours="$ours" awk '
      function finish(  n, m, i, j, u, s) {
        n = split(uris, u, /[ \t\n]+/)
        m = split(suites, s, /[ \t\n]+/)
        for (i = 1; i <= n && !done; ++i) for (j = 1; j <= m && !done; ++j) {
          if (index("\n" ENVIRON["ours"] "\n", "\n" u[i] (u[i] ~ /\/$/ ? "" : "/") " " s[j] "\n") == 0) continue
          if (u[i] == "" || enabled ~ /^(no|false|off|0|without|disable)$/ || types !~ /(^|[ \t])deb([ \t]|$)/) continue
          printf "Types: deb\nURIs: %s\nSuites: trixie\nComponents: main\n%s", u[i], rest
          done = 1
        }
        types = suites = enabled = uris = rest = field = ""
      }
      /^#/ { next }
      /^[ \t]*$/ { finish(); next }
      /^[ \t]/ {
        if (field == "uris") uris = uris " " $0
        else if (field == "suites") suites = suites " " $0
        else if (field == "rest") rest = rest $0 "\n"
        next
      }
      {
        field = tolower($0); sub(/:.*/, "", field)
        value = $0; sub(/^[^:]*:[ \t]*/, "", value)
        if (field == "types") types = value
        else if (field == "uris") uris = value
        else if (field == "suites") suites = value
        else if (field == "enabled") enabled = tolower(value)
        else if (field ~ /^(signed-by|architectures|trusted|check-valid-until)$/) { rest = rest $0 "\n"; field = "rest" }
      }
      END { finish() }' "$file")
    if [ -n "$text" ]; then
      printf '%s\n' "$text"
      return
    fi
  done
}

# The same from the one-line format: "deb [options] URI suite component...".
derive_one_line() {
  local file text
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] && [ "$file" != "$list_out" ] || continue
    text=$(ours="$ours" awk '
      !done && /^[ \t]*deb[ \t]/ {
        line = $0; options = ""
        sub(/^[ \t]*deb[ \t]+/, "", line)
        if (match(line, /^\[[^]]*\][ \t]+/)) { options = substr(line, 1, RLENGTH); line = substr(line, RLENGTH + 1) }
        split(line, word, /[ \t]+/)
        if (index("\n" ENVIRON["ours"] "\n", "\n" word[1] (word[1] ~ /\/$/ ? "" : "/") " " word[2] "\n") == 0) next
        print "deb " options word[1] " trixie main"
        done = 1
      }' "$file")
    if [ -n "$text" ]; then
      printf '%s\n' "$text"
      return
    fi
  done
}

# What is written is for everybody to read, whatever the umask.
write_if_changed() {  # FILE, text on standard input
  local text
  text=$(cat)
  if [ -f "$1" ] && [ "$(cat "$1")" = "$text" ]; then return; fi
  printf '%s\n' "$text" | as_root install -m 644 /dev/stdin "$1"
}

# Adds the suite trixie of the machine's own source and reads its index; takes it away again and fails where that cannot be done. Called
# where errexit is off. The pins come first: trixie never stands without them.
add_trixie() {
  local text ours out other
  ours=$(debian_sources)
  text=$(derive_deb822) out=$sources_out other=$list_out
  if [ -z "$text" ]; then text=$(derive_one_line) out=$list_out other=$sources_out; fi
  [ -n "$text" ] || return 1
  write_if_changed "$pins_out" <<PINS || return 1
Package: *
Pin: release n=trixie
Pin-Priority: -1

Package: $hwy_packages
Pin: release n=trixie
Pin-Priority: 600
PINS
  as_root rm -f "$other" || return 1
  write_if_changed "$out" <<<"$text" || return 1
  apt update || {
    as_root rm -f "$out" "$pins_out"
    return 1
  }
}

main() {
  local p id codename need_hwy=1 llvm=0 browser=0 page=0 tools=()
  local what="" mpi=${TALLY_MPI:-} arm64=
  missing=()
  for p in "$@"; do
    case $p in
      --mpi) mpi=ON ;;
      --arm64) arm64=ON ;;
      *) what=$p ;;
    esac
  done
  # `tally pull`'s. Either flavour's header will do, and they exclude each other.
  if ! compgen -G '/usr/include/*/curl/curl.h' >/dev/null && [ ! -f /usr/include/curl/curl.h ]; then packages+=(libcurl4-openssl-dev); fi
  if [ "$mpi" = ON ]; then packages+=("${mpi_packages[@]}"); fi
  if [ "$arm64" = ON ]; then packages+=("${arm64_packages[@]}"); fi
  case $what in
    '') ;;
    --tests | --ci)
      packages+=("${test_packages[@]}" "${python_packages[@]}")
      ;;
    *) die "install_deps.sh: '$what': --tests, --ci or nothing, and --mpi and --arm64" ;;
  esac
  if [ "$what" = --ci ]; then
    for p in clang-format clang-tidy; do
      if [ -z "$(find_clang_tool $p)" ]; then tools+=("$p-$clang_tools_version"); fi
    done
    packages+=(${tools[@]+"${tools[@]}"} "${python_ci_packages[@]}")
    python3 -c 'import jinja2' 2>/dev/null || packages+=(python3-jinja2)
    # The report's pages are tested in a browser where there are node and npm.
    if command -v node >/dev/null && command -v npm >/dev/null && ! has_browser; then browser=1; fi
    can_fuzz || llvm=1
    command -v ld.lld >/dev/null || llvm=1
  fi
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "install_deps.sh: no apt here; needed: ${packages[*]} libhwy-dev (>= $hwy_minimum). Going on without installing anything." >&2
    return 0
  fi
  for p in "${packages[@]}"; do installed "$p" || missing+=("$p"); done
  for p in "${page_packages[@]}"; do installed "$p" || page=1; done
  new_enough "$(hwy_version)" && need_hwy=0
  # Fetched before, by CMake: nothing to install for it.
  if [ $need_hwy = 1 ] && { [ -d build/release/_deps/highway-src ] || [ -d build/native/_deps/highway-src ]; }; then need_hwy=0; fi
  if [ ${#missing[@]} -eq 0 ] && [ $need_hwy = 0 ] && [ $llvm = 0 ] && [ $browser = 0 ] && [ $page = 0 ]; then
    say "install_deps.sh: nothing to install"
    return 0
  fi

  if ! may_be_root; then
    if [ ${#missing[@]} -gt 0 ]; then
      die "install_deps.sh: not root and no sudo; as root, please run: apt-get install ${missing[*]}$([ $need_hwy = 0 ] || echo " libhwy-dev")"
    fi
    say "install_deps.sh: not root and no sudo: going on without$([ $need_hwy = 0 ] || echo " a package of Highway, whose release CMake will fetch")$([ $llvm = 0 ] || echo " clang or lld")$([ $browser = 0 ] || echo " chromium")$([ $page = 0 ] || echo " markdown and formulas in the chat page")"
    return 0
  fi
  say "install_deps.sh: to install: ${missing[*]} $([ $need_hwy = 0 ] || echo "Highway >= $hwy_minimum") $([ $llvm = 0 ] || echo "clang, lld") $([ $browser = 0 ] || echo chromium) $([ $page = 0 ] || echo "${page_packages[*]}")"
  apt update
  if [ $browser = 1 ] && in_apt chromium; then missing+=(chromium); fi  # a new machine's lists are empty until here
  if [ $page = 1 ]; then
    for p in "${page_packages[@]}"; do
      if ! installed "$p" && in_apt "$p"; then missing+=("$p"); fi
    done
  fi
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
    id=$(. /etc/os-release && echo "${ID:-}")
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    if ! new_enough "$(hwy_candidate)" && [ "$id" = debian ] && [ "$codename" = bookworm ]; then
      say "install_deps.sh: Debian 12 has no Highway $hwy_minimum; adding trixie, pinned to $hwy_packages"
      add_trixie || say "install_deps.sh: no source in /etc/apt from which trixie could be had"
    fi
    if new_enough "$(hwy_candidate)"; then
      missing+=(libhwy-dev)
    else
      say "install_deps.sh: no package of Highway $hwy_minimum here; CMake will fetch its release"
      installed ca-certificates || missing+=(ca-certificates)
    fi
  fi
  if [ ${#missing[@]} -gt 0 ]; then apt install -y --no-install-recommends "${missing[@]}"; fi
}

main "$@"
