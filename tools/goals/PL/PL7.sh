# Row PL7: properties of the plan on random hosts and VMs (the tests of crates/plan), and the time
# for a large plan.
row_PL7() {
  local cases=1000000 log=$OUT/pl7-tests.log outcome=0 tests slowest
  if quick; then cases=20000; note "quick: 20,000 cases of each property instead of 1,000,000"; fi
  # An optimised build, because the number of cases counts.
  (cd "$here" && TAUT_PLAN_CASES=$cases cargo test -q --release -p taut-plan --lib -- placement:: admission:: explain:: 2>&1 </dev/null) >"$log" || outcome=$?
  tests=$(sed -n 's/.*ok\. \([0-9]*\) passed.*/\1/p' "$log")
  [ "$outcome" = 0 ] || tail -n 5 "$log"
  note "no pCPU with two owners, host never without, reservations within capacity, the same again, nobody moves for others: $(tail -n 2 "$log" | head -n 1)"
  goal PL7-properties "${tests:-0} tests with $cases cases for each property, status $outcome" "all pass, >= $cases cases" "$outcome == 0 && ${tests:-0} > 0"
  (cd "$here" && cargo run -q --release -p taut-plan --example placement </dev/null) >"$OUT/pl7-large.txt" || return 1
  while read -r line; do note "$line"; done <"$OUT/pl7-large.txt"
  slowest=$(sed -n 's/.* in \([0-9.]*\) ms:.*/\1/p' "$OUT/pl7-large.txt" | sort -n | tail -n 1)
  goal PL7-large "1,000 VMs on 256 pCPUs in $slowest ms" "< 50 ms" "$slowest < 50"
}
