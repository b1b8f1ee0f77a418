# Row DP6: 64 KiB TCP frames that stay whole, beside memcpy over as much memory.
row_DP6() {
  dp_rig
  rig_resume taut && taut_pair offload '' --offloads || return 1
  local cell="taut_offload taut one-way 65549 --entries 64 --memcpy" rate copied
  compare "$dp_least" "$dp_rounds" "$cell" || return 1
  rate=$(figure "$cell" '.mpps * .size / 1000 | . * 100 | round / 100') copied=$(figure "$cell" '.memcpy_gbyte_s')
  note "rings of 64, buffers used in turn: $(figure "$cell" '.memcpy_bytes / 1048576 | round') MiB are read and as many written; the generator touches headers only;"
  note "memcpy: the same blocks in the same turn, on the generator's core while it pauses, between the samples"
  goal DP6 "$rate GB/s ($(awk -v r="$rate" 'BEGIN{printf "%.0f", r * 8}') Gbit/s), memcpy $copied GB/s: $(awk -v a="$rate" -v b="$copied" 'BEGIN{printf "%.0f", 100 * a / b}') % ($state)" \
    ">= 70 %" "$rate >= 0.7 * $copied"
}
