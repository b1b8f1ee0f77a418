#!/usr/bin/env bash
# beside.sh NAME COMMAND… -- COMMAND…: runs the first command in the time that the second one leaves
# idle (SCHED_IDLE), and waits for both. The output of the first one follows that of the second. The
# exit status is that of the second command, or else of the first. If the second one fails, the
# first is ended.
set -euo pipefail
name=$1 beside=() output=$(mktemp)
shift
while [ "$1" != -- ]; do
  beside+=("$1")
  shift
done
shift

# A process group of its own, so that all of it can be ended.
set -m
chrt --idle 0 "${beside[@]}" </dev/null >"$output" 2>&1 &
group=$!
set +m
trap 'kill -- "-$group" 2>/dev/null || true; rm -f "$output"' EXIT
trap 'exit 130' INT TERM

"$@"
echo "beside: waiting for $name"
status=0
wait "$group" || status=$?
echo "beside: $name, which ran meanwhile, ended with $status:"
cat "$output"
exit "$status"
