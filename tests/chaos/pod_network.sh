#!/usr/bin/env bash
# Entry point of a pod that has a network of its own, as on a cluster: joins it to the bridge and becomes start.sh, or
# after `--` the program that follows. It runs inside the network that network.py made; POD_IP is the pod's address.
set -euo pipefail

outside="p${POD_IP##*.}"
# found from here: a path in a variable would be taken for one inside the pod where the checkout lies below /work
start=$(realpath "$(dirname "$0")/../../start.sh")
if [ "${1:-}" = -- ]; then shift; else set -- "$start" "$@"; fi
exec 9</proc/self/ns/net
# what an earlier start in this pod had: the kernel takes its time to remove a network that nobody is in any more
ip link delete "$outside" 2>/dev/null || true
# the same hardware address at every start in a pod: the others remember it for half a minute and longer
hardware=$(printf '02:77:00:00:01:%02x' "${POD_IP##*.}")
ip link add "$outside" type veth peer name "$outside-pod" address "$hardware"
ip link set "$outside" master br0 up
# shellcheck disable=SC2016 # the inner shell expands: $$ stays this process, in its new network
exec unshare --net -- bash -euc '
    outside=$1; shift
    nsenter --net=/proc/self/fd/9 ip link set "$outside-pod" netns $$
    exec 9<&-
    ip link set "$outside-pod" name eth0
    ip link set lo up
    ip addr add "$POD_IP/24" dev eth0
    ip link set eth0 up
    exec "$@"
' bash "$outside" "$@"
