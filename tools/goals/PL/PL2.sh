# Row PL2: PL1 with microguests, which run at native speed, and beside them two namespaces with a
# cable between them, without VM or load. Both ends of such a connection are always ready for the
# next request, so the client and the fabric leave little of the host's pCPU.
row_PL2() {
  local repeats=5 seconds=8 file=$OUT/pl2.json native high
  if quick; then repeats=3 seconds=3; note "quick: 3 repeats of 3 s instead of 5 of 8 s"; fi
  stage micro && native_pair || return 1
  taut bench neighbours netns/taut-goal-client rt1 --address 10.85.0.1 --beside "${neighbours[@]}" --native netns/taut-goal-a netns/taut-goal-b --duration $seconds --repeat $repeats --json "$file" --svg "$OUT/pl2.svg" >"$OUT/pl2.txt" || return 1
  sed -n '1,/^$/p' "$OUT/pl2.txt" | sed 's/^/  /'
  native=$(neighbour_figure "$file" native p99_9_us) high=$(neighbour_figure "$file" high p99_9_us)
  goal PL2 "p99.9 $(printf '%.0f us high under load, %.0f us native without load' "$high" "$native"): $(ratio "$high" "$native") x (normal under load: $(printf %.0f "$(neighbour_figure "$file" normal p99_9_us)") us)" "<= 1.50 x" "$high <= 1.5 * $native && $high > 0"
}
