#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# arm64_root.sh FOLDER PACKAGE...: unpacks these arm64 packages and what they need into FOLDER, a root for a cross compiler and qemu-user.
# By an apt with a state of its own, and the system's sources and preferences: the system's own apt and dpkg learn nothing of that
# architecture. Nothing is done where FOLDER has them all.
folder=$1
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "${caller_dir:?}" || exit
mkdir -p "$folder"
root=$(cd "$folder" && pwd)
packages=("${@:2}")
apt=$root.apt
stamp=$root/.complete
if [ "$(cat "$stamp" 2>/dev/null)" = "${packages[*]}" ]; then exit 0; fi
rm -rf "$root" "$apt"
mkdir -p "$root" "$apt/lists/partial" "$apt/archives/partial"
: >"$apt/status"
cat >"$apt/apt.conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "0";
APT::Sandbox::User "root";
Dir::State::status "$apt/status";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt";
Dir::Cache::archives "$apt/archives";
Debug::NoLocking "1";
CONF
export APT_CONFIG=$apt/apt.conf
apt-get -q update
apt-get -q -y --download-only install "${packages[@]}"
for deb in "$apt"/archives/*.deb; do dpkg-deb -x "$deb" "$root"; done
# Links that start at / mean the root's.
find "$root" -type l -lname '/*' | while IFS= read -r link; do ln -sfnr "$root$(readlink "$link")" "$link"; done
rm -rf "$apt"
printf '%s\n' "${packages[*]}" >"$stamp"
