row_VC-G5() { # S2's two figures: message by socket size, one and five sessions
  local sizes=64,256,1KiB,4KiB,16KiB,64KiB
  quick && { sizes=256,4KiB,64KiB; note "shortened: messages of $sizes bytes"; }
  vmci_micros m1 m2
  vmci_bench "$OUT/vc-g5.json" m1 m2 --mode stream --message $sizes --socket-size 64KiB,256KiB --sessions 1,5 --against tcp --svg "$OUT/vc-g5.svg" || return 1
  goal VC-G5 "$(jq '[.cells[] | select(.transport == "vsock")] | length' "$OUT/vc-g5.json") cells of VMCI sockets and as many of TCP; table above, picture $OUT/vc-g5.svg" "stated" 1
}
