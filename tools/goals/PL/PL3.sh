# Row PL3: %RDY of an exclusive vCPU under load, and who else ran on its pCPU: `taut latency` while
# the neighbours compute and requests are answered, for a normal VM and then for a high one. taut
# may not move programs outside this script's cpuset. They reach any pCPU, are listed as intruders,
# and their part of %RDY is shown separately.
row_PL3() {
  local seconds=60 bench ready explained outside own tid ms line file=$OUT/pl3-high.json
  if quick; then seconds=12; note "quick: 12 s instead of 60 s"; fi
  stage vm || return 1
  timeout 300 "$BIN/taut" bench neighbours netns/taut-goal-client rt1 --address 10.85.0.1 --beside "${neighbours[@]}" --interval 1 --duration $((seconds + 4)) --repeat 1 >"$OUT/pl3-load.txt" 2>&1 </dev/null & bench=$!
  sleep 2
  taut -o json latency rt1 --duration "$seconds" >"$OUT/pl3-normal.json" || return 1
  for _ in $(seq 400); do [ "$(taut -o json vm show rt1 | jq -r '.status.latency.cpus | length')" != 1 ] || break; sleep 0.05; done
  sleep 1
  taut -o json latency rt1 --duration "$seconds" >"$file" || return 1
  wait $bench || { tail -n 3 "$OUT/pl3-load.txt"; return 1; }
  ready=$(jq '.vcpus[0] | if .exclusive then .ready_percent else 100 end' "$file")
  explained=$(jq '[.vcpus[0].intruders[] | select(.why == "")] | length' "$file")
  note "normal: %RDY $(jq '.vcpus[0].ready_percent * 1000 | round / 1000' "$OUT/pl3-normal.json"), switched away from $(jq '.vcpus[0].involuntary' "$OUT/pl3-normal.json") times against its will"
  note "high: %RDY $(jq -n "$ready * 1000 | round / 1000"), switched away from $(jq '.vcpus[0].involuntary' "$file") times against its will; intruders:"
  jq -r '.vcpus[0].intruders[:8][] | "\(.name): \(.times) times, \(.ms * 100 | round / 100) ms: \(.why)"' "$file" | while read -r line; do note "  $line"; done
  # Programs in the root cpuset, or gone by now; not kernel threads.
  outside=$(jq -r '.vcpus[0].intruders[] | select(.why | startswith("its affinity")) | "\(.tid) \(.ms)"' "$file" | while read -r tid ms; do
    [ "$(cat "/proc/$tid/cpuset" 2>/dev/null || echo /)" != / ] || echo "$ms"
  done | awk -v s="$seconds" '{sum += $1} END {printf "%.4f", sum / s / 10}')
  own=$(awk -v a="$ready" -v b="$outside" 'BEGIN{printf "%.3f", (a > b) ? a - b : 0}')
  note "without what programs outside the cpuset took: %RDY $own"
  goal PL3 "%RDY $(printf %.3f "$ready") over $seconds s, $(jq '.vcpus[0].intruders | length' "$file") intruders, $explained not explained" "< 0.1 %, all explained" "$ready < 0.1 && $explained == 0"
}
