row_HS8() { # .ci/run on a clean clone
  if quick; then note "quick: .ci/run runs by itself, not here"; return 0; fi
  local began=$SECONDS minutes
  git clone -q "$here" "$lab/clone"
  (unset TAUT_SOCKET CARGO_TARGET_DIR; cd "$lab/clone" && .ci/run >"$OUT/hs8.log" 2>&1) || { tail "$OUT/hs8.log"; return 1; }
  minutes=$(((SECONDS - began + 59) / 60))
  goal HS8 "green in $minutes min, $(grep -c '^test .* ok$' "$OUT/hs8.log") tests" "< 30 min" "$minutes < 30"
}
