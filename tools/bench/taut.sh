# taut as a switch under test: a tautd of its own, its fabric sandboxed as ever, one worker on core 0 that polls.
rig_taut() { TAUT_SOCKET=$rig/taut/run/tautd.sock "$BIN/taut" "$@"; }

taut_start() {
  mkdir -p "$rig/taut"
  setsid "$BIN/tautd" --state-dir "$rig/taut/state" --run-dir "$rig/taut/run" --fabric-cpus 0 --fabric-mode polling 2>"$rig/taut/log" &
  rig_daemon=$!
  local _
  for _ in $(seq 500); do [ -n "$(taut_pids)" ] && break; sleep 0.02; done
  taut_pair plain '' ''
}

# taut_pair NAME PORTGROUP_OPTIONS ATTACH_OPTIONS: two ports on a vSwitch of their own, on which taut listens, and a switch `taut_NAME` to be measured
# there. The process is that of `taut`, whose own ports are the pair `plain`.
taut_pair() {
  [ ! -S "$rig/taut/$1-0" ] || return 0
  local end
  eval "taut_$1_start() { [ -S '$rig/taut/$1-0' ]; }; taut_$1_stop() { :; }; taut_$1_pids() { taut_pids; }
    taut_$1_sockets() { echo '$rig/taut/$1-0 $rig/taut/$1-1'; }"
  rig_taut vswitch create "sw-$1" || return 1
  # shellcheck disable=SC2086
  rig_taut portgroup create "$1" --vswitch "sw-$1" $2 || return 1
  for end in 0 1; do
    # shellcheck disable=SC2086
    rig_taut port attach "$1$end" --portgroup "$1" --mac "02:11:00:00:00:0$end" --path "$rig/taut/$1-$end" --listen $3 || return 1
  done
  for _ in $(seq 100); do [ -S "$rig/taut/$1-0" ] && [ -S "$rig/taut/$1-1" ] && return; sleep 0.02; done
  return 1
}

taut_sockets() { taut_plain_sockets; }
taut_pids() { rig_taut -o json daemon show 2>/dev/null | jq -r '.fabric_pid // empty'; }
taut_stop() {
  rig_taut shutdown --everything
  wait "$rig_daemon" || true
}
