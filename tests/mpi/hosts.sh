#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts on one machine: network namespaces with host names of their own, joined by a switch whose links have a bandwidth. Runs a
# program under mpirun, one rank a host. Wants root, ip, tc, and Open MPI. The kernel's token bucket limits each direction of each
# link; delay is the plug-in's (TALLY_MPI_DELAY_US), as not every kernel has netem.
#   tests/mpi/hosts.sh [-n HOSTS] [-r RATE] [-c] [-x NAME]... PROGRAM ARGUMENT...
#     -n HOSTS  2       -r RATE  of tc: 1gbit; none
#     -p BYTES  9000: of a packet. Above some gigabits a second larger ones are needed: 65000
#     -c        host k may use core k alone (modulo the cores), as if it had no other
#     -t SECONDS  mpirun is killed after so many: it waits for a host that it has lost, for many minutes
#     -x NAME   a variable of the environment that the ranks are to have
set -euo pipefail

# As mpirun's launch agent: HOST COMMAND. The daemon that it starts is in the host's namespace, and all its ranks.
if [ -n "${TALLY_HOSTS_AGENT:-}" ]; then
  host=$1
  shift
  pin=()
  if [ -n "${TALLY_HOSTS_CORES:-}" ]; then pin=(taskset -c "$(((${host##*-} - 1) % $(nproc)))"); fi
  # shellcheck disable=SC2016  # the inner shell's
  exec ip netns exec "$host" unshare --uts sh -c 'hostname "$1" && shift && exec "$@"' sh "$host" ${pin[@]+"${pin[@]}"} sh -c "$*"
fi

hosts=2 rate="" packet=9000 within=() export=() cores=""
while getopts n:r:p:t:cx: option; do
  case $option in
    n) hosts=$OPTARG ;;
    r) rate=$OPTARG ;;
    p) packet=$OPTARG ;;
    t) within=(timeout --foreground -s KILL "$OPTARG") ;;
    c) cores=1 ;;
    x) export+=(-x "$OPTARG") ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '3,11s/^# //p' "$0" >&2; exit 2; }

missing() {
  printf 'skipped: hosts of network namespaces: %s\n' "$1"
  exit 77
}
[ "$(id -u)" -eq 0 ] || missing "only root makes them"
mpirun=${TALLY_MPIRUN:-mpirun}
for tool in ip tc "$mpirun" unshare hostname; do command -v "$tool" >/dev/null || missing "no $tool here"; done

id=t$$
switch=$id-0
made=()
# shellcheck disable=SC2317  # by the trap
clean() {
  local name
  for name in ${made[@]+"${made[@]}"}; do
    ip netns pids "$name" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
    ip netns del "$name" 2>/dev/null || true
  done
}
trap clean EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

add() {
  ip netns add "$1" 2>/dev/null || missing "the kernel, or this container, has none"
  made+=("$1")
  ip -n "$1" link set lo up
}
limit() {  # NAMESPACE DEVICE: the bucket holds three packets, so that short messages are limited, too
  ip -n "$1" link set "$2" mtu 9000 up
  [ -n "$rate" ] || return 0
  ip -n "$1" link set "$2" gso_max_size "$packet" gso_max_segs $((packet / 9000 + 1))
  tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst $((3 * packet)) limit 2000000 || missing "the kernel has no token bucket filter"
}

add "$switch"
ip -n "$switch" link add bridge type bridge 2>/dev/null || missing "the kernel has no bridge"
ip -n "$switch" link set bridge mtu 9000 up
ip -n "$switch" addr add 10.77.0.254/24 dev bridge
list=""
for ((k = 1; k <= hosts; ++k)); do
  host=$id-$k
  add "$host"
  ip -n "$switch" link add "port$k" type veth peer name eth0 netns "$host"
  ip -n "$switch" link set "port$k" master bridge
  ip -n "$host" addr add "10.77.0.$k/24" dev eth0
  limit "$switch" "port$k"
  limit "$host" eth0
  list+=${list:+,}$host
done

# The daemons notice a host that is gone by keepalives.
options=(--allow-run-as-root --mca plm_rsh_agent "$(realpath "$0")" --mca plm_rsh_no_tree_spawn 1)
for option in time=1 intvl=1 probes=2; do options+=(--mca "oob_tcp_keepalive_${option%=*}" "${option#*=}"); done
code=0
TALLY_HOSTS_AGENT=1 TALLY_HOSTS_CORES=$cores ip netns exec "$switch" ${within[@]+"${within[@]}"} \
  "$mpirun" ${TALLY_MPIRUN_OPTIONS:--q} "${options[@]}" -H "$list" -n "$hosts" ${export[@]+"${export[@]}"} "$@" || code=$?
# What is still there.
for ((k = 1; k <= hosts; ++k)); do
  for process in $(ip netns pids "$id-$k"); do
    printf 'left on %s: %s\n' "$id-$k" "$(ps -o stat=,args= "$process")"
  done
done
exit "$code"
