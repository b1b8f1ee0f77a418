#!/usr/bin/env bash
# setup.sh GROUP…: installs the Debian packages of these groups that are missing, and says which.
# Works on Debian 12 and 13, as root or with sudo. On Debian 12, QEMU comes from backports (10.0),
# because 7.2 needs a work-around under emulation; without backports it is 7.2. Two groups also have
# programs that Debian does not package, in target/tools: `rivals` vhost-device-vsock, which cargo
# builds, and `clients` schemathesis.
set -euo pipefail

declare -A groups=(
  [run]="gcc libc6-dev make qemu-system-x86 iproute2 iputils-ping kmod xz-utils zstd ca-certificates"
  [test]="qemu-utils iperf3 redis-tools socat dropbear-bin openssh-client curl python3 mmdebstrap e2fsprogs fdisk dosfstools mtools syslinux syslinux-common jq ethtool procps cpio nftables g++ shellcheck prometheus"
  [fuzz]="g++"
  [clients]="chromium chromium-driver curl python3-venv socat strace"
  [rivals]="bridge-utils dpdk dpdk-dev openvswitch-switch-dpdk pkg-config"
)

say() { echo "setup: $*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
installed() { [[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) == *"ok installed" ]]; }

command -v apt-get >/dev/null || { say "this is not a Debian system; install by hand: ${groups[run]}" >&2; exit 1; }
. /etc/os-release

missing=()
for group in "$@"; do
  [ -n "${groups[$group]:-}" ] || { say "no group '$group'; there are: ${!groups[*]}" >&2; exit 2; }
  for package in ${groups[$group]}; do installed "$package" || missing+=("$package"); done
done

# The suite with the newer QEMU and kernel comes from the mirror of the system's own packages.
backports="${VERSION_CODENAME:-}-backports"
if [ "${VERSION_ID:-}" = 12 ] && ! grep -rqs "$backports" /etc/apt/sources.list /etc/apt/sources.list.d; then
  mirror=$(apt-get indextargets --format '$(SITE)' "Codename: $VERSION_CODENAME" 'Created-By: Packages' 2>/dev/null | sed -n 1p)
  [ -n "$mirror" ] || mirror=$(awk '/^URIs:/{print $2; exit} /^deb /{for(i=2;i<=NF;i++) if ($i ~ /:\/\//) {print $i; exit}}' \
    /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null)
  if [ -n "$mirror" ]; then
    say "adding $backports to apt's sources (newer QEMU and kernel)"
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' \
      "$mirror" "$backports" | as_root tee /etc/apt/sources.list.d/taut-backports.sources >/dev/null
    as_root apt-get update -q
  fi
fi

# Debian starts services when it installs them. Tests need Prometheus' programs only.
policy=/usr/sbin/policy-rc.d
without_services() {
  [ ! -e $policy ] || return 0
  trap 'as_root rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
  as_root chmod 755 $policy
}

if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  [ -n "$(ls /var/lib/apt/lists/*Packages* 2>/dev/null)" ] || as_root apt-get update -q
  plain=() newer=()
  for package in "${missing[@]}"; do
    if [ "$package" = qemu-system-x86 ] && [[ $(apt-cache madison "$package") == *"$backports/"* ]]; then newer+=("$package"); else plain+=("$package"); fi
  done
  install=(as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends)
  # A package list that is some days old names packages that the mirror has replaced.
  install() { "${install[@]}" "$@" || { as_root apt-get update -q && "${install[@]}" "$@"; }; }
  [[ " ${plain[*]} " != *" prometheus "* ]] || without_services
  [ ${#plain[@]} -eq 0 ] || install "${plain[@]}"
  [ ${#newer[@]} -eq 0 ] || install -t "$backports" "${newer[@]}"
  if [[ " ${plain[*]} " == *" prometheus "* ]]; then
    # Nor does it start at the next boot.
    if command -v systemctl >/dev/null; then as_root systemctl disable prometheus; else as_root update-rc.d prometheus disable; fi
  fi
fi

if ! command -v cargo >/dev/null; then
  if [[ $(apt-cache policy rustup 2>/dev/null) =~ Candidate:\ [0-9] ]]; then
    say "installing the Rust toolchain"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q rustup
    rustup default stable
  else
    say "no Rust toolchain found, and this Debian has no rustup package" >&2
    echo "hint: install Rust 1.90 or newer with rustup, then run make again" >&2
    exit 1
  fi
fi

# The version that vhost-device-vsock's figures in docs/ were measured with.
vsock=0.3.0
tools=${CARGO_TARGET_DIR:-target}/tools
if [[ " $* " == *" rivals "* ]] && ! PATH="$PATH:$tools/bin" command -v vhost-device-vsock >/dev/null; then
  say "building vhost-device-vsock $vsock (once, some minutes)"
  CARGO_TARGET_DIR="$tools/build" cargo install vhost-device-vsock --version "$vsock" --locked --quiet --root "$tools"
  rm -rf "$tools/build"
fi

# The version whose reports the row PG8 reads.
schemathesis=4.32.5
if [[ " $* " == *" clients "* ]] && ! PATH="$PATH:$tools/bin" command -v schemathesis >/dev/null; then
  say "installing schemathesis $schemathesis"
  python3 -m venv "$tools/schemathesis"
  "$tools/schemathesis/bin/pip" install --quiet "schemathesis==$schemathesis"
  mkdir -p "$tools/bin"
  ln -sf "$(realpath "$tools")/schemathesis/bin/schemathesis" "$tools/bin/schemathesis"
fi
