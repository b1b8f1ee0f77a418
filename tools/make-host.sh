#!/usr/bin/env bash
# make-host.sh BIN SCRIPT OUT.initrd IMAGE [MODULE…]: makes an initial RAM file system that turns a
# guest with the kernel of the guest image IMAGE into a host: this system's QEMU and shell, taut's
# programs from BIN, cgroup v2, and SCRIPT as all that it runs. Without modules, the kernel must
# have built in what the host needs; with modules, the image's own are loaded, too. PROGRAMS lists
# further programs to be copied, FILES files for /files. Needs root.
set -euo pipefail
bin=$(realpath "$1") script=$(realpath "$2") out=$(realpath -m "$3") image=$(realpath "$4")
. "$(dirname "$0")/initrd.sh"
mkdir -p "$root"/{files,proc,sys,run,tmp,var/lib,usr/share}
# The kernel opens this as the console of init.
mknod "$root/dev/console" c 5 1

for name in sh cat chmod cp ethtool grep insmod ip ls mkdir mount ps sed sleep sort tee tr qemu-system-x86_64 ${PROGRAMS:-}; do program "$(command -v "$name")"; done
for name in taut tautd taut-console taut-fabric taut-inspect taut-launch taut-micro; do
  program "$bin/$name"
  strip --strip-debug "$root/bin/$name"
done
for file in ${FILES:-}; do cp -L "$file" "$root/files/"; done
cp -L -r /usr/share/qemu /usr/share/seabios "$root/usr/share/" 2>/dev/null || true
find "$root/usr/share" -type f -size +2M -delete
cat >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/bin HOME=/ LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup
if [ -e /modules/order ]; then while read -r module; do insmod "/modules/$module"; done </modules/order; fi
ip link set lo up
sh /script
echo "host: the script ended with $?"
echo o >/proc/sysrq-trigger
sleep 60
INIT
cp "$script" "$root/script"
chmod 755 "$root/init"

: >"$out"
if [ $# -gt 4 ]; then
  # The image has its own modules. Its init is replaced by the later one.
  cp "$image/initrd" "$out"
  add_modules "$(dirname "$image")" "$(basename "$image")" "${@:5}"
fi
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 >>"$out"
