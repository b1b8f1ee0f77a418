row_VC-G7() { # a flood of small sends with a slow reader, on a model of a kernel that counts packets
  local log=$OUT/vc-g7.log status=0
  (cd "$here" && cargo test --release -q -p taut-fabric --lib a_flood_of_small_sends) >"$log" 2>&1 || status=1
  goal VC-G7-model "sends of 1 to 500 B, 100 kB each: $([ $status = 0 ] && echo "all arrived, never 455 packets unread" || echo "failed: $log")" "nothing dropped, nothing reset" "$status == 0"
}
