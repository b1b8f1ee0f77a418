row_HS7() { # one change of five settings while the daemon is killed at random
  local log=$OUT/hs7.log times=200
  if quick; then times=20; note "quick: 20 kills instead of 200"; fi
  export TAUT_SET_KILLS=$times
  hs_test host settings "$log" || return 1
  unset TAUT_SET_KILLS
  goal HS7 "$times kills, $(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log") tests passed" "all or nothing each time" 1
}
