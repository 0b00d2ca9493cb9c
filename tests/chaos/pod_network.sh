#!/usr/bin/env bash
# Entry point of a pod that has a network of its own, as on a cluster: joins it to the bridge and becomes start.sh.
# It runs inside the network that network.py made; POD_IP is the pod's address.
set -euo pipefail

outside="p${POD_IP##*.}"
# found from here: a path in a variable would be taken for one inside the pod where the checkout lies below /work
start=$(realpath "$(dirname "$0")/../../start.sh")
exec 9</proc/self/ns/net
ip link add "$outside" type veth peer name "$outside-pod"
ip link set "$outside" master br0 up
# shellcheck disable=SC2016 # the inner shell expands: $$ stays this process, in its new network
exec unshare --net -- bash -euc '
    outside=$1 start=$2; shift 2
    nsenter --net=/proc/self/fd/9 ip link set "$outside-pod" netns $$
    exec 9<&-
    ip link set "$outside-pod" name eth0
    ip link set lo up
    ip addr add "$POD_IP/24" dev eth0
    ip link set eth0 up
    exec "$start" "$@"
' bash "$outside" "$start" "$@"
