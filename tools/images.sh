#!/usr/bin/env bash
# images.sh BIN IMAGES: makes guest images from Debian's kernel packages, with taut's guest binary
# as init. IMAGES/debian-6.1, debian-6.12 (cloud flavour) and debian-full each hold vmlinuz, initrd
# and info.json.
set -euo pipefail
bin=$(realpath "$1") images=$(realpath -m "$2")
mkdir -p "$images/packages"

# Images with another guest binary are made anew.
cmp -s "$bin/taut-guest" "$images/taut-guest" || rm -f "$images"/*/info.json

update() { if [ "$(id -u)" = 0 ]; then apt-get update -q; else sudo apt-get update -q; fi; }
[ -n "$(apt-cache pkgnames linux-image-6 2>/dev/null)" ] || update

# newest PATTERN: prints the newest signed kernel package whose name matches, or nothing.
newest() { apt-cache pkgnames linux-image-6 | grep -E "^$1\$" | sort -V | tail -n 1; }

image() { # NAME PATTERN
  local name=$1 package deb
  package=$(newest "$2")
  [ -n "$package" ] || { echo "images: this Debian has no kernel for $name; left out"; return 0; }
  deb=$(find "$images/packages" -name "${package}_*.deb" -print -quit)
  if [ -z "$deb" ]; then
    echo "images: fetching $package"
    # A package list that is some days old names packages that the mirror has replaced.
    (cd "$images/packages" && { apt-get download -q "$package" || { update && apt-get download -q "$package"; }; })
    deb=$(find "$images/packages" -name "${package}_*.deb" -print -quit)
  fi
  if [ ! -e "$images/$name/info.json" ]; then
    echo "images: making $name from $package"
    "$bin/taut-image" build --kernel-deb "$deb" --init "$bin/taut-guest" --out "$images/$name"
  fi
}

image debian-6.1 'linux-image-6\.1\.0-[0-9]+-cloud-amd64'
image debian-6.12 'linux-image-6\.12\.[0-9]+\+deb1[0-9]-cloud-amd64'
image debian-full 'linux-image-6\.(1\.0-[0-9]+|12\.[0-9]+\+deb1[0-9])-amd64'
cp "$bin/taut-guest" "$images/taut-guest"
