#!/bin/sh
# kill.sh MOUNT TAUT RECORD: freezes a file system, kills the fabric, and prints its number. The
# file system stays frozen until the next call, which fails if it has been thawed meanwhile. RECORD
# is a file for the number.
set -eu
last=0
if [ -e "$3" ]; then
  last=$(cat "$3")
  fsfreeze -u "$1"
fi
looks=0
while :; do
  pid=$("$2" -o json daemon show | jq '.fabric_pid // 0')
  if [ "$pid" != 0 ] && [ "$pid" != "$last" ] && kill -0 "$pid"; then break; fi
  looks=$((looks + 1))
  [ "$looks" -lt 500 ] || { echo "no other fabric runs" >&2; exit 1; }
  sleep 0.02
done
fsfreeze -f "$1"
kill -9 "$pid"
echo "$pid" >"$3"
echo "{\"killed\": $pid}"
