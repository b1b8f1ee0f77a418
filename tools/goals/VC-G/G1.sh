row_VC-G1() { # one stream, microguests: beside TCP over the vSwitch, vhost-device-vsock and a plain copy
  local out=$OUT/vc-g1.json mine tcp copy rival=
  vmci_micros m1 m2
  vmci_bench "$out" m1 m2 --mode stream --message 64KiB --socket-size 256KiB --against tcp || return 1
  mine=$(vmci_cell "$out" vsock 1 65536 262144 mbit_s) tcp=$(vmci_cell "$out" tcp 1 65536 262144 mbit_s)
  copy=$(taut -o json bench raw | jq '.memcpy[] | select(.size == 65536).gbyte_s * 8000 | round')
  if vmci_rival; then
    vmci_bench "$OUT/vc-g1-rival.json" "$rival_from" "$rival_to" --mode stream --message 64KiB --socket-size 256KiB && rival=$(vmci_cell "$OUT/vc-g1-rival.json" vsock 1 65536 262144 mbit_s)
    vmci_rival_ends
  fi
  goal VC-G1-rival "$mine Mbit/s, vhost-device-vsock ${rival:-not measured}, $(ratio "$mine" "$rival") x" ">= 5 x" "${rival:-0} > 0 && $mine >= 5 * ${rival:-0}"
  goal VC-G1-tcp "$mine Mbit/s, TCP $tcp, $(ratio "$mine" "$tcp") x" ">= 3 x" "$mine >= 3 * $tcp"
  goal VC-G1-memcpy "$mine Mbit/s, memcpy of 64 KiB $copy, $(ratio "$mine" "$copy")" ">= 0.50" "$mine >= 0.5 * $copy"
}
