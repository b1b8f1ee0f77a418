# DP8: accuracy of shaping, by `taut bench shaping` (raw frames, its own clock), by TCP between
# namespaces and between microguests, and in virtual time for what would take minutes.

# fresh_lab: removes what other rows have left in the lab.
fresh_lab() {
  [ -z "$daemon" ] || { taut shutdown --everything >/dev/null; wait "$daemon" || true; }
  daemon=
  rm -rf "$lab/state"
}

# shaping_ports: starts a tautd whose worker is on core 0, with port sh0 on the port group that is
# shaped, sh1 and the neighbours on another.
shaping_ports() {
  fresh_lab
  start_daemon --fabric-cpus 0 || return 1
  prefer "$(fabric_pid)"
  taut vswitch create sw
  taut portgroup create lan --vswitch sw
  taut portgroup create shaped --vswitch sw
  local port
  taut port attach sh0 --portgroup shaped --mac 02:11:00:00:00:00 --path "$lab/sh0" --listen --offloads
  taut port attach sh1 --portgroup lan --mac 02:11:00:00:00:01 --path "$lab/sh1" --listen --offloads
  taut port attach nb0 --portgroup lan --mac 02:11:00:00:01:00 --path "$lab/nb0" --listen --offloads
  taut port attach nb1 --portgroup lan --mac 02:11:00:00:01:01 --path "$lab/nb1" --listen --offloads
  for port in sh0 sh1 nb0 nb1; do
    for _ in $(seq 100); do [ -S "$lab/$port" ] && break; sleep 0.02; done
  done
}

# goodput FROM TO RATE: prints the TCP payload from one to the other in percent of RATE (Mbit/s).
goodput() {
  taut bench stream "$1" "$2" --pattern auto --duration "$tcp_seconds" --json "$OUT/dp8-tcp.json" >/dev/null || return 1
  jq --arg name "$1>$2 $3" --argjson rate "$3" -c '{name: $name, rate: $rate, mbit_s: .a.median.mbit_s}' "$OUT/dp8-tcp.json" >>"$OUT/dp8-tcp.jsonl"
  jq --argjson rate "$3" '100 * .a.median.mbit_s / $rate | . * 100 | round / 100' "$OUT/dp8-tcp.json"
}

row_DP8() {
  local averages=1kbit,10kbit,64kbit,256kbit,1Mbit,10Mbit,100Mbit,1Gbit,2500Mbit,10Gbit,40Gbit,100Gbit duration=0.7 most=30 tcp_rates="1 10 100 1000" tcp_seconds=10
  if quick; then
    averages=10kbit,1Mbit,100Mbit,1Gbit,10Gbit,100Gbit duration=0.2 most=1 tcp_rates="100" tcp_seconds=2
    note "quick: 6 rates of 12, 0.2 s each instead of 0.7 s, nothing that takes longer than 1 s; TCP at 100 Mbit/s for 2 s; no virtual time"
  fi
  shaping_ports || return 1
  local size
  : >"$OUT/dp8.jsonl" >"$OUT/dp8-tcp.jsonl"
  for size in 64 1518 65536; do
    local neighbours=()
    [ $size != 1518 ] || neighbours=(--neighbours "$lab/nb0" "$lab/nb1")
    preferred 3600 "$BIN/taut" -o json bench shaping "$lab/sh0" "$lab/sh1" --portgroup shaped --size $size --average $averages --duration $duration --most $most --cpu 1 \
      "${neighbours[@]}" >"$OUT/dp8-$size.json" || return 1
    jq -c --argjson size $size '.rates[] | {size: $size} + .' "$OUT/dp8-$size.json" >>"$OUT/dp8.jsonl"
  done
  jq -r '"\(.direction) \(.size) B, \(.average) bit/s: " + if .paced == null then "takes too long in real time" elif .limits then "rate \(.rate_error_percent * 100 | round / 100) %, burst \(.burst_error_percent * 100 | round / 100) %" else "does not limit, \(.capacity / 1e7 | round / 100) Gbit/s get through" end' "$OUT/dp8.jsonl" | while read -r line; do note "$line"; done
  local limited='select(.limits and .paced != null)'
  local rate burst counted open
  counted=$(jq -s "[.[] | $limited] | length" "$OUT/dp8.jsonl")
  open=$(jq -s '[.[] | select(.limits | not)] | length' "$OUT/dp8.jsonl")
  rate=$(jq -s "[.[] | $limited | .rate_error_percent | fabs] | max * 100 | round / 100" "$OUT/dp8.jsonl")
  burst=$(jq -s "[.[] | $limited | .burst_error_percent | fabs] | max * 100 | round / 100" "$OUT/dp8.jsonl")
  goal DP8-rate "worst of $counted: $rate % ($open more do not limit)" "<= 1 %" "$rate <= 1"
  goal DP8-burst "worst of $counted: $burst %" "<= 5 %" "$burst <= 5"
  if ! quick; then
    (cd "$here" && cargo run --release -q -p taut-fabric --example pacing) >"$OUT/dp8-virtual.jsonl" || return 1
    rate=$(jq -s '[.[].rate_error_percent | fabs] | max' "$OUT/dp8-virtual.jsonl")
    burst=$(jq -s '[.[].burst_error_percent | select(. != null) | fabs] | max' "$OUT/dp8-virtual.jsonl")
    goal DP8-virtual "worst of $(wc -l <"$OUT/dp8-virtual.jsonl") in virtual time: rate $rate %, burst $burst %" "<= 1 %, <= 5 %" "$rate <= 1 && $burst <= 5"
  fi
  local loss; loss=$(jq '[.neighbours[].loss_percent] | max * 100 | round / 100' "$OUT/dp8-1518.json")
  note "neighbours: $(jq -c '.neighbours' "$OUT/dp8-1518.json")"
  goal DP8-neighbour "$loss % less beside a shaped port" "< 3 %" "$loss < 3"

  taut netns attach dp8-a --portgroup shaped --ip 10.81.0.1/24
  taut netns attach dp8-b --portgroup lan --ip 10.81.0.2/24
  local mbit direction worst=1000 share
  for mbit in $tcp_rates; do
    for direction in to-switch to-guest; do
      taut portgroup set shaped --to-switch none --to-guest none
      taut portgroup set shaped "--$direction" "average=${mbit}Mbit,peak=${mbit}Mbit,burst=64KiB"
      sleep 0.2
      if [ $direction = to-switch ]; then share=$(goodput netns/dp8-a netns/dp8-b "$mbit"); else share=$(goodput netns/dp8-b netns/dp8-a "$mbit"); fi || return 1
      note "TCP $direction at $mbit Mbit/s: $share %"
      worst=$(awk "BEGIN{print ($share < $worst) ? $share : $worst}")
    done
  done
  goal DP8-tcp "worst goodput $worst % of the average" ">= 92 %" "$worst >= 92"
  fresh_lab
}
