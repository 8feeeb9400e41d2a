# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced, for root: bare systems of Debian and Ubuntu, made by debootstrap, and commands that run in them.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Where packages of SUITE come from: $MIRROR for a suite of another distribution than this machine's, else this machine's own source.
mirror_of() {  # SUITE
  local own id
  id=$(. /etc/os-release && printf '%s' "${ID:-}")
  # shellcheck disable=SC2016  # apt's variables
  own=$({ apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null || true; } |
    awk '($1 == "Debian" || $1 == "Ubuntu") && $2 !~ /security/ && !n++ { print $2 }')
  if [ "$(distribution_of "$1")" != "$id" ] || [ -z "$own" ]; then own=${MIRROR:-}; fi
  [ -n "$own" ] || die "no source of packages for $1: set MIRROR"
  printf '%s\n' "$own"
}

distribution_of() {  # SUITE
  case $1 in
    bullseye | bookworm | trixie | forky | sid) say debian ;;
    *) say ubuntu ;;
  esac
}

components_of() { if [ "$(distribution_of "$1")" = ubuntu ]; then say main universe; else say main; fi; }

# make_root SUITE FOLDER PACKAGE...: a root of essential packages and these, and of nothing else. Signatures are checked where the
# distribution's keyring is installed, or is the file $KEYRING; debootstrap warns where there is none.
make_root() {
  local suite=$1 root=$2 mirror components packages keyring='' scripts=/usr/share/debootstrap/scripts
  shift 2
  command -v debootstrap >/dev/null || die "debootstrap is missing"
  mirror=$(mirror_of "$suite")
  components=$(components_of "$suite")
  packages=$(IFS=, && printf '%s' "$*")
  local script=$scripts/$suite
  if [ "$(distribution_of "$suite")" = ubuntu ]; then
    keyring=${KEYRING:-}
    [ -e "$script" ] || script=$scripts/gutsy  # newer than debootstrap: what it has for all of Ubuntu's
  fi
  debootstrap --variant=minbase --components="${components// /,}" ${keyring:+"--keyring=$keyring"} ${packages:+"--include=$packages"} \
    "$suite" "$root" "$mirror" "$script" >"$root.log" 2>&1 || {
    tail -n 5 "$root.log" >&2
    die "debootstrap $suite"
  }
  chmod 755 "$root"  # a folder of mktemp's would be closed to all users but root
  rm -f "$root.log"
}

# with_updates SUITE ROOT: its sources have the suite's updates too, security's among them.
with_updates() {
  local suite=$1 root=$2 mirror components security
  mirror=$(mirror_of "$suite")
  components=$(components_of "$suite")
  security=$mirror
  if [ "$(distribution_of "$suite")" = debian ]; then
    # shellcheck disable=SC2016  # apt's variables
    security=$({ apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian-Security' || true; } | sort -u | head -n 1)
  fi
  {
    printf 'deb %s %s %s\n' "$mirror" "$suite" "$components" "$mirror" "$suite-updates" "$components"
    if [ -n "$security" ]; then printf 'deb %s %s %s\n' "$security" "$suite-security" "$components"; fi
  } >"$root/etc/apt/sources.list"
}

# in_root ROOT COMMAND...: runs it there as root, with an empty environment. What is mounted there is seen by the command alone, and goes
# with it however it ends: a root that is removed never has a mount in it.
in_root() {
  local root=$1
  shift
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # shellcheck disable=SC2016  # the inner shell's
  unshare --mount --propagation private sh -euc '
    root=$1
    shift
    for at in proc sys dev dev/pts; do mount --bind "/$at" "$root/$at"; done
    exec chroot "$root" env -i "$@"' - "$root" HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} "$@"
}

# Removes a root, but not through a mount that somebody made in it.
remove_root() {
  if grep -qF " $1/" /proc/mounts; then
    say "$1 is still in use and was left"
  else
    rm -rf --one-file-system "$1" "$1.log"
  fi
}
