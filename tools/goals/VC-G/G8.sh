# Row VC-G8: a VM that shares no domain with others cannot tell them from VMs that do not exist,
# neither by the answer nor by its timing. A forged context ID is dropped, counted and reported.
row_VC-G8() {
  local rounds=40 ports=64 result=$OUT/vc-g8.json log=$OUT/vc-g8.log absent forbidden list name tested
  if quick; then rounds=10; note "quick: 10 rounds instead of 40"; fi
  (cd "$here" && cargo build -q --release -p taut-bench --example socket_probe) || return 1
  vc_daemon && vc_micro probe 10.82.0.9 alone || return 1
  forbidden=
  for name in 1 2 3 4; do
    vc_micro "hidden$name" 10.82.0.$name goals || return 1
    forbidden+=${forbidden:+,}$(cid_of "hidden$name")
  done
  absent=1001,1002,1003,4294967294
  # Ports on which a server listens in one of the hidden VMs (the first of a microguest's own), and
  # others.
  taut bench vsock hidden1 hidden2 --mode rr --message 1 --socket-size 64KiB --duration 60 >/dev/null 2>&1 & local server=$!
  list=$(seq -s, 20000 $((20000 + ports / 2 - 1))),$(seq -s, 1 $((ports / 2)))
  sleep 1
  preferred 300 "${CARGO_TARGET_DIR:-$here/target}/release/examples/socket_probe" "$(agent_of probe)" --absent $absent --forbidden "$forbidden" --ports "$list" --rounds $rounds >"$result" || return 1
  kill $server 2>/dev/null; wait $server 2>/dev/null
  note "absent: $(jq -c .absent "$result")"
  note "forbidden: $(jq -c .forbidden "$result")"
  local alike above
  alike=$(jq 'if .absent.connected + .absent.silent + .forbidden.connected + .forbidden.silent == 0 and .absent.refused == .forbidden.refused then 1 else 0 end' "$result")
  above=$(jq '.forbidden_takes_longer * 1000 | round / 1000' "$result")
  goal VC-G8-probe "$(jq .targets "$result") targets, $(jq '.absent.refused + .forbidden.refused' "$result") resets and nothing else; forbidden takes longer than absent in $(awk -v p="$above" 'BEGIN{printf "%.1f", 100 * p}') % (p50 $(jq -r '"\(.forbidden.p1_p50_p90_p99_us[1] * 10 | round / 10) and \(.absent.p1_p50_p90_p99_us[1] * 10 | round / 10)"' "$result") us)" \
    "answered alike, 47 to 53 %" "$alike == 1 && $above >= 0.47 && $above <= 0.53"
  stop_daemon
  (cd "$here" && TAUT_BIN=$BIN cargo test -q -p taut-tests --test host -- --test-threads=1 vmci::a_forged_context_id_causes_an_event vmci::domains_decide) >"$log" 2>&1 || note "a test failed: $log"
  tested=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log" | awk '{n += $1} END{print n + 0}')
  goal VC-G8-forged "$tested tests: a forged context ID is dropped, counted and an event; domains hold at once" "2" "$tested == 2"
}
