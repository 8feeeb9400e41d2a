#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The quickstart as a new user has it: bootstraps SUITE (bookworm, trixie, noble) into an empty folder, with nothing in it but git, and
# runs scripts/demo.sh, or COMMAND, there from a clean clone of this repository, as root and with nothing cached:
#   scripts/bare_root.sh SUITE [COMMAND...]
# Wants root and debootstrap. Packages come from where this machine's own do; for a suite of another distribution give $MIRROR.
. "$(dirname "${BASH_SOURCE[0]}")/roots.sh"

[ $# -gt 0 ] || die "bare_root.sh: give the SUITE to bootstrap, such as bookworm"
suite=$1
shift
if [ $# -eq 0 ]; then set -- scripts/demo.sh; fi
[ "$(id -u)" = 0 ] || die "bare_root.sh: chroot and mount want root"
[ -z "$(git status --porcelain)" ] || die "bare_root.sh: what is not committed would not be cloned"

root=$(mktemp -d /var/tmp/tally-root-XXXXXX)
trap 'remove_root "$root"' EXIT
make_root "$suite" "$root" ca-certificates git
git clone -q . "$root/root/tally"
say "$suite, commit $(git rev-parse --short HEAD): $*"
begin=$SECONDS rc=0
in_root "$root" sh -c 'cd /root/tally && exec "$@"' - "$@" || rc=$?
say "$suite: $((SECONDS - begin)) s, exit code $rc"
exit $rc
