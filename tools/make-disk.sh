#!/usr/bin/env bash
# make-disk.sh GUEST OUT.img: makes a small bootable Debian disk with taut's agent as a service and
# an iperf3 server, like a user's own VM. BIOS boot by syslinux from a FAT partition, root on ext4.
# Nothing is mounted; mmdebstrap needs root.
set -euo pipefail
guest=$(realpath "$1") out=$(realpath -m "$2")
. /etc/os-release
work=$(mktemp -d "$(dirname "$out")/disk.XXXXXX")
trap 'rm -rf "$work"' EXIT

cp "$guest" "$work/taut-guest"
# The agent is installed by the commands that the guide gives, word for word. Nothing is started,
# since no systemd runs.
guide=$(dirname "$0")/../docs/guide/operations.md
{
  echo 'set -e; cd /root'
  sed -n '/^<!-- run by: tools\/make-disk.sh -->$/,/^```$/p' "$guide" | sed '/^<!--/d; /^```/d'
} >"$work/install-agent.sh"
grep -q 'taut-guest install' "$work/install-agent.sh" || { echo "disk: $guide has no commands for the agent" >&2; exit 1; }
echo "disk: unpacking Debian $VERSION_CODENAME"
# The system's own apt sources are used, so no mirror is named here.
mmdebstrap --quiet --mode=root --variant=minbase --aptopt='Apt::Install-Recommends "false"' \
  --include=systemd-sysv,dbus,udev,kmod,iproute2,linux-image-cloud-amd64,initramfs-tools,zstd,iperf3 \
  --customize-hook="copy-in $work/taut-guest $work/install-agent.sh /root" \
  --customize-hook='chroot "$1" env SYSTEMD_OFFLINE=1 sh /root/install-agent.sh' \
  --customize-hook='chroot "$1" systemctl enable iperf3' \
  --customize-hook='chroot "$1" systemctl mask systemd-resolved systemd-timesyncd apt-daily.timer apt-daily-upgrade.timer' \
  --customize-hook='echo taut-disk >"$1/etc/hostname"; chroot "$1" passwd -d root >/dev/null' \
  "$VERSION_CODENAME" "$work/root"

boot_mib=96 root_mib=$(($(du -sm "$work/root" | cut -f 1) + 200))
mkdir "$work/boot"
cp "$work"/root/boot/vmlinuz-* "$work/boot/vmlinuz"
cp "$work"/root/boot/initrd.img-* "$work/boot/initrd"
cat >"$work/boot/syslinux.cfg" <<'CFG'
serial 0
default linux
label linux
  kernel /vmlinuz
  append initrd=/initrd root=/dev/vda2 rw console=ttyS0 quiet
CFG

echo "disk: writing $out"
truncate -s "${boot_mib}M" "$work/fat"
mkfs.fat -n BOOT -h 2048 "$work/fat" >/dev/null
mcopy -i "$work/fat" "$work"/boot/* ::
syslinux --install "$work/fat"
truncate -s "${root_mib}M" "$work/ext4"
mke2fs -q -t ext4 -d "$work/root" "$work/ext4"
truncate -s "$((1 + boot_mib + root_mib))M" "$work/disk"
printf '1MiB,%dMiB,c,*\n%dMiB,%dMiB,L\n' $boot_mib $((1 + boot_mib)) $root_mib | sfdisk --quiet "$work/disk"
put() { dd if="$1" of="$work/disk" conv=notrunc,sparse status=none "${@:2}"; }
put /usr/lib/syslinux/mbr/mbr.bin bs=440 count=1
put "$work/fat" bs=1M seek=1
put "$work/ext4" bs=1M seek=$((1 + boot_mib))
mv "$work/disk" "$out"
