# Row DP2: 256 B and 1518 B one way, split rings.
row_DP2() {
  dp_rig
  local generator size rate ovs floor
  local -A bounds=([256]=3.0 [1518]=2.4)
  generator=$(dp_light)
  for size in 256 1518; do
    compare "$dp_least" "$dp_rounds" "taut $generator one-way $size" "ovs_normal $generator one-way $size" "vhost $generator one-way $size" || return 1
    rate=$(figure "taut $generator one-way $size" .mpps) ovs=$(figure "ovs_normal $generator one-way $size" .mpps)
    floor=$(figure "vhost $generator one-way $size" .mpps)
    goal "DP2-$size" "$rate Mpps, OVS normal $ovs, vhost floor $floor: $(ratio "$rate" "$ovs") x and $(ratio "$rate" "$floor") x ($generator, $state)" \
      ">= ${bounds[$size]} x OVS, >= 2 x floor" "$rate >= ${bounds[$size]} * $ovs && $rate >= 2 * $floor"
  done
}
