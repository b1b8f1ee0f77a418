#!/bin/sh
# full.sh MOUNT TAUT ATTEMPTS: fills a file system, then makes settings and starts a VM, each of
# which may be refused. Leaves it full.
set -u
mount=$1 taut=$2 attempts=$3
left() { stat -f -c %a "$mount"; }
# fill: takes all room. A log that is cut meanwhile gives some back, so it tries again.
fill() {
  for _ in $(seq 20); do
    dd if=/dev/zero bs=64k status=none 2>/dev/null >>"$mount/filler" && return 1
    [ "$(left)" = 0 ] && return
    sleep 0.02
  done
  return 1
}
fill || { echo "$mount does not become full: $(left) blocks are left" >&2; exit 1; }
settings=0 starts=0 slow=0
# try WORD…: runs taut, which has to answer within 30 s, whatever it answers.
try() {
  timeout 30 "$taut" "$@" >/dev/null 2>&1
  status=$?
  [ "$status" != 124 ] || slow=$((slow + 1))
  return "$status"
}
for attempt in $(seq "$attempts"); do
  if [ $((attempt % 2)) = 1 ]; then changes=on; else changes=off; fi
  try portgroup set spare --mac-changes "$changes" && settings=$((settings + 1))
  try vm start spare && starts=$((starts + 1))
  try vm stop spare
  # What ended meanwhile has given room back.
  [ "$(left)" = 0 ] || fill || { echo "$mount does not stay full" >&2; exit 1; }
done
room=$(left)
[ "$room" = 0 ] || { fill && room=0; }
echo "{\"left\": $room, \"settings\": $settings, \"starts\": $starts, \"slow\": $slow}"
