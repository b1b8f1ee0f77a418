#!/usr/bin/env bash
# make-redis.sh IMAGES NAME LIBRARY MAP SCRIPT OUT [PROGRAM…]: makes OUT/vmlinuz and OUT/initrd, the
# guest image NAME with TCP programs that talk over VMCI sockets. The initial RAM file system also
# gets this system's Redis and shell, PROGRAMs, LIBRARY as /usr/local/lib/libtaut_vmci.so, MAP as
# /etc/taut/vmci.map, the kernel's loopback for AF_VSOCK, and SCRIPT. The shell runs SCRIPT when the
# guest has come up, with its output on the console. Needs root.
set -euo pipefail
images=$(realpath "$1") name=$2 library=$(realpath "$3") map=$(realpath "$4") script=$(realpath "$5") out=$(realpath -m "$6")
. "$(dirname "$0")/initrd.sh"
mkdir -p "$root"/{etc/taut,lib,tmp}
# Debian's package of Redis' tools has the server as redis-check-rdb, without a service that starts
# by itself.
for file in sh sleep cat grep redis-check-rdb redis-cli redis-benchmark "${@:7}"; do
  # A path may also lead to a file that is not executable, such as a module of an interpreter.
  case $file in */*) program "$file" ;; *) program "$(command -v "$file")" ;; esac
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

extend_image "$images" "$name" "$out" vsock_loopback
