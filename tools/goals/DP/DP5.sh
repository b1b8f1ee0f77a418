# Row DP5: one traversal, polled, 64 B.
row_DP5() {
  dp_rig
  local packed split floor p50 p99 p999 floor50 floor99 floor999 ovs
  compare "$dp_least" "$dp_rounds" "taut taut traversal 64" "taut taut traversal 64 --packed" "vhost taut traversal 64" "ovs_normal taut traversal 64" || return 1
  packed=$(figure "taut taut traversal 64 --packed" .traversal.p50_ns)
  p50=$(figure "taut taut traversal 64" .traversal.p50_ns) p99=$(figure "taut taut traversal 64" .traversal.p99_ns) p999=$(figure "taut taut traversal 64" .traversal.p99_9_ns)
  floor50=$(figure "vhost taut traversal 64" .traversal.p50_ns) floor99=$(figure "vhost taut traversal 64" .traversal.p99_ns)
  floor999=$(figure "vhost taut traversal 64" .traversal.p99_9_ns)
  ovs=$(figure "ovs_normal taut traversal 64" .traversal.p50_ns)
  note "p99.99: taut $(figure "taut taut traversal 64" .traversal.p99_99_ns), packed $(figure "taut taut traversal 64 --packed" .traversal.p99_99_ns), floor $(figure "vhost taut traversal 64" .traversal.p99_99_ns) ns"
  goal DP5-packed "p50 $packed ns, floor's split $floor50, ratio $(ratio "$packed" "$floor50") (OVS normal $ovs; $state)" "<= 0.75" "$packed <= 0.75 * $floor50"
  goal DP5-split "p50/p99/p99.9 $p50/$p99/$p999 ns, floor $floor50/$floor99/$floor999 ($state)" "under, under, no worse" \
    "$p50 < $floor50 && $p99 < $floor99 && $p999 <= $floor999"
}
