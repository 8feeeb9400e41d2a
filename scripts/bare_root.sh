#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The quickstart as a new user has it: bootstraps SUITE (bookworm, trixie, noble) into an empty folder, with nothing in it but git, and
# runs scripts/demo.sh, or COMMAND, there from a clean clone of this repository, as root and with nothing cached:
#   scripts/bare_root.sh SUITE [COMMAND...]
# Wants root and debootstrap. Packages come from where this machine's own do; for a suite of another distribution give $MIRROR, and
# $COMPONENTS for more than main (noble: main,universe).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -gt 0 ] || die "bare_root.sh: give the SUITE to bootstrap, such as bookworm"
suite=$1
shift
if [ $# -eq 0 ]; then set -- scripts/demo.sh; fi
[ "$(id -u)" = 0 ] || die "bare_root.sh: chroot and mount want root"
command -v debootstrap >/dev/null || die "bare_root.sh: debootstrap is missing"
[ -z "$(git status --porcelain)" ] || die "bare_root.sh: what is not committed would not be cloned"
own=$({ apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null || true; } |
  awk '($1 == "Debian" || $1 == "Ubuntu") && $2 !~ /security/ && !n++ { print $2 }')
mirror=${MIRROR:-$own}
[ -n "$mirror" ] || die "bare_root.sh: cannot see where this machine's packages come from: set MIRROR"

root=$(mktemp -d /var/tmp/tally-root-XXXXXX)
cleanup() {
  local at
  for at in dev/pts dev sys proc; do umount "$root/$at" 2>/dev/null || true; done
  # Nothing is removed through a mount that would not go.
  if grep -qF " $root/" /proc/mounts; then
    say "bare_root.sh: $root is still in use and was left"
  else
    rm -rf --one-file-system "$root" "$root.log"
  fi
}
trap cleanup EXIT

debootstrap --variant=minbase --components="${COMPONENTS:-main}" --include=ca-certificates,git "$suite" "$root" "$mirror" >"$root.log" 2>&1 || {
  tail -n 5 "$root.log" >&2
  die "bare_root.sh: debootstrap $suite"
}
for at in proc sys dev dev/pts; do
  mount --bind "/$at" "$root/$at"
  mount --make-private "$root/$at"  # what is mounted there is mounted nowhere else
done
cp /etc/resolv.conf "$root/etc/resolv.conf"
git clone -q . "$root/root/tally"
say "$suite from $mirror, commit $(git rev-parse --short HEAD): $*"
begin=$SECONDS rc=0
chroot "$root" env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} sh -c 'cd /root/tally && exec "$@"' - "$@" || rc=$?
say "$suite: $((SECONDS - begin)) s, exit code $rc"
exit $rc
