row_HS4() { # commands of README.md and the guide that a test executes; README's length
  local log=$OUT/hs4.log guest=$OUT/hs4-guest.log total elsewhere lines
  hs_test host guide "$log" && hs_test guest guide "$guest" || return 1
  grep -E '(executed by|commands executed)' "$log" "$guest" | sed 's/^[^:]*://' | while read -r line; do note "$line"; done
  total=$(sed -n 's/.*: \([0-9]*\) commands executed here.*/\1/p' "$log" | awk '{n += $1} END{print n + 0}')
  elsewhere=$(sed -n 's/.* here, \([0-9]*\) elsewhere.*/\1/p' "$log" | awk '{n += $1} END{print n + 0}')
  lines=$(wc -l <"$here/README.md")
  goal HS4-commands "$total of $((total + elsewhere)) by this test, $elsewhere by the tests above" "all" "$total > 0"
  goal HS4-readme "$lines lines" "<= 90" "$lines <= 90"
}
