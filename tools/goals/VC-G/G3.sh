row_VC-G3() { # request and response of 256 B, beside TCP: blocking as by default, and polled by the fabric
  local mode out transport
  for mode in adaptive polling; do
    daemon_options=(--fabric-mode "$mode")
    out=$OUT/vc-g3-$mode.json
    vmci_micros m1 m2
    vmci_bench "$out" m1 m2 --mode rr --message 256 --socket-size 256KiB --against tcp || return 1
    stop_daemon
    daemon_options=()
    for transport in vsock tcp; do
      note "$mode, $transport: p50/p99/p99.9 $(for field in p50_us p99_us p99_9_us; do vmci_cell "$out" $transport 1 256 262144 $field; done | paste -sd/) us"
    done
    local mine tcp
    mine=$(vmci_cell "$out" vsock 1 256 262144 p50_us) tcp=$(vmci_cell "$out" tcp 1 256 262144 p50_us)
    goal "VC-G3-$mode" "p50 $mine us, TCP $tcp us" "no worse" "$mine <= $tcp"
  done
}
