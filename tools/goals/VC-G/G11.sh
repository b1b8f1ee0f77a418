# Row VC-G11: the fabric is upgraded under five streams, and killed under five streams. Linux guests
# beside them must not notice.
row_VC-G11() {
  local times=100 upgrade=$OUT/vc-g11-upgrade.json kill=$OUT/vc-g11-kill.json restart before after plugged
  if quick; then times=10; note "quick: 10 upgrades and 10 kills instead of 100"; fi
  (cd "$here" && cargo build -q --release -p taut-bench --example socket_restart) || return 1
  restart=${CARGO_TARGET_DIR:-$here/target}/release/examples/socket_restart
  vc_daemon && vc_micro a 10.82.0.1 && vc_micro b 10.82.0.2 && vc_vm c "$(old_image)" 10.82.0.3 && vc_vm d "$(new_image)" 10.82.0.4 || return 1
  before="$(pid_of c) $(pid_of d)"
  preferred 900 "$restart" "$(agent_of a)" "$(agent_of b)" --mode upgrade --events $times --command "'$BIN/taut' daemon upgrade-fabric" >"$upgrade" || return 1
  note "$(jq -c . "$upgrade")"
  goal VC-G11-upgrade "$(jq -r '"\(.upgrades) upgrades under \(.streams) streams of \(.bytes / 1073741824 * 10 | round / 10) GiB, every byte compared: \(.errors | length) errors"' "$upgrade")" \
    "every stream byte-exact" "$(jq '.errors | length' "$upgrade") == 0"
  preferred 1800 "$restart" "$(agent_of a)" "$(agent_of b)" --mode kill --events $times --command "kill -9 \$('$BIN/taut' -o json daemon show | jq .fabric_pid)" >"$kill" || return 1
  note "$(jq -c . "$kill")"
  goal VC-G11-kill "$(jq -r '"\(.kills) kills under \(.sessions) streams: \(.hung) hung; reset after \(.reset_ms[0] | round)/\(.reset_ms[1] | round) ms, the listener reached after \(.reached_ms[0] | round)/\(.reached_ms[1] | round)/\(.reached_ms[2] | round) ms (p50/p99/longest)"' "$kill")" \
    "all reset, reached within 200 ms" "$(jq .hung "$kill") == 0 && $(jq '.reached_ms[2]' "$kill") < 200"
  # The QEMU guests are the same processes afterwards, their devices were never plugged in again,
  # and they work.
  after="$(pid_of c) $(pid_of d)"
  plugged=$(taut -o json events | jq '[.[] | select(.kind | startswith("vmci.")) | select(.kind | test("plug"))] | length')
  taut bench vsock c d --mode rr --message 256 --socket-size 64KiB --duration 1 >"$OUT/vc-g11-after.txt" || return 1
  goal VC-G11-qemu "guests' processes $([ "$before" = "$after" ] && echo "the same" || echo "$before, then $after"), $plugged devices plugged in again; afterwards p50 $(awk 'NR == 2 {print $6}' "$OUT/vc-g11-after.txt") us between them" \
    "the same, 0" "$([ "$before" = "$after" ] && echo 1 || echo 0) && $plugged == 0"
}
