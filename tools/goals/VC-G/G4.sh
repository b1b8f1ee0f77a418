row_VC-G4() { # QEMU guests with Debian's kernels, old to new and back
  local pair from to out size
  start_daemon
  taut vswitch create sw && taut portgroup create lan --vswitch sw
  for pair in "alpha $(old_image) 1" "beta $(new_image) 2"; do
    read -r from image size <<<"$pair"
    printf 'memory = "128MiB"\n[boot]\nkernel = "%s"\ninitrd = "%s"\n[vmci]\ndomains = ["goal"]\n[[nic]]\nportgroup = "lan"\nip = "10.81.0.%d/24"\n' \
      "$IMAGES/$image/vmlinuz" "$IMAGES/$image/initrd" "$size" >"$lab/$from.toml"
    taut vm create -f "$lab/$from.toml" --name "$from" >/dev/null
    taut vm start --wait "$from"
  done
  for pair in "alpha beta" "beta alpha"; do
    read -r from to <<<"$pair"
    out=$OUT/vc-g4-$from.json
    vmci_bench "$out" "$from" "$to" --mode stream --message 256,4KiB,64KiB --socket-size 256KiB --against tcp || return 1
    local mine tcp
    for size in 256 4096 65536; do
      mine=$(vmci_cell "$out" vsock 1 $size 262144 mbit_s) tcp=$(vmci_cell "$out" tcp 1 $size 262144 mbit_s)
      goal "VC-G4-$from-$size" "$from to $to, $size B: $mine Mbit/s, TCP $tcp" "works; 64 KiB from the new kernel: > TCP" \
        "$mine > 0 && ($size != 65536 || \"$from\" != \"beta\" || $mine > $tcp)"
    done
  done
  out=$OUT/vc-g4-rr.json
  vmci_bench "$out" alpha beta --mode rr --message 256 --socket-size 256KiB --against tcp || return 1
  goal VC-G4-rr "p50/p99 $(vmci_cell "$out" vsock 1 256 262144 p50_us)/$(vmci_cell "$out" vsock 1 256 262144 p99_us) us, TCP $(vmci_cell "$out" tcp 1 256 262144 p50_us)/$(vmci_cell "$out" tcp 1 256 262144 p99_us)" \
    "stated" 1
}
