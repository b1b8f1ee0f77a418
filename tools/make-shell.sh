#!/usr/bin/env bash
# make-shell.sh IMAGES NAME OUT PROGRAM…: makes OUT/vmlinuz and OUT/initrd, the guest image NAME
# with this system's shell and PROGRAMs. The shell takes commands from the console.
set -euo pipefail
images=$(realpath "$1") name=$2 out=$(realpath -m "$3")
. "$(dirname "$0")/initrd.sh"
mkdir -p "$root/tmp"
for file in sh sleep "${@:4}"; do
  program "$(command -v "$file")"
done
cat >"$root/init" <<'INIT'
#!/bin/sh
# The guest's init makes devices and addresses.
PATH=/bin; export PATH
{ until [ -e /proc/self ] && [ -c /dev/console ]; do sleep 0.2; done; exec sh </dev/console >/dev/console 2>&1; } &
exec /sbin/guest
INIT
chmod 755 "$root/init"

extend_image "$images" "$name" "$out"
