# Row VC-G7: kernels from 6.12.92 accept a limited number of packets of one connection before they
# drop or reset. A microguest floods a slow reader on such a kernel with small messages; nothing may
# be lost or reset.
row_VC-G7() {
  local seconds=20 file=$OUT/vc-g7.json kernel before after resets
  if quick; then seconds=4; note "quick: 4 s a message size instead of 20"; fi
  vc_daemon && vc_micro a 10.82.0.1 && vc_vm b "$(new_image)" 10.82.0.2 || return 1
  kernel=$(jq -r .kernel "$IMAGES/$(new_image)/info.json")
  before=$(g7_resets)
  # Every byte is compared. The reader is emulated and asks for 16 bytes at a time, the writer is
  # not.
  taut -o json bench vsock a b --message 1,16,64,300 --receive 16 --check --socket-size 256KiB --sessions 1 --duration $seconds >"$file" 2>"$OUT/vc-g7.log" \
    || { goal VC-G7 "Linux $kernel: $(head -n 3 "$OUT/vc-g7.log" | tr '\n' ' ')" "nothing dropped, nothing reset" 0; return 0; }
  after=$(g7_resets)
  resets=$((after - before))
  goal VC-G7 "Linux $kernel, read 16 B at a time: $(jq -r '[.cells[] | "\(.message) B \(.median.mbit_s * 10 | round / 10) Mbit/s"] | join(", ")' "$file"); every byte right, $resets connections reset" \
    "nothing dropped, nothing reset" "$resets == 0"
}
g7_resets() { taut -o json vm show b | jq .status.vmci.counters.resets; }
