#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes packages of the commit that is checked out, in build/packages (docs/packages.md):
#   scripts/package.sh source            tally-VERSION.tar.gz, what git has, and the formula tally.rb, which fetches it from $RELEASE_URL;
#                                        $HOMEPAGE is its page
#   scripts/package.sh archive [SUITE]   tally-VERSION-linux-x86-64-glibcN.tar.zst, built in a root of SUITE (jammy)
#   scripts/package.sh archive-arm64     the same for AArch64, cross-compiled in a root of bookworm and run by qemu-user
#   scripts/package.sh wheels [SUITE]    wheels of the Python module, one for each Python, built in a root of SUITE (jammy)
#   scripts/package.sh deb [SUITE]       Debian packages, built in a root of SUITE (bookworm) and checked by lintian
#   scripts/package.sh try [SUITE...]    what there is, in bare roots (bookworm, trixie, jammy, noble): from an archive to a chat, and the
#                                        packages, installed, where they were made for that suite
# --again, after what is made: nothing compiled is reused, and the bytes must be those that are there.
#
# Wants root, debootstrap and zstd; lintian and qemu-user for what uses them. Packages come from where this machine's own do; for a suite
# of another distribution give $MIRROR. Roots for building are kept in build/packages/roots; remove them to have newer packages.
. "$(dirname "${BASH_SOURCE[0]}")/roots.sh"
. scripts/packaging/wheels.sh

mkdir -p build/packages
out=$(cd build/packages && pwd -P)  # as it stands in /proc/mounts
version=$(sed -n 's/^project(tally VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
demo_prompt="hello"
# shellcheck disable=SC2034  # make_root's
KEYRING=$out/sources/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg
again=

# What the command is compiled with. Of libcurl and libedit it takes the headers: it loads them where a system has them. Headers and
# scripts that become part of it are the same whatever the root: this machine's suite has them as they are tested.
library_packages=(libpcre2-dev libutf8proc-dev libedit-dev libcurl4-openssl-dev)
other_packages=(nlohmann-json3-dev libcli11-dev node-marked node-dompurify libjs-katex)
tool_packages=(cmake ninja-build ccache pkg-config python3-setuptools python3-wheel)
# One compiler for every archive.
compiler=12

# A root that is kept, with PACKAGES installed and the suite's updates.
build_root() {  # SUITE PACKAGE...
  local suite=$1 root=$out/roots/$1 stamp
  stamp=$root/.packages
  shift
  if [ "$(cat "$stamp" 2>/dev/null)" = "$*" ]; then return; fi
  mkdir -p "$out/roots"
  [ -d "$root/etc" ] || make_root "$suite" "$root" ca-certificates
  with_updates "$suite" "$root"
  in_root "$root" sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"' - "$@" >"$root.log" 2>&1 || {
    tail -n 20 "$root.log" >&2
    die "packages of $suite"
  }
  say "$*" >"$stamp"
}

# Highway's release, the other packages, and Ubuntu's keyring, from Debian's sources, in build/packages/sources. Highway's source package
# is its release as it came; the checksum is CMake's.
fetch_sources() {
  local sources=$out/sources apt=$out/sources/apt hash keyring=
  if [ -e "$sources/.complete" ]; then return; fi
  rm -rf "$sources"
  mkdir -p "$apt" "$sources/highway/debian"
  (cd "$apt" && with_source=yes suite_apt trixie "$apt" apt-get -q --download-only source highway && suite_apt trixie "$apt" apt-get -q download ubuntu-keyring)
  dpkg-deb -x "$apt"/ubuntu-keyring_*.deb "$sources/keyring"
  hash=$(sed -n 's/.*URL_HASH SHA256=\([0-9a-f]*\).*/\1/p' cmake/dependencies.cmake)
  printf '%s  %s\n' "$hash" "$(ls "$apt"/highway_*.orig.tar.gz)" | sha256sum --check --quiet
  tar -xf "$apt"/highway_*.orig.tar.gz --strip-components=1 -C "$sources/highway"
  tar -xf "$apt"/highway_*.debian.tar.xz -C "$sources/highway" debian/copyright debian/changelog
  apt-get -q update
  (cd "$sources" && apt-get -q -o APT::Sandbox::User=root download "${other_packages[@]}")
  rm -rf "$apt"
  : >"$sources/.complete"
}

# The commit's tree in ROOT/src/tally, and what it is built with beside the root's packages. The paths are the same everywhere, so the
# bytes are.
put_source() {  # ROOT
  local root=$1 deb
  [ -z "$(git status --porcelain)" ] || die "package.sh: what is not committed would not be packaged"
  rm -rf "$root/src"
  mkdir -p "$root/src/tally" "$root/src/others"
  git archive HEAD | tar -x -C "$root/src/tally"
  cp -r "$out/sources/highway" "$root/src/highway"
  for deb in "$out"/sources/*.deb; do dpkg-deb -x "$deb" "$root/src/others"; done
}

# build_archive ROOT MACHINE LIBC_VERSION CMAKE_OPTION...: the archive, of what ROOT/src/tally builds there.
build_archive() {
  local root=$1 machine=$2 libc=$3 name kept=
  shift 3
  name=tally-$version-linux-$machine-glibc$libc
  if [ -n "$again" ]; then kept=CCACHE_DISABLE=1; fi
  # shellcheck disable=SC2016  # the inner shell's
  in_root "$root" env $kept SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" sh -euc '
    cd /src/tally
    page=/src/others/usr/share
    cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release -DTALLY_STATIC=ON -DTALLY_BUILD_TESTS=OFF -DTALLY_BUILD_BENCH=OFF -DTALLY_MPI=OFF \
      -DTALLY_PULL=ON -DTALLY_LINE_EDITING=ON -DTALLY_MARKDOWN=ON -DTALLY_MARKED_JS=$page/nodejs/marked/lib/marked.umd.min.js \
      -DTALLY_DOMPURIFY_JS=$page/nodejs/dompurify/dist/purify.min.js -DTALLY_MATHS=ON -DTALLY_KATEX_JS=$page/javascript/katex/katex.min.js \
      -DFETCHCONTENT_SOURCE_DIR_HIGHWAY=/src/highway \
      -DCMAKE_PREFIX_PATH=/src/others/usr "$@" >configure.log 2>&1 || { cat configure.log; exit 1; }
    cmake --build build --target tally tally_shell_files
    cmake --install build --component command --strip --prefix /src/install >/dev/null' - "$@"
  local tree=$root/src/$name
  mv "$root/src/install" "$tree"
  sed -e "s/@VERSION@/$version/g" -e "s/@MACHINE@/$machine/g" -e "s/@LIBC@/$libc/g" scripts/packaging/archive_readme.txt >"$tree/README"
  scripts/packaging/parts.sh licences "$root" "$out/sources" "$tree/share/doc/tally/licences"
  scripts/packaging/parts.sh sbom "$root" "$out/sources" "$name" "$version" "$commit" >"$tree/share/doc/tally/tally.spdx"
  pack "$root/src" "$name" "$out/$name.tar.zst${again:+.again}"
  cp "$tree/share/doc/tally/tally.spdx" "$out/$name.spdx"
  finish "$name.tar.zst"
}

# pack FOLDER NAME OUT: NAME in FOLDER as a tar.zst whose bytes depend on the files alone.
pack() {
  chmod -R u=rwX,go=rX "$1/$2"
  tar -C "$1" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$2" | zstd -q -19 -T1 -f -o "$3"
}

# finish FILE...: with --again FILE.again has FILE's bytes; else the checksums are written anew.
finish() {
  local file
  for file in "$@"; do
    if [ -n "$again" ]; then
      cmp "$out/$file" "$out/$file.again" || die "package.sh: $file: another build has other bytes"
      rm "$out/$file.again"
      say "$file: built again, the same bytes"
    else
      say "$file: $(stat -c %s "$out/$file" | numfmt --grouping) bytes"
    fi
  done
  (cd "$out" && find . -maxdepth 1 -type f \( -name '*.tar.*' -o -name '*.deb' -o -name '*.whl' -o -name '*.spdx' -o -name '*.rb' \) -printf '%f\n' |
    LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
}

make_source() {
  git archive --prefix="tally-$version/" HEAD | gzip -n9 >"$out/tally-$version.tar.gz"
  # The formula is whole once it knows what to fetch.
  local url=${RELEASE_URL:-file://$out}
  sed -e "s|@SHA256@|$(sha256sum <"$out/tally-$version.tar.gz" | cut -d' ' -f1)|" -e "s|@VERSION@|$version|" \
    -e "s|@URL@|$url/tally-$version.tar.gz|" -e "s|@HOMEPAGE@|${HOMEPAGE:-$url}|" scripts/packaging/tally.rb >"$out/tally.rb"
  finish "tally-$version.tar.gz"
}

make_archive() {  # SUITE
  local root=$out/roots/$1 libc
  build_root "$1" "g++-$compiler" "${tool_packages[@]}" "${library_packages[@]}"
  put_source "$root"
  libc=$(in_root "$root" getconf GNU_LIBC_VERSION | sed 's/.* //')
  build_archive "$root" x86-64 "$libc" -DCMAKE_C_COMPILER="gcc-$compiler" -DCMAKE_CXX_COMPILER="g++-$compiler"
  tests/package/archive.sh "$out/tally-$version-linux-x86-64-glibc$libc.tar.zst"
}

make_archive_arm64() {
  local root=$out/roots/bookworm libc arm=/src/arm64_root emulated
  build_root bookworm "${tool_packages[@]}" g++-aarch64-linux-gnu qemu-user "${library_packages[@]}"
  put_source "$root"
  in_root "$root" /src/tally/scripts/arm64_root.sh $arm libc6-dev libstdc++6 "${library_packages[@]}" >"$root.log" 2>&1 || die "arm64 packages: see $root.log"
  libc=$(in_root "$root" getconf GNU_LIBC_VERSION | sed 's/.* //')
  build_archive "$root" aarch64 "$libc" -DCMAKE_TOOLCHAIN_FILE=/src/tally/cmake/arm64.cmake -DTALLY_ARM64_ROOT=$arm -DCMAKE_FIND_ROOT_PATH=/src/others
  emulated=("qemu-aarch64" -L "$root$arm")
  tests/package/archive.sh "$out/tally-$version-linux-aarch64-glibc$libc.tar.zst" "${emulated[@]}"
}

# The packages' versions end in the suite, since libraries have other names there: 0.2.0-1~bookworm. A suite without Highway 1.2 compiles
# it in, from a second tarball of the source package.
make_deb() {  # SUITE
  local suite=$1 root=$out/roots/$1 tree profile='' made
  build_root "$suite" build-essential debhelper fakeroot "${tool_packages[@]}" "${library_packages[@]}" nlohmann-json3-dev libcli11-dev dh-python python3-dev pybind11-dev
  put_source "$root"
  tree=$root/src/tally
  cp -r scripts/packaging/debian "$tree/debian"
  sed -i "1s/(\([^)]*\)) [^;]*;/(\1~$suite) $suite;/" "$tree/debian/changelog"
  cp -r "$root/src/others" "$tree/debian/page"
  if ! in_root "$root" apt-cache policy libhwy-dev | grep -E 'Candidate: (1\.[2-9]|[2-9])' >/dev/null; then
    profile=pkg.tally.highway
    mv "$root/src/highway" "$tree/debian/highway"
  else
    in_root "$root" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends libhwy-dev >/dev/null
  fi
  in_root "$root" env SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" DEB_BUILD_PROFILES="$profile" CCACHE_DIR=/root/.cache/ccache ${again:+CCACHE_DISABLE=1} \
    sh -c 'cd /src/tally && dpkg-buildpackage -b -us -uc' >"$root.log" 2>&1 || {
    tail -n 30 "$root.log" >&2
    die "dpkg-buildpackage: see $root.log"
  }
  made=()
  while IFS= read -r deb; do
    cp "$root/src/$deb" "$out/$deb${again:+.again}"
    made+=("$deb")
  done < <(cd "$root/src" && printf '%s\n' *.deb)
  if [ -z "$again" ] && command -v lintian >/dev/null; then
    cp "$root"/src/tally_*.changes "$root"/src/tally_*.buildinfo "$out"
    (cd "$out" && lintian --allow-root --fail-on error --suppress-tags bad-distribution-in-changes-file ./tally_"$version"*~"$suite"_*.changes) || die "lintian has found errors"
    rm -f "$out"/*.changes "$out"/*.buildinfo
  fi
  finish "${made[@]}"
}

# In a root with nothing in it: zstd is installed, the archive unpacked, a message answered. Prints the time of all and of the last two.
try_archive() {  # SUITE ARCHIVE ROOT
  local suite=$1 archive=$2 root=$3 name
  name=$(basename "$archive" .tar.zst)
  cp "$archive" "$root/root/"
  # shellcheck disable=SC2016  # the inner shell's
  in_root "$root" bash -euc '
    cd
    ms() { date +%s%3N; }
    begin=$(ms)
    if ! command -v zstd >/dev/null; then { apt-get -q update && apt-get -q install -y --no-install-recommends zstd; } >apt.log 2>&1 || { cat apt.log; exit 1; }; fi
    unpack=$(ms)
    tar -xf "$1.tar.zst"
    echo "$2" | "$1"/bin/tally chat
    end=$(ms)
    echo "$3: $1: zstd installed, unpacked and a chat answered in $((end - begin)) ms, $((end - unpack)) ms without installing zstd"
    "$1"/bin/tally run -q -n 8 -p "ROMEO:" >/dev/null' - "$name" "$demo_prompt" "$suite" || die "$suite: tally chat"
}

# By the steps of the Dockerfile (COPY and RUN), in the root as it was bootstrapped; then the library and the Python module, each with a
# program that uses it.
try_debs() {  # SUITE ROOT
  local suite=$1 root=$2 step rest files
  with_updates "$suite" "$root"
  while read -r step rest; do
    case $step in
      COPY)
        read -r -a files <<<"${rest//bookworm/$suite}"
        # shellcheck disable=SC2086  # the pattern's files
        cp ${files[0]} "$root${files[1]}"
        ;;
      RUN) in_root "$root" env DEBIAN_FRONTEND=noninteractive sh -ec "$rest" </dev/null ;;
    esac
  done < <(grep -E '^(COPY|RUN) ' scripts/packaging/Dockerfile) >"$root.log" 2>&1 || {
    tail -n 30 "$root.log"
    die "$suite: the Dockerfile's steps"
  }
  mkdir "$root/root/library"
  cp "$out"/{libtally,python3-tally}*~"$suite"_*.deb tests/package/consumer/main.cc "$root/root/library"
  # shellcheck disable=SC2016  # the inner shell's
  in_root "$root" sh -euc '
    tally --version
    su tally -c "echo \"$1\" | tally chat"
    apt-get -q update
    DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends /root/library/*.deb g++ pkg-config
    cd /root/library
    g++ -std=c++20 main.cc -o consumer $(pkg-config --cflags --libs tally)
    ./consumer demo "ROMEO:"
    python3 -c "import tally; print(tally.load(\"demo\").generate(\"ROMEO:\", max_tokens=8))"
    dpkg --verify tally libtally-dev python3-tally' - "$demo_prompt" >>"$root.log" 2>&1 || {
    tail -n 30 "$root.log"
    die "$suite: packages"
  }
  say "$suite: the packages are installed by the Dockerfile's steps; chat, a program of C++ and one of Python run"
}

try_suite() {  # SUITE
  local suite=$1 root archive
  root=$(mktemp -d "$out/try-$suite-XXXXXX")
  # shellcheck disable=SC2064  # this root
  trap "remove_root '$root'" EXIT
  make_root "$suite" "$root"
  for archive in $(compgen -G "$out/tally-$version-linux-x86-64-*.tar.zst"); do try_archive "$suite" "$archive" "$root"; done
  try_wheel "$suite" "$root"
  if compgen -G "$out/*~${suite}_*.deb" >/dev/null; then try_debs "$suite" "$root"; fi
}

what=${1:-}
shift || true
[ "$(id -u)" = 0 ] || [ "$what" = source ] || die "package.sh: chroot and mount want root"
rest=()
for option in "$@"; do
  if [ "$option" = --again ]; then again=yes; else rest+=("$option"); fi
done
set -- ${rest[@]+"${rest[@]}"}
case $what in
  source) stage "source" make_source ;;
  archive | archive-arm64 | wheels | deb)
    stage "sources" fetch_sources
    case $what in
      archive) stage "archive in ${1:-jammy}" make_archive "${1:-jammy}" ;;
      wheels) stage "wheels in ${1:-jammy}" make_wheels "${1:-jammy}" ;;
      archive-arm64) stage "archive for AArch64" make_archive_arm64 ;;
      deb) stage "packages in ${1:-bookworm}" make_deb "${1:-bookworm}" ;;
    esac
    ;;
  try)
    stage "sources" fetch_sources
    [ $# -gt 0 ] || set -- bookworm trixie jammy noble
    for suite in "$@"; do stage "try in $suite" try_suite "$suite"; done
    ;;
  *) die "package.sh: '$what': source, archive, archive-arm64, wheels, deb or try" ;;
esac
stage_summary
