row_VC-G6() { # programs at random on VMCI sockets against the same on Unix sockets; guests pause and start anew, the fabric is upgraded in between
  local operations=1000000 log=$OUT/vc-g6.log line
  quick && { operations=100000; note "shortened: $operations operations instead of 1000000"; }
  (cd "$here" && TAUT_VMCI_OPERATIONS=$operations cargo test --release -q -p taut-fabric --lib vmci::tests::model -- --nocapture) >"$log" 2>&1 || note "the test failed: $log"
  line=$(sed -n 's/^VMCI-MODEL //p' "$log")
  goal VC-G6-model "${line:-a difference was found}" "1000000 operations without a difference" "\"${line:+found}\" == \"found\" && $operations >= 1000000"
}
