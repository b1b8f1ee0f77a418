# Row DP7: policies on beside policies off. Counters, lock, memory checks and the look-up of the
# receiver are always on.
row_DP7() {
  dp_rig
  # On: an access VLAN; promiscuous mode, MAC changes and forged transmits rejected. Off: no VLAN,
  # the latter two accepted. Promiscuous mode is rejected in both: accepting it would copy every
  # frame.
  rig_resume taut && taut_pair guarded '--vlan 10' '' && taut_pair open '--mac-changes --forged-transmits' '' || return 1
  local on off
  compare "$dp_least" "$dp_rounds" "taut_guarded taut one-way 64" "taut_open taut one-way 64" || return 1
  on=$(figure "taut_guarded taut one-way 64" .mpps) off=$(figure "taut_open taut one-way 64" .mpps)
  goal DP7 "access VLAN and rejections $on Mpps, everything accepted $off: $(awk -v on="$on" -v off="$off" 'BEGIN{printf "%+.1f", 100 * (on / off - 1)}') % ($state)" \
    "within 5 %" "$on >= 0.95 * $off"
}
