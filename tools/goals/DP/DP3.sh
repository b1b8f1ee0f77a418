# Row DP3: packed rings, 64 B: one way beside OVS, and both ways beside one way.
row_DP3() {
  dp_rig
  local rate ovs both split
  compare "$dp_least" "$dp_rounds" "taut taut one-way 64 --packed" "ovs_normal taut one-way 64 --packed" "taut taut both-ways 64 --packed" "taut taut both-ways 64" \
    || return 1
  rate=$(figure "taut taut one-way 64 --packed" .mpps) ovs=$(figure "ovs_normal taut one-way 64 --packed" .mpps)
  both=$(figure "taut taut both-ways 64 --packed" .mpps) split=$(figure "taut taut both-ways 64" .mpps)
  goal DP3-packed "$rate Mpps, OVS normal $ovs: $(ratio "$rate" "$ovs") x ($state)" ">= 2.00 x" "$rate >= 2 * $ovs"
  goal DP3-both "both ways $both Mpps in all, one way $rate (split rings, both ways: $split; $state)" "no lower" "$both >= $rate"
}
