# Row VC-G2: five sessions beside one, between microguests.
row_VC-G2() {
  local rounds=5 seconds=2 file=$OUT/vc-g2.json one five fair
  if quick; then rounds=2 seconds=1; note "quick: 2 rounds of 1 s instead of 5 of 2 s"; fi
  export TAUT_MICRO_VMCI=buffer=65580,rx=16,tx=16
  vc_daemon && vc_micro a 10.82.0.1 && vc_micro b 10.82.0.2 || return 1
  unset TAUT_MICRO_VMCI
  preferred 300 "$BIN/taut" -o json bench vsock a b --message 64KiB --socket-size 256KiB --sessions 1,5 --duration $seconds --repeat $rounds >"$file" || return 1
  one=$(gbit "$(cell "$file" vsock 262144 65536 1 mbit_s)") five=$(gbit "$(cell "$file" vsock 262144 65536 5 mbit_s)")
  fair=$(jq '[.cells[] | select(.sessions == 5).repeats[].fairness] | min * 10000 | round / 10000' "$file")
  goal VC-G2 "five sessions $five Gbit/s, one $one: $(ratio "$five" "$one") x; fairness $fair at least" ">= 1.00 x, >= 0.95" "$five >= $one && $fair >= 0.95"
}
