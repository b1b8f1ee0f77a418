row_DP7() { # policies on beside policies off. Counters, lock and checks of memory are always on; so is the look-up of the receiver
  dp_rig
  # On: an access VLAN; promiscuous mode, MAC changes and forged transmits refused. Off: no VLAN, the latter two accepted. Of promiscuous mode the
  # rejection is the cheaper side: who accepts it gets a copy of every frame.
  rig_resume taut && taut_pair guarded '--vlan 10' '' && taut_pair open '--mac-changes --forged-transmits' '' || return 1
  local on off
  compare "$dp_least" "$dp_rounds" "taut_guarded taut one-way 64" "taut_open taut one-way 64" || return 1
  on=$(figure "taut_guarded taut one-way 64" .mpps) off=$(figure "taut_open taut one-way 64" .mpps)
  goal DP7 "access VLAN and rejections $on Mpps, everything accepted $off: $(awk -v on="$on" -v off="$off" 'BEGIN{printf "%+.1f", 100 * (on / off - 1)}') % ($state)" \
    "within 5 %" "$on >= 0.95 * $off"
}
