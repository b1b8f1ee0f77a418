#!/bin/sh
# qemu_7_2.sh FOLDER: unpacks Debian's QEMU 7.2 into FOLDER, without installing it.
set -eu
folder=$1
[ ! -x "$folder/usr/bin/qemu-system-x86_64" ] || exit 0
version() { apt-cache madison "$1" | awk -F '|' '$2 ~ /:7\.2/ {gsub(/ /, "", $2); print $2; exit}'; }
[ -n "$(version qemu-system-x86)" ] || { echo "no mirror of this system has QEMU 7.2" >&2; exit 1; }
rm -rf "$folder.new"
mkdir -p "$folder.new/packages"
cd "$folder.new/packages"
for package in qemu-system-x86 qemu-system-common qemu-system-data; do
  apt-get download -q "$package=$(version "$package")"
done
for package in *.deb; do dpkg-deb -x "$package" ..; done
# QEMU looks for firmware beside its own folder.
for data in seabios ipxe; do
  [ ! -e "/usr/share/$data" ] || ln -s "/usr/share/$data" "../usr/share/$data"
done
mkdir -p ../usr/lib/ipxe
[ ! -e /usr/lib/ipxe/qemu ] || ln -s /usr/lib/ipxe/qemu ../usr/lib/ipxe/qemu
cd /
mv "$folder.new" "$folder"
