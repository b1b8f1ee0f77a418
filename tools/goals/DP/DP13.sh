# DP13: hostile bytes at every border, found by coverage. fuzz/RECORD.md counts all executions so
# far; this run adds its own.
row_DP13() {
  local seconds=600 log=$OUT/dp13.log recorded here_executions crashes
  quick && { seconds=40; note "shortened: $seconds s of fuzzing instead of 600"; }
  (cd "$here" && tools/fuzz.sh "$seconds") >"$log" 2>&1 || true
  grep '^FUZZ' "$log" | while read -r line; do note "${line#FUZZ }"; done
  here_executions=$(sed -n 's/^FUZZ all \([0-9]*\) .*/\1/p' "$log")
  crashes=$(sed -n 's/^FUZZ all .* \([0-9]*\) crashes$/\1/p' "$log")
  [ -n "$here_executions" ] || { tail "$log"; return 1; }
  recorded=$(awk -F'|' '/^\| *20/ {gsub(/[ ,]/, "", $4); n += $4} END {printf "%d", n}' "$here/fuzz/RECORD.md")
  goal DP13 "$((recorded + here_executions)) executions ($recorded recorded, $here_executions now), $crashes crashes now" ">= 100000000, 0" \
    "$recorded + $here_executions >= 1e8 && $crashes == 0"
}
