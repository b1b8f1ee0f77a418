#!/usr/bin/env bash
# make-host.sh BIN SCRIPT OUT.initrd: makes an initial RAM file system that turns a guest into a
# host: this system's QEMU and shell, taut's programs from BIN, cgroup v2, and SCRIPT as all that it
# runs. The kernel must have built in what Debian's cloud kernel has. Needs root.
set -euo pipefail
bin=$(realpath "$1") script=$(realpath "$2") out=$(realpath -m "$3")
. "$(dirname "$0")/initrd.sh"
mkdir -p "$root"/{proc,sys,run,tmp,var/lib,usr/share}
# The kernel opens this as the console of init.
mknod "$root/dev/console" c 5 1

for name in sh cat chmod cp ethtool grep insmod ip ls mkdir mount ps sed sleep sort tr qemu-system-x86_64; do program "$(command -v "$name")"; done
for name in taut tautd taut-console taut-fabric taut-inspect taut-launch taut-micro; do
  program "$bin/$name"
  strip --strip-debug "$root/bin/$name"
done
cp -L -r /usr/share/qemu /usr/share/seabios "$root/usr/share/" 2>/dev/null || true
find "$root/usr/share" -type f -size +2M -delete
cat >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/bin HOME=/ LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up
sh /script
echo "host: the script ended with $?"
echo o >/proc/sysrq-trigger
sleep 60
INIT
cp "$script" "$root/script"
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 >"$out"
