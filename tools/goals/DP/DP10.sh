# Row DP10: two QEMU guests: TCP beside TAP + bridge with offloads, and request and response beside
# a back end that polls (OVS-DPDK).
row_DP10() {
  dp_rig
  two_guests || return 1
  local each=4 repeats=5 twins pair polled text
  if quick; then each=2 repeats=2; note "quick: 2 repeats of 2 s instead of 5 of 4 s"; fi

  bridge_vms alpha beta
  answering "$lab/twins" alpha beta || return 1
  twins="agent:$lab/twins/alpha/agent.sock agent:$lab/twins/beta/agent.sock"
  # shellcheck disable=SC2086
  taut bench stream alpha beta --versus $twins --pattern auto --duration $each --repeat $repeats --json "$OUT/dp10-stream.json" || return 1
  # shellcheck disable=SC2086
  taut bench rr alpha beta --versus $twins --duration $each --repeat $repeats --json "$OUT/dp10-rr.json" || return 1
  end_rivals
  goal DP10-stream "$(jq -r '"\(.a.median.mbit_s | round) Mbit/s, TAP + bridge \(.b.median.mbit_s | round), ratio \(.a.median.mbit_s / .b.median.mbit_s * 100 | round / 100)"' "$OUT/dp10-stream.json")" \
    ">= 1.00" "$(jq '.a.median.mbit_s / .b.median.mbit_s' "$OUT/dp10-stream.json") >= 1"
  goal DP10-rr "p50 $(jq -r '"\(.a.median.p50_us | round) us, TAP + bridge \(.b.median.p50_us | round)"' "$OUT/dp10-rr.json")" "no worse" \
    "$(jq '.a.median.p50_us / .b.median.p50_us' "$OUT/dp10-rr.json") <= 1"

  polled_vms alpha beta && answering "$lab/polled" alpha beta || return 1
  polled="agent:$lab/polled/alpha/agent.sock agent:$lab/polled/beta/agent.sock"
  # shellcheck disable=SC2086
  taut bench rr alpha beta --versus $polled --duration $each --repeat $repeats --json "$OUT/dp10-polled.json" || return 1
  end_rivals
  rig_signal STOP ovs_normal
  text=$(jq -r '"\(.a.median.p99_9_us | round) us, OVS-DPDK \(.b.median.p99_9_us | round)"' "$OUT/dp10-polled.json")
  goal DP10-tail "p99.9 $text" "better" "$(jq '.a.median.p99_9_us / .b.median.p99_9_us' "$OUT/dp10-polled.json") < 1"
}

# polled_vms NAME…: starts, for each of these running VMs, a twin on OVS-DPDK, whose thread polls
# core 0; in $lab/polled/NAME.
polled_vms() {
  rig_resume ovs_normal && ovs_normal_prepare || return 1
  local name socket
  on_polled() {
    case $word in socket,id=nic0,*) socket=${word##*path=} socket=${socket%%,*} ;; esac
  }
  for name in "$@"; do
    start_twin "$name" "$lab/polled/$name" on_polled
    ovs_vsctl --if-exists del-port br0 "twin-$name" -- add-port br0 "twin-$name" -- set Interface "twin-$name" type=dpdkvhostuserclient \
      "options:vhost-server-path=$socket" || return 1
  done
}
