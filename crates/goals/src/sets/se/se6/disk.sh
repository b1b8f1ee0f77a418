#!/bin/sh
# disk.sh KERNEL_FOLDER FOLDER: makes FOLDER/raw, a small disk from whose first partition a BIOS
# boots a guest image, and chains of images above it, all of which boot.
set -eu
image=$1 folder=$2
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$folder"
cd "$folder"
mib=$(($(du -cm "$image/vmlinuz" "$image/initrd" | tail -n 1 | cut -f 1) + 16))
printf 'serial 0\ndefault linux\nlabel linux\n  kernel /vmlinuz\n  append initrd=/initrd console=ttyS0 quiet\n' >syslinux.cfg
truncate -s "${mib}M" fat
mkfs.fat -n BOOT -h 2048 fat >/dev/null
mcopy -i fat "$image/vmlinuz" "$image/initrd" syslinux.cfg ::
syslinux --install fat
truncate -s "$((mib + 2))M" raw
printf '1MiB,%dMiB,c,*\n' "$mib" | sfdisk --quiet raw
dd if=/usr/lib/syslinux/mbr/mbr.bin of=raw conv=notrunc status=none bs=440 count=1
dd if=fat of=raw conv=notrunc,sparse status=none bs=1M seek=1
rm fat syslinux.cfg

convert() { qemu-img convert -q -f raw -O "$@"; }
# overlay TOP BASE FORMAT
overlay() { qemu-img create -q -f qcow2 -b "$2" -F "$3" "$1"; }
convert qcow2 raw qcow2
convert qcow2 -c raw compressed
convert vmdk -o subformat=monolithicSparse raw sparse.vmdk
convert vmdk -o subformat=streamOptimized raw stream.vmdk
convert vmdk -o subformat=monolithicFlat raw flat.vmdk
overlay over-raw raw raw
overlay over-vmdk sparse.vmdk vmdk
convert qcow2 raw chain-0
for level in $(seq 15); do overlay "chain-$level" "chain-$((level - 1))" qcow2; done
# Chains with one, two and three bases have overlays of their own: a base is never written to.
for bases in 1 2 3; do overlay "top-$bases" "chain-$((bases - 1))" qcow2; done
