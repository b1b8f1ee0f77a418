# Row DP4: 65536 flows from and to 100 MACs behind each port, beside one flow. The generator writes
# the first line of each frame.
row_DP4() {
  dp_rig
  rig_resume taut && taut_pair learning '--forged-transmits --mac-learning' '' || return 1
  local one="one-way 64 --touch" many="one-way 64 --flows 65536 --macs 100" thousand="one-way 64 --flows 1024 --macs 100" switch loss
  compare "$dp_least" "$dp_rounds" "taut_learning taut $one" "taut_learning taut $many" "taut_learning taut $thousand" "ovs_normal taut $one" "ovs_normal taut $many" \
    || return 1
  for switch in ovs_normal taut_learning; do
    loss=$(awk -v one="$(figure "$switch taut $one" .mpps)" -v many="$(figure "$switch taut $many" .mpps)" 'BEGIN{printf "%.1f", 100 * (1 - many / one)}')
    note "$switch: one flow $(figure "$switch taut $one" .mpps) Mpps, 65536 flows and 100 MACs $(figure "$switch taut $many" .mpps): loses $loss % ($state)"
    [ "$switch" = taut_learning ] || local ovs=$loss
  done
  goal DP4 "loses $loss % (1024 flows: $(figure "taut_learning taut $thousand" .mpps) Mpps), OVS $ovs % ($state)" "< 10 %" "$loss < 10"
}
