# Row VC-G5: throughput by message and socket size, VMCI sockets and TCP, one session and five: S2's
# figures for microguests (at native speed) and for Linux guests.
row_VC-G5() {
  local sizes=64,256,1KiB,4KiB,16KiB,64KiB seconds=2 repeats=3 guests_seconds=2 file best tcp
  if quick; then
    sizes=64,4KiB,64KiB seconds=0.3 repeats=1 guests_seconds=0.5
    note "quick: 3 message sizes of 6, once, 0.3 s (guests with Linux 0.5 s) instead of three times 2 s"
  fi
  vc_daemon && vc_micro a 10.82.0.1 && vc_micro b 10.82.0.2 || return 1
  g5_table micro a b $seconds || return 1
  stop_daemon
  vc_daemon && vc_vm a "$(new_image)" 10.82.0.1 && vc_vm b "$(new_image)" 10.82.0.2 || return 1
  g5_table linux a b $guests_seconds || return 1
  for file in micro linux; do
    best=$(gbit "$(jq '[.cells[] | select(.transport == "vsock").median.mbit_s] | max' "$OUT/vc-g5-$file.json")")
    tcp=$(gbit "$(jq '[.cells[] | select(.transport == "tcp").median.mbit_s] | max' "$OUT/vc-g5-$file.json")")
    goal VC-G5-$file "$(jq '.cells | length' "$OUT/vc-g5-$file.json") cells, best $best Gbit/s, best TCP $tcp; $OUT/vc-g5-$file.svg" "drawn" "$([ -s "$OUT/vc-g5-$file.svg" ] && echo 1 || echo 0)"
  done
}

# g5_table NAME FROM TO SECONDS: measures one table.
g5_table() {
  preferred 3600 "$BIN/taut" bench vsock "$2" "$3" --message $sizes --sessions 1,5 --duration "$4" --repeat $repeats --against tcp \
    --json "$OUT/vc-g5-$1.json" --svg "$OUT/vc-g5-$1.svg" >"$OUT/vc-g5-$1.txt" || return 1
  while IFS= read -r line; do note "$line"; done <"$OUT/vc-g5-$1.txt"
}
