row_VC-G2() { # five streams beside one
  local out=$OUT/vc-g2.json one five fair
  vmci_micros m1 m2
  vmci_bench "$out" m1 m2 --mode stream --message 64KiB --socket-size 256KiB --sessions 1,5 || return 1
  one=$(vmci_cell "$out" vsock 1 65536 262144 mbit_s) five=$(vmci_cell "$out" vsock 5 65536 262144 mbit_s)
  fair=$(vmci_cell "$out" vsock 5 65536 262144 fairness)
  goal VC-G2-total "five sessions $five Mbit/s, one $one" "no lower" "$five >= $one"
  goal VC-G2-fairness "index $fair" ">= 0.95" "${fair:-0} >= 0.95"
}
