# Row DP15: upgrade and kill -9 under load, with 32 pairs of ports and every kind of ring: frames
# lost, doubled or damaged, and the longest silence.
row_DP15() {
  local pairs=32 times=100 sockets=() port command
  if quick; then times=8; note "quick: 8 upgrades and 8 kills instead of 100"; fi
  (cd "$here" && cargo build -q --release -p taut-bench --example restart) || return 1
  [ -n "$daemon" ] || start_daemon
  taut vswitch create dp15
  taut portgroup create dp15 --vswitch dp15
  mkdir -p "$lab/dp15"
  for port in $(seq 0 $((2 * pairs - 1))); do
    sockets+=("$lab/dp15/$port")
    taut port attach "dp15-$port" --portgroup dp15 --mac "$(printf 02:11:00:00:00:%02x "$port")" --path "$lab/dp15/$port" --listen
  done
  for port in "${sockets[@]}"; do for _ in $(seq 100); do [ -S "$port" ] && break; sleep 0.02; done; done

  dp15_restarts "$OUT/dp15-upgrade.json" --events "$times" --packed --command "'$BIN/taut' -o json daemon upgrade-fabric" "${sockets[@]}" || return 1
  dp15_note "$OUT/dp15-upgrade.json"
  note "an upgrade's steps in ms, p50: $(jq -r '.said as $said | ["start", "configure", "prepare", "stop", "take_over"] | map(. as $step | "\($step) \([$said[]["\($step)_us"]] | sort | .[length / 2 | floor] / 100 | round / 10)") | join(", ")' "$OUT/dp15-upgrade.json")"
  dp15_goal DP15-upgrade "$OUT/dp15-upgrade.json" 50 '.lost + .doubled + .late + .corrupted == 0' "nothing lost, doubled, late or damaged"

  dp15_restarts "$OUT/dp15-kill.json" --events "$times" --packed --command "kill -9 \$('$BIN/taut' -o json daemon show | jq .fabric_pid)" "${sockets[@]}" || return 1
  dp15_note "$OUT/dp15-kill.json"
  dp15_goal DP15-kill "$OUT/dp15-kill.json" 150 '.late + .corrupted == 0 and .most_lost <= 64 and .most_doubled <= 64' "at most a burst (64) a ring lost or doubled"
  for port in $(seq 0 $((2 * pairs - 1))); do taut port detach "dp15-$port"; done

  dp15_ovs "$pairs"
}

# dp15_restarts RESULT OPTIONS…: runs the load on CPU 1.
dp15_restarts() {
  local result=$1
  shift
  taskset -c 1 "${CARGO_TARGET_DIR:-$here/target}/release/examples/restart" "$@" >"$result" || { note "no result"; return 1; }
}

dp15_note() {
  note "$(jq -r '"\(.events) times, \(.ports) ports, \(.frames) frames: lost \(.lost) (a ring at once \(.most_lost)), doubled \(.doubled) (\(.most_doubled)), late \(.late), damaged \(.corrupted), links down \(.link_downs), hung \(.hung)"' "$1")"
  note "$(jq -r '"silence of a port in ms, p50/p99/longest: \(.gap_ms | join("/")), of the worst port \(.worst_port_gap_ms | join("/")), without an event \(.calm_ms | join("/"))"' "$1")"
}

# dp15_goal ID RESULT MS CONDITION WORDS: records a goal on the gap and on this condition.
dp15_goal() {
  local figure=$2 exact
  exact=$(jq "if .link_downs == 0 and .hung == 0 and ($4) then 1 else 0 end" "$2")
  goal "$1" "$(jq -r '"gap p50 \(.gap_ms[0]) ms, p99 \(.gap_ms[1]) ms; lost \(.lost), doubled \(.doubled), late \(.late), damaged \(.corrupted); \(.link_downs) links down"' "$figure")" \
    "p50 < $3 ms, no link down, $5" "$(jq '.gap_ms[0]' "$figure") < $3 && $exact == 1"
}

# dp15_ovs PAIRS: measures OVS-DPDK's restart, its ports clients of sockets that stay, as its manual
# advises.
dp15_ovs() {
  [ -x /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk ] || { note "OVS-DPDK is not installed: left out"; return 0; }
  local times=5 port sockets=() how status=0
  if quick; then times=1; fi
  dp_rig
  # Other rows may have left it stopped.
  rig_resume ovs_normal || return 1
  mkdir -p "$lab/dp15-ovs"
  ovs_vsctl set bridge br0 fail-mode=standalone
  for port in $(seq 0 $((2 * $1 - 1))); do
    sockets+=("$lab/dp15-ovs/$port")
    ovs_vsctl add-port br0 "dp$port" -- set Interface "dp$port" type=dpdkvhostuserclient "options:vhost-server-path=$lab/dp15-ovs/$port"
  done
  cat >"$lab/dp15-ovs/again" <<'SH'
set -e
pid=$(cat "$rig/ovs/vs.pid")
if [ "$1" = planned ]; then ovs-appctl -t "$rig/ovs/vs.ctl" exit; else kill -9 "$pid"; fi
while kill -0 "$pid" 2>/dev/null; do sleep 0.001; done
exec /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk "unix:$rig/ovs/db.sock" --unixctl="$rig/ovs/vs.ctl" --pidfile="$rig/ovs/vs.pid" --detach \
  --log-file="$rig/ovs/vs.log" -vconsole:off >/dev/null 2>&1
SH
  export rig
  for how in planned killed; do
    dp15_restarts "$OUT/dp15-ovs-$how.json" --listen --events "$times" --settle-ms 2000 --command "sh '$lab/dp15-ovs/again' $how" "${sockets[@]}" || { status=1; break; }
    note "OVS-DPDK, $how (frames for others that it floods count as damaged):"
    dp15_note "$OUT/dp15-ovs-$how.json"
  done
  ovs_down
  return $status
}
