# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by scripts/package.sh: wheels of the Python module, one for each Python. A module is compiled against the headers of its Python
# and linked with no library of it, so that the oldest root makes all.

wheel_pythons=(jammy:3.10 bookworm:3.11 noble:3.12 trixie:3.13)  # the suite that has it

# suite_apt SUITE FOLDER COMMAND...: an apt of SUITE with a state of its own, in FOLDER. The machine's own apt learns nothing of it.
# $keyring is the file that its signatures are checked with, if that is not the machine's own; with $with_source it has source packages too.
suite_apt() {
  local suite=$1 apt=$2 components type
  shift 2
  if [ ! -e "$apt/apt.conf" ]; then
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    : >"$apt/status"
    components=$(components_of "$suite")
    for type in deb ${with_source:+deb-src}; do
      printf '%s %s %s %s\n' "$type" "${keyring:+[signed-by=$keyring] }$(mirror_of "$suite")" "$suite" "$components"
    done >"$apt/sources.list"
    cat >"$apt/apt.conf" <<CONF
APT::Sandbox::User "root";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::status "$apt/status";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt";
Debug::NoLocking "1";
CONF
    APT_CONFIG=$apt/apt.conf apt-get -q update
  fi
  APT_CONFIG=$apt/apt.conf "$@"
}

# The headers of each Python, and pybind11 of Debian 13, which knows all of them: build/packages/sources/pythonX.Y and pybind11.
fetch_pythons() {
  local sources=$out/sources one suite python apt keyring
  if [ -e "$sources/.pythons" ]; then return; fi
  for one in "${wheel_pythons[@]}" trixie:pybind11; do
    suite=${one%:*} python=${one#*:} apt=$sources/apt-$suite keyring=
    if [ "$(distribution_of "$suite")" = ubuntu ]; then keyring=$KEYRING; fi
    mkdir -p "$apt"
    if [ "$python" = pybind11 ]; then
      (cd "$apt" && suite_apt "$suite" "$apt" apt-get -q download pybind11-dev)
      dpkg-deb -x "$apt"/pybind11-dev_*.deb "$sources/pybind11"
    else
      (cd "$apt" && suite_apt "$suite" "$apt" apt-get -q download "libpython$python-dev")
      dpkg-deb -x "$apt/libpython$python-dev"_*.deb "$sources/python$python"
    fi
  done
  rm -rf "$sources"/apt-*
  : >"$sources/.pythons"
}

make_wheels() {  # SUITE
  local root=$out/roots/$1 one python kept='' stage made=()
  fetch_pythons
  build_root "$1" "g++-$compiler" "${tool_packages[@]}" "${library_packages[@]}"
  put_source "$root"
  cp -r "$out/sources/pybind11" "$root/src/pybind11"
  for one in "${wheel_pythons[@]}"; do cp -r "$out/sources/python${one#*:}" "$root/src/"; done
  if [ -n "$again" ]; then kept=CCACHE_DISABLE=1; fi
  for one in "${wheel_pythons[@]}"; do
    python=${one#*:}
    # The team is of std::thread: a second OpenMP in a process would be another library's neighbour.
    # shellcheck disable=SC2016  # the inner shell's
    in_root "$root" env $kept SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" sh -euc '
      cd /src/tally
      python=$1
      shift
      cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release -DTALLY_STATIC=ON -DTALLY_TEAM=std -DTALLY_PYTHON_STATIC=ON -DTALLY_BUILD_TESTS=OFF \
        -DTALLY_BUILD_BENCH=OFF -DTALLY_MPI=OFF -DTALLY_PULL=ON -DTALLY_MARKDOWN=OFF -DTALLY_MATHS=OFF -DFETCHCONTENT_SOURCE_DIR_HIGHWAY=/src/highway \
        -DCMAKE_PREFIX_PATH="/src/others/usr;/src/pybind11/usr" -DTALLY_PYTHON_SUFFIX=.cpython-$(echo $python | tr -d .)-x86_64-linux-gnu.so \
        "-DTALLY_PYTHON_HEADERS=/src/python$python/usr/include;/src/python$python/usr/include/python$python" "$@" >configure.log 2>&1 ||
        { cat configure.log; exit 1; }
      cmake --build build --target tally_python' - "$python" -DCMAKE_C_COMPILER="gcc-$compiler" -DCMAKE_CXX_COMPILER="g++-$compiler"
    stage=$root/src/wheel-$python
    mkdir -p "$stage/tally"
    cp "$root"/src/tally/build/python/tally/*.py "$root"/src/tally/build/python/tally/*.pyi "$root/src/tally/engine/python/tally/py.typed" \
      "$root/src/tally/models/demo/demo.gguf" "$root"/src/tally/build/python/tally/_tally.cpython-"${python/./}"-*.so "$stage/tally"
    scripts/packaging/parts.sh licences "$root" "$out/sources" "$stage/licences"
    cp LICENSE NOTICE THIRD_PARTY.md "$stage/licences"
    cp "$out/sources/pybind11/usr/share/doc/pybind11-dev/copyright" "$stage/licences/pybind11"
    cp scripts/packaging/wheel/setup.py scripts/packaging/wheel/README.md "$stage"
    chmod -R u=rwX,go=rX "$stage"
    find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    in_root "$root" env SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" TALLY_VERSION="$version" sh -euc '
      cd "$1"
      strip --strip-unneeded tally/*.so
      python3 setup.py -q bdist_wheel --dist-dir out' - "/src/wheel-$python"
    made+=("$(basename "$stage"/out/*.whl)")
    cp "$stage"/out/*.whl "$out/${made[-1]}${again:+.again}"
  done
  finish "${made[@]}"
}

# try_wheel SUITE ROOT: a bare root goes from the wheel to a counted table, in Python and in a notebook.
try_wheel() {
  local suite=$1 root=$2 python
  python=$(for one in "${wheel_pythons[@]}"; do if [ "${one%:*}" = "$suite" ]; then say "${one#*:}"; fi; done)
  [ -n "$python" ] && compgen -G "$out/tally-*-cp${python/./}-*.whl" >/dev/null || return 0
  with_updates "$suite" "$root"
  cp "$out"/tally-*-cp"${python/./}"-*.whl scripts/packaging/wheel/try.py "$root/root/"
  # shellcheck disable=SC2016  # the inner shell's
  in_root "$root" bash -euc '
    cd
    ms() { date +%s%3N; }
    begin=$(ms)
    { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends python3-venv python3-nbclient python3-ipykernel; } >apt.log 2>&1 ||
      { cat apt.log; exit 1; }
    installed=$(ms)
    python3 -m venv --system-site-packages tally-venv
    tally-venv/bin/pip -q --no-input --disable-pip-version-check install --no-index tally-*.whl
    tally-venv/bin/python -c "import tally; print(tally.count(\"gpt-oss-20b\").active_head, tally.load(\"demo\").generate(\"ROMEO:\", max_tokens=8).text)"
    tally-venv/bin/python try.py
    end=$(ms)
    echo "$1: from the wheel to a counted table in a notebook in $((end - begin)) ms, $((end - installed)) ms without installing Python and Jupyter"' - \
    "$suite" || die "$suite: the wheel"
}
