row_HS1() { # arrows between the folders of all crates, as the test counts them
  local line log=$OUT/hs1.log
  hs_test architecture folders_import "$log" || return 1
  line=$(grep -o 'folders: .*' "$log")
  goal HS1 "${line#folders: }" "0 upward, 0 circles" \
    "$(sed -n 's/.* \([0-9]*\) upward, \([0-9]*\) circles.*/\1 + \2/p' <<<"$line") == 0"
}
