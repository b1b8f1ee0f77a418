#!/usr/bin/env bash
# make-firewall.sh IMAGES NAME RULES OUT: makes OUT/vmlinuz and OUT/initrd, the guest image NAME
# with nftables. The guest forwards IPv4 as RULES (a file for nft; eth0 is the first NIC) allow, and
# nothing before they are in force. The initial RAM file system also gets this system's nft and
# shell, and modules from the kernel's package. Needs root.
set -euo pipefail
images=$(realpath "$1") name=$2 rules=$(realpath "$3") out=$(realpath -m "$4")
. "$(dirname "$0")/initrd.sh"
for file in sh sleep nft; do program "$(command -v "$file")"; done
cp "$rules" "$root/etc/rules"
cat >"$root/init" <<'INIT'
#!/bin/sh
# The rules are loaded as soon as the guest's init has loaded the modules.
protect() {
  nft -f /etc/rules && echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 && echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter &&
    echo 2 >/proc/sys/net/ipv4/conf/all/arp_ignore && echo 1 >/proc/sys/net/ipv4/ip_forward
}
n=0
while ! protect 2>/errors; do
  n=$((n + 1))
  if [ "$n" = 100 ]; then
    { echo "firewall: the rules are not in force, and nothing is forwarded:"; while read -r line; do echo "$line"; done </errors; } >/dev/console
  fi
  sleep 0.2
done &
# A NIC states its speed once it is up.
{
  until read -r speed 2>/dev/null </sys/class/net/eth0/speed; do sleep 0.2; done
  echo "firewall: eth0 states $speed Mbit/s" >/dev/console
} &
exec /sbin/guest
INIT
chmod 755 "$root/init"

extend_image "$images" "$name" "$out" nf_tables nft_ct nf_conntrack
