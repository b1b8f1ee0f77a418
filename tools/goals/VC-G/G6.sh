# Row VC-G6: random programs find on VMCI sockets what they find on Unix sockets (the fabric's own
# test, with a given number of operations). Every byte of long streams between microguests is
# correct.
row_VC-G6() {
  local operations=1000000 gib=100 log=$OUT/vc-g6.log seconds bytes=0 moved rate=1 line
  if quick; then operations=50000 gib=4; note "quick: 50000 operations instead of 1000000, 4 GiB instead of 100"; fi
  (cd "$here" && TAUT_VMCI_OPERATIONS=$operations cargo test -q --release -p taut-fabric --lib programs_find_what_they_find_with_unix_sockets -- --nocapture) >"$log" 2>&1 || note "the test failed: $log"
  line=$(sed -n 's/^VMCI-MODEL //p' "$log" | tail -n 1)
  goal VC-G6-model "${line:-no result}" ">= $operations operations without a difference" "$(grep -q '^test result: ok' "$log" && [ -n "$line" ] && echo 1 || echo 0)"

  export TAUT_MICRO_VMCI=buffer=65580
  vc_daemon && vc_micro a 10.82.0.1 && vc_micro b 10.82.0.2 || return 1
  unset TAUT_MICRO_VMCI
  # The receiver compares every byte, so a stream without an error is correct.
  while [ "$(awk -v done="$bytes" -v gib=$gib 'BEGIN{print (done >= gib * 1073741824)}')" = 0 ]; do
    seconds=$(awk -v rate="$rate" -v left="$gib" 'BEGIN{s = left * 8589.9 / rate / 4; if (s > 10) s = 10; if (s < 1) s = 1; print s}')
    preferred 120 "$BIN/taut" -o json bench vsock a b --message 64,3000,64KiB,1MiB --socket-size 256KiB --sessions 5 --check --duration "$seconds" >"$OUT/vc-g6.json" || return 1
    rate=$(jq '[.cells[].median.mbit_s] | add / length' "$OUT/vc-g6.json")
    bytes=$(jq --argjson done "$bytes" --argjson seconds "$seconds" '([.cells[].median.mbit_s] | add) * 125000 * $seconds + $done | round' "$OUT/vc-g6.json")
  done
  moved=$(awk -v bytes="$bytes" 'BEGIN{printf "%.1f", bytes / 1073741824}')
  goal VC-G6-sequence "$moved GiB in five sessions, messages of 64 B to 1 MiB, every byte compared: all right" ">= $gib GiB" "$moved >= $gib"
}
