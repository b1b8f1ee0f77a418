# DP12: costs and savings of each moderation scheme at each load. The fabric has its default mode
# (adaptive) on core 0; core 1 sends and takes interrupts.
row_DP12() {
  local out=$OUT/moderation options=(--duration 2 --repeat 3) status=0
  if quick; then
    options=(--duration 0.6)
    note "shortened: one measurement of 0.6 s a scheme and load instead of three of 2 s"
  fi
  moderation_lab moderation_bench "$out" "${options[@]}" || return 1
  while IFS= read -r line; do note "$line"; done <"$out.txt"
  note "table, samples and picture: $out.txt, .json, .svg"
  # cell SCHEME RATE FIELD: prints the median.
  cell() {
    jq -r --arg scheme "$1" --argjson rate "$2" "[.cells[] | select(.scheme == \$scheme and .rate == \$rate) | .$3] | sort
      | .[length / 2 | floor] * 10 | round / 10" "$out.json"
  }
  local scheme lone lost; lone=$(cell disabled 100 p50_us) lost=$(jq '[.cells[].lost] | add' "$out.json")
  for scheme in rbc:4000 adapt; do
    local waits; waits=$(awk -v a="$(cell "$scheme" 100 p50_us)" -v b="$lone" 'BEGIN{printf "%.1f", a - b}')
    goal "DP12-lone-$scheme" "$waits us behind disabled's $lone us" "<= 50 us" "$waits <= 50"
  done
  goal DP12-lone-static "p99 $(cell static:64 100 p99_us) us" "<= 4000 us and disabled's p99" "$(cell static:64 100 p99_us) <= 4000 + $(cell disabled 100 p99_us)"
  for scheme in 10000 100000; do
    goal "DP12-rate-$((scheme / 1000))k" "rbc $(cell rbc:4000 $scheme interrupts_per_s)/s, disabled $(cell disabled $scheme interrupts_per_s)/s" \
      "<= 4200/s" "$(cell rbc:4000 $scheme interrupts_per_s) <= 4200"
  done
  goal DP12-loss "$lost frames" "0" "$lost == 0"
}

# moderation_lab COMMAND…: runs a command with a tautd of its own, whose fabric is on core 0.
moderation_lab() {
  local dir=$lab/moderation status=0 own
  mkdir -p "$dir"
  setsid "$BIN/tautd" --state-dir "$dir/state" --run-dir "$dir/run" --fabric-cpus 0 2>"$dir/log" &
  own=$!
  (
    export TAUT_SOCKET=$dir/run/tautd.sock
    for _ in $(seq 500); do [ -n "$(fabric_pid 2>/dev/null)" ] && break; sleep 0.02; done
    # Waits for the daemon's KVM probe, which keeps a core busy for seconds.
    taut host show >/dev/null
    status=0
    "$@" || status=1
    taut shutdown --everything || status=1
    exit $status
  ) || status=1
  wait "$own" 2>/dev/null || true
  [ $status = 0 ] || tail -n 5 "$dir/log"
  return $status
}

moderation_bench() {
  local out=$1
  shift
  taut vswitch create sw && taut portgroup create lan --vswitch sw || return 1
  taut bench moderation --portgroup lan --cpu 1 "$@" --json "$out.json" --svg "$out.svg" >"$out.txt" 2>"$out.log" || { cat "$out.log" >&2; return 1; }
}
