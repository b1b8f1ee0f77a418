#!/usr/bin/env bash
# demo.sh BIN IMAGES OUT: starts two Debian VMs and two microguests on one port group and measures
# them; results in OUT. Everything that it started is gone when it ends, also after Ctrl-C.
set -euo pipefail
bin=$1 images=$2 out=$3
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
work=$(mktemp -d /tmp/taut-demo.XXXXXX)
export TAUT_SOCKET=$work/run/tautd.sock
taut() { "$bin/taut" "$@"; }

daemon=
end() {
  local status=$?
  trap - EXIT INT TERM
  if [ -n "$daemon" ]; then
    taut shutdown --everything >/dev/null 2>&1 || true
    wait "$daemon" 2>/dev/null || true
  fi
  rm -rf "$work"
  exit "$status"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

step "starting tautd"
# A session of its own: Ctrl-C reaches this script first, which takes the daemon down in order.
setsid "$bin/tautd" --state-dir "$work/state" --run-dir "$work/run" 2>"$out/tautd.log" &
daemon=$!
until taut daemon show >/dev/null 2>&1; do
  kill -0 "$daemon" 2>/dev/null || { cat "$out/tautd.log" >&2; exit 1; }
  sleep 0.1
done
taut host show

step "a vSwitch, a port group, two Debian VMs, two microguests"
taut vswitch create demo
taut portgroup create lan --vswitch demo
# Debian releases differ in the kernels that they have. The kernel of one VM does for both.
has() { [ -e "$images/$1/info.json" ]; }
has debian-6.1 || kernels='s|debian-6\.1/|debian-6.12/|'
has debian-6.12 || kernels='s|debian-6\.12/|debian-6.1/|'
for vm in alpha beta micro1 micro2; do
  sed -e "${kernels:-}" -e "s|\.\./target/images|$images|" "$here/demo/$vm.toml" >"$work/$vm.toml"
  taut vm create -f "$work/$vm.toml" --name $vm --start
done
for vm in alpha beta micro1 micro2; do taut vm start --wait $vm; done
taut vm list

step "Debian VM to Debian VM ($out/vm-*.json, .svg)"
taut bench ping alpha beta --duration 10 --json "$out/vm-ping.json" --svg "$out/vm-ping.svg"
taut bench rr alpha beta --duration 10 --json "$out/vm-rr.json" --svg "$out/vm-rr.svg"
taut bench stream alpha beta --pattern bulk --duration 5 --json "$out/vm-stream.json" --svg "$out/vm-stream.svg"

step "microguest to microguest: the same switch at native speed ($out/micro-*.json, .svg)"
taut bench rr micro1 micro2 --duration 5 --json "$out/micro-rr.json" --svg "$out/micro-rr.svg"
taut bench stream micro1 micro2 --pattern bulk --duration 5 --json "$out/micro-stream.json" --svg "$out/micro-stream.svg"
taut bench raw

step "what the switch counted"
taut port list
