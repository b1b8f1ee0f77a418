# Row DP11: an idle host with 100 ports whose guests do nothing, and a lone frame that wakes the
# fabric.
row_DP11() {
  local pairs=51 seconds=20 frames=10 pair end dir=$lab/dp11 holders=() pid before after idle wake status=0 options own up awake
  if quick; then
    seconds=10 frames=3
    note "quick: 10 s idle instead of 20, lone frames for 3 s instead of 10"
  fi
  start_daemon || return 1
  mkdir -p "$dir"
  for pair in $(seq $pairs); do
    taut vswitch create "dp11-$pair" >/dev/null || return 1
    # All generators use the same addresses; only the ports of the last pair have them as their own.
    options=(--forged-transmits --mac-learning)
    [ "$pair" != $pairs ] || options=()
    taut portgroup create "dp11-$pair" --vswitch "dp11-$pair" "${options[@]}" >/dev/null || return 1
    for end in 0 1; do
      own=()
      [ "$pair" != $pairs ] || own=(--mac "02:11:00:00:00:0$end")
      taut port attach "dp11-$pair-$end" --portgroup "dp11-$pair" --path "$dir/$pair-$end" --listen "${own[@]}" >/dev/null || return 1
    done
  done
  # Front ends with running rings, which have sent and received once and are idle now. The last pair
  # is for the lone frames.
  for pair in $(seq $((pairs - 1))); do
    "$BIN/taut" bench switch "$dir/$pair-0" "$dir/$pair-1" --settle 600 >/dev/null 2>"$dir/log" &
    holders+=($!)
  done
  for _ in $(seq 600); do
    up=$(taut -o json port list | jq '[.[] | select(.owner | startswith("external/dp11-")) | select(.link == "up" and .counters.rx_frames > 0)] | length')
    [ "$up" != $((2 * pairs - 2)) ] || break
    sleep 0.1
  done
  pid=$(fabric_pid)
  prefer "$pid"
  # No request reaches the daemon or the fabric meanwhile.
  sleep 2
  before=$(cpu_ns "$pid") && sleep $seconds && after=$(cpu_ns "$pid") || status=1
  idle=$(awk -v used=$((after - before)) -v seconds=$seconds 'BEGIN{printf "%.3f", used / seconds / 1e7}')
  preferred 60 "$BIN/taut" -o json bench switch "$dir/$pairs-0" "$dir/$pairs-1" --mode traversal --pause 3 --duration $frames --cpu 1 >"$OUT/DP11.json" || status=1
  awake=$(awk -v used=$(($(cpu_ns "$pid") - after)) -v seconds=$frames 'BEGIN{printf "%.2f", used / seconds / 1e7}')
  kill "${holders[@]}" 2>/dev/null
  wait "${holders[@]}" 2>/dev/null
  [ $status = 0 ] || { tail -n 3 "$dir/log" >&2; return 1; }
  wake=$(jq '.repeats[0].traversal.p50_ns / 1000 * 10 | round / 10' "$OUT/DP11.json")
  note "lone frames, one in 3 ms: $(jq -r '.repeats[0].traversal | "\(.count) frames, \(.lost) lost, p90 \(.p90_ns / 1000 | round) µs, p99 \(.p99_ns / 1000 | round) µs"' "$OUT/DP11.json"); the fabric takes $awake % of a core for them"
  note "workers: $(taut -o json daemon show | jq -c '.workers[] | {worker, mode, sleeps: .counters.sleeps, empty_rounds: .counters.empty_rounds}')"
  goal DP11-idle "fabric $idle % of a core with $up idle ports, over $seconds s" "< 1 %" "$idle < 1 && $up >= 100"
  goal DP11-wake "kick to frame p50 $wake µs" "< 60 µs" "$wake < 60"
}

# cpu_ns PID: prints the run time of all threads of a process, in ns.
cpu_ns() { cat "/proc/$1/task/"*/schedstat | awk '{sum += $1} END{printf "%.0f", sum}'; }
