# shellcheck shell=sh
# The beginning of each script. A script defines `diagnose`, which prints the state of the host.

fact() { # WHAT COMMAND…: does it come true within 30 s?
  what=$1
  shift
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    if "$@" >/dev/null 2>&1; then echo "ok $what"; return; fi
    sleep 1
  done
  echo "not ok $what"
  set -x
  "$@"
  set +x
  diagnose
}

once() { # WHAT COMMAND…: does it come true at once? The command says itself why it does not.
  what=$1
  shift
  if "$@"; then echo "ok $what"; return; fi
  echo "not ok $what"
  diagnose
}
