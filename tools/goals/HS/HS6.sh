row_HS6() { # sizes and duplicates, before and after
  local tree
  hs_old_tree || return 1
  (cd "$here" && cargo build -q -p taut-tests --example sizes) || return 1
  for tree in "$hs_old" "$here"; do
    "${CARGO_TARGET_DIR:-$here/target}/debug/examples/sizes" "$tree/crates" >"$OUT/hs6-$([ "$tree" = "$here" ] && echo after || echo before).txt" || return 1
  done
  paste -d '\n' "$OUT/hs6-before.txt" "$OUT/hs6-after.txt" | awk 'NR % 2 {print "before  " $0; next} {print "after   " $0}' \
    | while read -r line; do note "$line"; done
  goal HS6 "stated above" "stated" 1
}
