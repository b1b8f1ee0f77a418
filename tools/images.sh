#!/usr/bin/env bash
# images.sh BIN IMAGES: makes guest images from Debian's kernel packages, with taut's guest binary
# as init. IMAGES/debian-6.1, debian-6.12, debian-newest (cloud flavour) and debian-full each hold
# vmlinuz, initrd and info.json. The newest kernel is that of the backports for Debian 13.
set -euo pipefail
bin=$(realpath "$1") images=$(realpath -m "$2")
mkdir -p "$images/packages"

# Images with another guest binary are made anew.
cmp -s "$bin/taut-guest" "$images/taut-guest" || rm -f "$images"/*/info.json "$images/taut-guest"

update() { if [ "$(id -u)" = 0 ]; then apt-get update -q; else sudo apt-get update -q; fi; }
[ -n "$(apt-cache pkgnames linux-image-6 2>/dev/null)" ] || update

# The backports for Debian 13 have package lists of their own, which this system's apt does not see:
# on Debian 12 it would take them for updates of installed packages.
newest_apt=$images/apt
newest_options=(-o "Dir::Etc::sourcelist=$newest_apt/newest.sources" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$newest_apt/lists" -o "Dir::Cache=$newest_apt/cache")
update_newest() {
  local mirror
  # The mirror of the system's own packages.
  # shellcheck disable=SC2016
  mirror=$(. /etc/os-release && apt-get indextargets --format '$(SITE)' "Codename: $VERSION_CODENAME" 'Created-By: Packages' | sed -n 1p)
  [ -n "$mirror" ] || return 0
  mkdir -p "$newest_apt"/{lists,cache/archives}/partial
  printf 'Types: deb\nURIs: %s\nSuites: trixie-backports\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' \
    "$mirror" >"$newest_apt/newest.sources"
  apt-get "${newest_options[@]}" update -q
}

# newest PREFIX PATTERN OPTION…: prints the newest signed kernel package whose name begins with
# PREFIX and matches PATTERN, or nothing.
newest() { apt-cache "${@:3}" pkgnames "$1" | grep -E "^$2\$" | sort -V | tail -n 1; }

# join DEB RELEASE OPTION…: adds the parts of a kernel to its package, if it only depends on them.
# Debian builds kernels so from Linux 6.19 on.
join() {
  local deb=$1 folder part
  [[ $(dpkg-deb -c "$deb") != */boot/vmlinuz-* ]] || return 0
  folder=$(mktemp -d)
  (cd "$folder" && apt-get "${@:3}" download -q "linux-binary-$2" "linux-modules-$2")
  for part in "$folder"/*.deb; do dpkg-deb -x "$part" "$folder/root"; done
  dpkg-deb -e "$deb" "$folder/root/DEBIAN"
  # Their kernel is among its modules; the package's scripts copy it to /boot.
  [ -d "$folder/root/boot" ] || install -D -m 644 "$folder/root/usr/lib/modules/$2/vmlinuz" "$folder/root/boot/vmlinuz-$2"
  dpkg-deb -Znone -b "$folder/root" "$folder/whole" >/dev/null
  mv "$folder/whole" "$deb"
  rm -rf "$folder"
}

image() { # NAME PREFIX PATTERN UPDATE OPTION…
  local name=$1 update=$4 options=("${@:5}") package deb
  package=$(newest "$2" "$3" "${options[@]}")
  [ -n "$package" ] || { echo "images: this Debian has no kernel for $name; left out"; return 0; }
  deb=$(find "$images/packages" -name "${package}_*.deb" -print -quit)
  if [ -z "$deb" ]; then
    echo "images: fetching $package"
    # A package list that is some days old names packages that the mirror has replaced.
    (cd "$images/packages" && { apt-get "${options[@]}" download -q "$package" || { "$update" && apt-get "${options[@]}" download -q "$package"; }; })
    deb=$(find "$images/packages" -name "${package}_*.deb" -print -quit)
  fi
  if [ ! -e "$images/$name/info.json" ]; then
    join "$deb" "${package#linux-image-}" "${options[@]}"
    echo "images: making $name from $package"
    "$bin/taut-image" build --kernel-deb "$deb" --init "$bin/taut-guest" --out "$images/$name"
  fi
}

image debian-6.1 linux-image-6 'linux-image-6\.1\.0-[0-9]+-cloud-amd64' update
image debian-6.12 linux-image-6 'linux-image-6\.12\.[0-9]+\+deb1[0-9]-cloud-amd64' update
image debian-full linux-image-6 'linux-image-6\.(1\.0-[0-9]+|12\.[0-9]+\+deb1[0-9])-amd64' update
[ -e "$images/debian-newest/info.json" ] || update_newest
image debian-newest linux-image- 'linux-image-[0-9.]+\+deb13-cloud-amd64' update_newest "${newest_options[@]}"
cp "$bin/taut-guest" "$images/taut-guest"
