# taut as a switch under test: a tautd of its own, its fabric sandboxed as usual, with one polling
# worker on core 0.
rig_taut() { TAUT_SOCKET=$rig/taut/run/tautd.sock "$BIN/taut" "$@"; }

taut_start() {
  mkdir -p "$rig/taut"
  setsid "$BIN/tautd" --state-dir "$rig/taut/state" --run-dir "$rig/taut/run" --fabric-cpus 0 --fabric-mode polling 2>"$rig/taut/log" &
  rig_daemon=$!
  # The fabric's number is kept, because a daemon whose fabric is stopped may not answer.
  for _ in $(seq 500); do
    rig_fabric=$(rig_taut -o json daemon show 2>/dev/null | jq -r '.fabric_pid // empty')
    [ -z "$rig_fabric" ] || break
    sleep 0.02
  done
  # Waits for the daemon's KVM probe, which keeps a core busy for seconds.
  rig_taut host show >/dev/null || return 1
  taut_pair plain '' ''
}

# taut_pair NAME PORTGROUP_OPTIONS ATTACH_OPTIONS: makes a port group and a switch `taut_NAME` to be
# measured on it. Its process is that of `taut`, whose own port group is `plain`. There is one pair
# of listening ports, which is moved to the port group that is measured.
taut_pair() {
  ! declare -F "taut_$1_start" >/dev/null || return 0
  rig_taut vswitch list -o json | jq -e 'any(.name == "sw")' >/dev/null || rig_taut vswitch create sw || return 1
  # shellcheck disable=SC2086
  rig_taut portgroup create "$1" --vswitch sw $2 || return 1
  eval "taut_$1_start() { :; }; taut_$1_stop() { :; }; taut_$1_pids() { taut_pids; }; taut_$1_sockets() { taut_sockets; }
    taut_$1_prepare() { taut_move '$1' '$3'; }"
}

# taut_move PORTGROUP ATTACH_OPTIONS: moves the pair of ports.
taut_move() {
  [ "$(cat "$rig/taut/on" 2>/dev/null)" != "$1" ] || return 0
  local end
  for end in 0 1; do
    [ ! -e "$rig/taut/on" ] || rig_taut port detach "end$end" || return 1
    # shellcheck disable=SC2086
    rig_taut port attach "end$end" --portgroup "$1" --mac "02:11:00:00:00:0$end" --path "$rig/taut/$1-$end" --listen $2 || return 1
  done
  echo "$1" >"$rig/taut/on"
  for _ in $(seq 100); do [ -S "$rig/taut/$1-0" ] && [ -S "$rig/taut/$1-1" ] && return; sleep 0.02; done
  return 1
}

taut_prepare() { taut_move plain ''; }
taut_sockets() { local on; on=$(cat "$rig/taut/on"); echo "$rig/taut/$on-0 $rig/taut/$on-1"; }
taut_pids() { echo "${rig_fabric:-}"; }
taut_stop() {
  rig_taut shutdown --everything
  wait "$rig_daemon" || true
  rig_fabric=
  # A later rig defines these functions again.
  unset -f $(declare -F | awk '$3 ~ /^taut_.*_start$/ {print $3}')
}
