# Row PL1: S0's tables 2 and 3 with QEMU guests, as large as this machine allows (see `stage`): one latency-sensitive VM with a connection on which requests of
# 1024 B are answered, four CPU-bound VMs beside it; normal and high in alternation. S0 had two and four on twelve cores, and its client on another machine.
# Here the client is on the same pCPU as the neighbours, so every request costs them something; there is one a millisecond (those that are late are made
# up for), so that a faster answer does not mean more of them. The guest spins when it is idle (S3's halt_desched = false), under either condition: KVM has it
# halt by itself (cpu-pm), under emulation waking it up from the host takes longer than the answer.
row_PL1() {
  local repeats=4 seconds=10 file=$OUT/pl1.json
  if quick; then repeats=2 seconds=4; note "quick: 2 repeats of 4 s instead of 4 of 10 s"; fi
  local kernel_options=idle=poll
  stage vm || return 1
  taut bench neighbours netns/taut-goal-client rt1 --address 10.85.0.1 --beside "${neighbours[@]}" --interval 1 --duration $seconds --repeat $repeats --json "$file" --svg "$OUT/pl1.svg" >"$OUT/pl1.txt" || return 1
  sed -n '1,/^$/p' "$OUT/pl1.txt" | sed 's/^/  /'
  neighbour_goals PL1 "$file"
}

# neighbour_figure FILE CONDITION FIELD: the median of a latency, in µs.
neighbour_figure() { jq -r --arg name "$2" "first(.conditions[] | select(.name == \$name)) | .configuration.median.$3 // 0" "$1"; }
# neighbour_work FILE CONDITION: the median of the neighbours' work, a second.
neighbour_work() { jq -r --arg name "$2" 'first(.conditions[] | select(.name == $name)) | .beside[].work_per_s' "$1" | median; }

neighbour_goals() {
  local id=$1 file=$2 field normal high kept
  for field in "p99_us 10" "p99_9_us 12"; do
    normal=$(neighbour_figure "$file" normal "${field% *}") high=$(neighbour_figure "$file" high "${field% *}")
    goal "$id-${field%_us *}" "$(printf '%.0f us normal, %.0f us high: %s' "$normal" "$high" "$(ratio "$normal" "$high")") x better" ">= ${field#* } x" "$normal >= ${field#* } * $high"
  done
  kept=$(awk -v a="$(neighbour_work "$file" high)" -v b="$(neighbour_work "$file" normal)" 'BEGIN{printf "%.1f", (b > 0) ? 100 * a / b : 0}')
  goal "$id-neighbours" "they keep $kept % of their throughput" ">= 55 %" "$kept >= 55"
}
