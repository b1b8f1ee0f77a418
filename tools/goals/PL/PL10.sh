# Row PL10: `taut check host` on this machine and on four described machines (crates/host/machines),
# every profile, beside the snapshots in the repository; and `--undo` of what it changes on each of
# them, byte by byte.
row_PL10() {
  local machine name folder before after outcome checked=0 undone=0 status
  # Snapshots and interrupted --apply/--undo are tests; they run here again.
  (cd "$here" && INSTA_UPDATE=no cargo test -q -p taut check >"$OUT/pl10-tests.log" 2>&1) && outcome=0 || outcome=$?
  note "snapshots of four machines with three profiles: $(grep -m1 'test result' "$OUT/pl10-tests.log" || tail -1 "$OUT/pl10-tests.log")"
  (cd "$here" && cargo build -q -p taut-host --example unpack) || return 1
  for machine in "$here"/crates/host/machines/*.txt; do
    name=$(basename "$machine" .txt) folder=$lab/machines/$name
    "${CARGO_TARGET_DIR:-$here/target}/debug/examples/unpack" "$machine" "$folder" || return 1
    before=$(pl10_sum "$folder")
    "$BIN/taut" -o json check host --root "$folder" >"$OUT/pl10-$name.json" && status=0 || status=$?
    [ "$status" -lt 2 ] && [ "$(jq '.summary | add' "$OUT/pl10-$name.json")" = "$(jq '.lines | length' "$OUT/pl10-$name.json")" ] && checked=$((checked + 1))
    "$BIN/taut" check host --root "$folder" --apply >/dev/null 2>"$OUT/pl10-$name-applied.txt" || true
    "$BIN/taut" check host --root "$folder" --undo >/dev/null || return 1
    rm -rf "$folder/var"
    after=$(pl10_sum "$folder")
    [ "$before" = "$after" ] && undone=$((undone + 1))
    note "$name: $(jq -c .summary "$OUT/pl10-$name.json"), $(grep -c ^changed: "$OUT/pl10-$name-applied.txt") files changed and given back"
  done
  "$BIN/taut" check host >"$OUT/pl10-here.txt" && status=0 || status=$?
  note "this machine: $(tail -1 "$OUT/pl10-here.txt")"
  goal PL10-snapshots "tests of snapshots, --apply and --undo ended with status $outcome" "0" "$outcome == 0"
  goal PL10-machines "$checked of 4 machines judged, $undone byte-identical after --undo; this machine: exit status $status" "4, 4, 0 or 1" "$checked == 4 && $undone == 4 && $status < 2"
}

# pl10_sum FOLDER: prints one sum over all files and their content.
pl10_sum() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum); }
