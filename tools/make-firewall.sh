#!/usr/bin/env bash
# make-firewall.sh IMAGES NAME RULES OUT: makes OUT/vmlinuz and OUT/initrd, the guest image NAME
# with nftables. The guest forwards IPv4 as RULES (a file for nft; eth0 is the first NIC) allow, and
# nothing before they are in force. The initial RAM file system also gets this system's nft and
# shell, and modules from the kernel's package. Needs root.
set -euo pipefail
images=$(realpath "$1") name=$2 rules=$(realpath "$3") out=$(realpath -m "$4")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$PATH:/usr/sbin:/sbin
root=$work/root
mkdir -p "$out" "$root"/{bin,sbin,dev,etc,modules}
# Background processes of the shell read from /dev/null.
mknod "$root/dev/null" c 1 3

# Copies every program with its libraries, to the same paths.
for program in sh sleep nft; do
  path=$(command -v "$program")
  cp -L "$path" "$root/bin/$program"
  ldd "$path" | grep -o '/[^ ]*' | while read -r library; do install -D "$library" "$root$library"; done
done
cp "$rules" "$root/etc/rules"
cat >"$root/init" <<'INIT'
#!/bin/sh
# The rules are loaded as soon as the guest's init has loaded the modules.
protect() {
  nft -f /etc/rules && echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 && echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter &&
    echo 2 >/proc/sys/net/ipv4/conf/all/arp_ignore && echo 1 >/proc/sys/net/ipv4/ip_forward
}
while ! protect 2>/errors; do sleep 0.2; done &
exec /sbin/guest
INIT
chmod 755 "$root/init"

(cd "$work" && cpio --quiet -idm init modules/order <"$images/$name/initrd")
mv "$work/init" "$root/sbin/guest"
mv "$work/modules/order" "$root/modules/order"
dpkg-deb -x "$images/packages/$(jq -r .package "$images/$name/info.json")" "$work/package"
[ -e "$work/package/lib" ] || ln -s usr/lib "$work/package/lib"
kernel=$(jq -r .kernel "$images/$name/info.json")
depmod -b "$work/package" "$kernel"
for module in nf_tables nft_ct nf_conntrack; do
  modprobe -d "$work/package" -S "$kernel" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r file; do
  object=$(basename "$file") object=${object%.xz}
  case $file in *.xz) xz -dc "$file" ;; *) cat "$file" ;; esac >"$root/modules/$object"
  grep -qx "$object" "$root/modules/order" || echo "$object" >>"$root/modules/order"
done

cp "$images/$name/vmlinuz" "$out/vmlinuz"
(cd "$root" && find . | cpio --quiet -o -H newc) >"$work/more"
cat "$images/$name/initrd" "$work/more" >"$out/initrd"
