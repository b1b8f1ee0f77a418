#!/usr/bin/env bash
# flood.sh CHECKOUT IMAGES NAME OUT MIB: makes OUT/vmlinuz and OUT/initrd, the guest image NAME,
# whose init writes so many MiB to its serial port, and then a line.
set -euo pipefail
checkout=$1 images=$2 name=$3 out=$4 mib=$5
. "$checkout/tools/initrd.sh"
for file in bash head cat sleep; do program "$(command -v "$file")"; done
cat >"$root/init" <<INIT
#!/bin/bash
{
  # The guest's own init makes the devices.
  until [ -c /dev/ttyS0 ] && [ -c /dev/zero ]; do sleep 0.1; done
  head -c ${mib}M /dev/zero >/dev/ttyS0
  echo "the flood is over" >/dev/ttyS0
} &
exec /sbin/guest
INIT
chmod 755 "$root/init"
extend_image "$images" "$name" "$out"
