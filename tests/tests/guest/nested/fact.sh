# shellcheck shell=sh
# The beginning of each script. A script defines `diagnose`, which prints the state of the host.

# Seconds that a fact may take to come true. Only one that never does takes so long, even if the
# emulated host gets the time that others leave idle. After the first failure others often fail,
# too.
patience=180

fact() { # WHAT COMMAND…: does it come true in time?
  what=$1
  shift
  left=$patience
  while [ "$left" -gt 0 ]; do
    if "$@" >/dev/null 2>&1; then echo "ok $what"; return; fi
    sleep 1
    left=$((left - 1))
  done
  patience=10
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
