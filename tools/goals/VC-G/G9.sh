# Row VC-G9: hostile bytes for what VMCI sockets read: packet headers and rings, the state of
# connections, the host's handshake. fuzz/RECORD.md counts all executions so far.
row_VC-G9() {
  local seconds=300 log=$OUT/vc-g9.log targets executions crashes
  if quick; then seconds=20; note "quick: 20 s of fuzzing instead of 300"; fi
  targets=$(cd "$here/fuzz/fuzz_targets" && ls -- *.rs | sed 's/\.rs$//' | grep -E 'socket|vmci|handshake|connection|hub')
  # shellcheck disable=SC2086
  (cd "$here" && tools/fuzz.sh "$seconds" $targets) >"$log" 2>&1 || true
  grep '^FUZZ' "$log" | while read -r line; do note "${line#FUZZ }"; done
  executions=$(sed -n 's/^FUZZ all \([0-9]*\) .*/\1/p' "$log") crashes=$(sed -n 's/^FUZZ all .* \([0-9]*\) crashes$/\1/p' "$log")
  [ -n "$executions" ] || { tail "$log"; return 1; }
  goal VC-G9 "$(wc -w <<<"$targets") targets ($(tr '\n' ' ' <<<"$targets" | sed 's/ $//')), $executions executions now, $crashes crashes" "0 crashes" "$crashes == 0"
}
