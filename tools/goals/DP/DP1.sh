# Row DP1: 64 B one way, split rings, with checks, lock, policy and statistics on.
row_DP1() {
  dp_rig
  local generator rate ovs floor vgen
  for generator in $(dp_light) $([ "$(dp_light)" = taut ] || echo taut); do
    compare "$dp_least" "$dp_rounds" "taut $generator one-way 64" "ovs_normal $generator one-way 64" "vhost $generator one-way 64" || return 1
    rate=$(figure "taut $generator one-way 64" .mpps) ovs=$(figure "ovs_normal $generator one-way 64" .mpps)
    floor=$(figure "vhost $generator one-way 64" .mpps)
    goal "DP1-$generator" "$rate Mpps, OVS normal $ovs, vhost floor $floor, $(ratio "$rate" "$ovs") x OVS ($state)" ">= 3.40 x" "$rate >= 3.4 * $ovs"
  done
  local frames mallocs calls
  if read -r frames mallocs calls < <(cost_allocations) && [ "${frames:-0}" -gt 0 ]; then
    # Balancing the workers allocates ten times a second, whatever the number of frames.
    goal DP1-cost "$mallocs allocations and $calls system calls in the fabric while it forwarded $frames frames in a second" "0 allocations a frame" "$mallocs * 10000 < $frames"
  else
    note "the kernel's probes cannot be had here: allocations were not counted"
  fi
  if [ -x "$BIN/examples/forward" ] && command -v valgrind >/dev/null && ! quick; then
    note "instructions per 64 B frame in the rings' device ends: split $(cost_instructions split), packed $(cost_instructions packed)"
  fi
  [ -e "$(rivals_folder)/vgen.c" ] || { note "vgen.c is not there: its row is left out"; return 0; }
  compare "$dp_least" "$dp_rounds" "taut vgen one-way 64" || return 1
  vgen=$(figure "taut vgen one-way 64" .mpps)
  goal DP1-vgen "$vgen Mpps ($state), bound by the generator" ">= 20 Mpps" "$vgen >= 20"
}
