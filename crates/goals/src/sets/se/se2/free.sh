#!/bin/sh
# free.sh MOUNT TAUT: makes room, and waits until a setting is made and a VM is started.
set -u
mount=$1 taut=$2
said=$(mktemp)
trap 'rm "$said"' EXIT
# again WORD…: repeats a command until it succeeds.
again() {
  for _ in $(seq 300); do
    timeout 30 "$taut" "$@" >/dev/null 2>"$said" && return
    sleep 0.1
  done
  echo "taut $* does not succeed: $(cat "$said")" >&2
  exit 1
}
rm "$mount/filler"
began=$(date +%s%N)
again portgroup set spare --promiscuous on
again portgroup set spare --promiscuous off
# The VM may run already, if it was started while there was no room.
again vm stop spare
again vm start --wait spare
echo "{\"ms\": $((($(date +%s%N) - began) / 1000000))}"
