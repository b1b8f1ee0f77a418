#!/usr/bin/env bash
# make-redis.sh IMAGES NAME LIBRARY MAP SCRIPT OUT [PROGRAM…]: makes OUT/vmlinuz and OUT/initrd, the
# guest image NAME with TCP programs that talk over VMCI sockets. The initial RAM file system also
# gets this system's Redis and shell, PROGRAMs, LIBRARY as /usr/local/lib/libtaut_vmci.so, MAP as
# /etc/taut/vmci.map, the kernel's loopback for AF_VSOCK, and SCRIPT. The shell runs SCRIPT when the
# guest has come up, with its output on the console. Needs root.
set -euo pipefail
images=$(realpath "$1") name=$2 library=$(realpath "$3") map=$(realpath "$4") script=$(realpath "$5") out=$(realpath -m "$6")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$PATH:/usr/sbin:/sbin
root=$work/root
mkdir -p "$out" "$root"/{bin,sbin,dev,etc/taut,lib,modules,tmp}
# Background processes of the shell read from /dev/null.
mknod "$root/dev/null" c 1 3

# Copies every program with its libraries, to the same paths.
libraries() { ldd "$1" | grep -o '/[^ ]*' | while read -r library; do install -D "$library" "$root$library"; done; }
# Debian's package of Redis' tools has the server as redis-check-rdb, without a service that starts
# by itself.
for program in sh sleep cat grep redis-check-rdb redis-cli redis-benchmark "${@:7}"; do
  path=$(command -v "$program")
  cp -L "$path" "$root/bin/$(basename "$program")"
  libraries "$path"
done
mv "$root/bin/redis-check-rdb" "$root/bin/redis-server"
install -D "$library" "$root/usr/local/lib/libtaut_vmci.so"
libraries "$library"
cp "$map" "$root/etc/taut/vmci.map"
cp "$script" "$root/etc/script"
cat >"$root/init" <<'INIT'
#!/bin/sh
# The guest's init makes devices and addresses. The module vsock_loopback is the last one that it
# loads.
wait_for_init() { until [ -e /proc/self ] && [ -c /dev/vsock ] && grep -q vsock_loopback /proc/modules; do sleep 0.2; done; }
{ wait_for_init 2>/dev/null; PATH=/bin; export PATH; . /etc/script; } </dev/null >/dev/console 2>&1 &
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
modprobe -d "$work/package" -S "$kernel" --show-depends vsock_loopback | awk '$1 == "insmod" {print $2}' | while read -r file; do
  object=$(basename "$file") object=${object%.xz}
  case $file in *.xz) xz -dc "$file" ;; *) cat "$file" ;; esac >"$root/modules/$object"
  grep -qx "$object" "$root/modules/order" || echo "$object" >>"$root/modules/order"
done

cp "$images/$name/vmlinuz" "$out/vmlinuz"
(cd "$root" && find . | cpio --quiet -o -H newc) >"$work/more"
cat "$images/$name/initrd" "$work/more" >"$out/initrd"
