# Row PL1: S0's tables 2 and 3 with QEMU guests, as large as this machine allows (see `stage`): one
# latency-sensitive VM that answers requests of 1024 B over a connection, four CPU-bound VMs beside
# it, normal and high in alternation. S0 had two and four VMs on twelve cores, and its client on
# another machine. Latency is measured as in S0, each request right after the last answer. Faster
# answers then mean more requests, five times as many here. The client, the fabric and QEMU's main
# loop take their part of each from the neighbours' only pCPU. So what the neighbours keep is
# measured once more at one request every 2 ms, the same number under both levels, and both figures
# are shown.
row_PL1() {
  local repeats=4 seconds=10 file=$OUT/pl1.json paced=$OUT/pl1-paced.json field normal high kept
  if quick; then repeats=2 seconds=4; note "quick: 2 repeats of 4 s instead of 4 of 10 s"; fi
  stage vm || return 1
  pl1_bench pl1 && pl1_bench pl1-paced --interval 2 || return 1
  for field in "p99_us 10" "p99_9_us 12"; do
    normal=$(neighbour_figure "$file" normal "${field% *}") high=$(neighbour_figure "$file" high "${field% *}")
    goal "PL1-${field%_us *}" "$(printf '%.0f us normal, %.0f us high' "$normal" "$high"): $(ratio "$normal" "$high") x better" ">= ${field#* } x" "$normal >= ${field#* } * $high && $high > 0"
  done
  kept=$(neighbours_keep "$paced")
  # The neighbours had a pCPU in the time that %RDY leaves.
  note "$(jq -r '(.host.cpus - 1) as $left | first(.conditions[] | select(.name == "normal")) | ([.beside[].neighbours_ready_percent] | add / length) as $ready
    | (4 * (100 - $ready) / 100) as $had | "the neighbours had \($had * 100 | round / 100) of the pCPUs; of the \($left) left of them they could keep \(100 * $left / $had | round) % if nobody else needed any"' "$paced")"
  goal PL1-neighbours "they keep $kept % of their throughput at 500 requests a second under both; $(neighbours_keep "$file") % when each request follows the last answer" ">= 55 %" "$kept >= 55"
}
# pl1_bench NAME OPTIONS…: runs the experiment once; results are NAME.json, .svg and .txt.
pl1_bench() {
  taut bench neighbours netns/taut-goal-client rt1 --address 10.85.0.1 --beside "${neighbours[@]}" --duration $seconds --repeat $repeats "${@:2}" --json "$OUT/$1.json" --svg "$OUT/$1.svg" >"$OUT/$1.txt" || return 1
  sed -n '1,/^$/p' "$OUT/$1.txt" | sed 's/^/  /'
}

# neighbour_figure FILE CONDITION FIELD: prints the median of a figure.
neighbour_figure() { jq -r --arg name "$2" "first(.conditions[] | select(.name == \$name)) | .configuration.median.$3 // 0" "$1"; }
# neighbour_work FILE CONDITION: prints the median of the neighbours' work per second.
neighbour_work() { jq -r --arg name "$2" 'first(.conditions[] | select(.name == $name)) | .beside[].work_per_s' "$1" | median; }

# neighbours_keep FILE: prints the neighbours' work under high, in percent of that under normal.
neighbours_keep() { awk -v a="$(neighbour_work "$1" high)" -v b="$(neighbour_work "$1" normal)" 'BEGIN{printf "%.1f", (b > 0) ? 100 * a / b : 0}'; }
