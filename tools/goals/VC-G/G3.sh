# Row VC-G3: request and response of 256 B between microguests, beside TCP through the vSwitch. The
# fabric's threads poll while there is traffic, or sleep at once.
row_VC-G3() {
  local rounds=5 seconds=2 mode file
  if quick; then rounds=2 seconds=1; note "quick: 2 rounds of 1 s instead of 5 of 2 s"; fi
  for mode in polled blocking; do
    file=$OUT/vc-g3-$mode.json
    if [ $mode = polled ]; then vc_daemon --fabric-poll-us 1000; else vc_daemon --fabric-mode interrupt; fi && vc_micro a 10.82.0.1 && vc_micro b 10.82.0.2 || return 1
    preferred 300 "$BIN/taut" -o json bench vsock a b --mode rr --message 256 --socket-size 64KiB --duration $seconds --repeat $rounds --against tcp >"$file" || return 1
    stop_daemon
    goal VC-G3-$mode "p50/p99/p99.9 $(g3_shown "$file" vsock) us, TCP $(g3_shown "$file" tcp)" "p50 <= TCP's" \
      "$(cell "$file" vsock 65536 256 1 p50_us) <= $(cell "$file" tcp 65536 256 1 p50_us)"
  done
}
g3_shown() { jq -r --arg transport "$2" '.cells[] | select(.transport == $transport).median | [.p50_us, .p99_us, .p99_9_us] | map(. * 10 | round / 10 | tostring) | join("/")' "$1"; }
